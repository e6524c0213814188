"""What a frame shows fits into it, and what its edges say is so at any width and at any moment."""

from houston_console.panes.files_pane import DiffView
from houston_console.widgets.styled_text import line_text
from houston_shared.records import FileChange
from tests.console.conftest import SMALL, WIDE, Seat, Sit
from tests.console.homes import HomeBuilder


def _words(count: int) -> str:
    """Text in which a lost character is seen: every word is its own number."""
    return " ".join(str(number) for number in range(1000, 1000 + count))


def _shown(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split() if word.isdigit() and len(word) == 4]


async def test_no_character_is_lost_when_the_scrollbar_appears(
    builder: HomeBuilder, sit: Sit
) -> None:
    text = _words(120)
    diff = "@@ -1 +1 @@\n+" + "\n+".join([text] * 12)
    change = FileChange(path="x", kind="changed", added=12, removed=0, diff=diff)
    with builder.bulk():
        builder.start("r")
        for number in range(1, 12):
            builder.whole("r", number, "", texts=(text + "\n" * 4 + text,), files=(change,))
    for size in (WIDE, SMALL, (121, 31)):
        async with sit(builder.home, size=size) as seat:
            await seat.press("g", "j", "enter")
            view = seat.transcript
            assert view.show_vertical_scrollbar
            assert view.scrollable_content_region.width == view.line_cells
            wanted = text.split()
            lines = [seat.transcript.row_line(1, at) for at in range(view.folds.height(1))]
            text_of = ["".join(part.text for part in parts).rstrip() for parts in lines]
            assert max(map(len, text_of)) <= view.line_cells
            assert _shown(text_of)[: len(wanted)] == wanted, size
            if size == WIDE:
                diffs = seat.app.query_one(DiffView)
                assert diffs.show_vertical_scrollbar
                assert diffs.scrollable_content_region.width == diffs.line_cells
                assert (
                    max(map(len, map(line_text, map(diffs.line_at, range(20))))) <= diffs.line_cells
                )


async def test_a_card_that_was_hidden_is_made_when_it_is_shown(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1)
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("1")
        assert "running" in seat.text("#facts")
        assert "engine" in seat.text("#facts")
        assert "…" not in seat.text("#facts")
        await seat.pilot.resize_terminal(*WIDE)
        await seat.press()
        assert "policy@1" in seat.text("#facts")


def _at_end(seat: Seat) -> bool:
    view = seat.transcript
    return round(view.scroll_y) + view.size.height >= view.line_count()


FOLLOWING = {
    "to the newest step by its number": (("colon", "6", "0", "enter"), True),
    "to another step by its number": (("colon", "5", "enter"), False),
    "the newest step unfolded, its end in view": (("enter",), True),
    "another step unfolded": (("k", "enter"), False),
    "up": (("k",), False),
    "a search": (("slash", *"thought", "enter"), False),
}


async def test_the_edge_says_following_exactly_while_the_view_follows(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        for number in range(1, 61):
            builder.whole("r", number, f"thought {number}")
    for what, (keys, follows) in FOLLOWING.items():
        async with sit(builder.home) as seat:
            await seat.press(*keys)
            if what == "a search":  # has a thread of its own
                await seat.until(lambda seat=seat: len(seat.transcript.hits) == 60)
                await seat.press()
            assert ("following" in seat.frame("#trajectory")) == follows, what
            assert seat.transcript.following == follows, what
            assert not follows or _at_end(seat), what
