"""What a frame shows fits into it, and what its edges say is so at any width and at any moment."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual._context import visible_screen_stack
from textual.strip import Strip

from houston_console.panes.files_pane import DiffView
from houston_console.screens.base_screen import TabBar
from houston_console.widgets.dialogs import ConfirmDialog
from houston_console.widgets.styled_text import TextLine, line_text
from houston_shared.records import FileChange
from tests.console.conftest import SMALL, WIDE, Seat, Sit
from tests.console.home_builder import HomeBuilder


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
    async with sit(builder.home) as seat:
        for what, (keys, follows) in FOLLOWING.items():
            await seat.press("z", "z", "f")  # all are folded, and it follows again
            assert seat.transcript.following and seat.transcript.line_count() == 61, what
            await seat.press(*keys)
            if what == "a search":  # has a thread of its own
                await seat.until(lambda: len(seat.transcript.hits) == 60)
                await seat.press()
            assert ("following" in seat.frame("#trajectory")) == follows, what
            assert seat.transcript.following == follows, what
            assert not follows or _at_end(seat), what


class Picture:
    """What stands on a terminal once it has drawn the updates that it was sent."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, Style | None]] = {}
        self.partial = self.whole = 0
        """Updates of a part of the screen, and of all of it."""

    @property
    def text(self) -> str:
        """All characters, row by row."""
        return "".join(str(self.cells[x, y][0]) for y, x in sorted((y, x) for x, y in self.cells))

    def take(self, update: LayoutUpdate | ChopsUpdate | None) -> None:
        if isinstance(update, ChopsUpdate):
            self.partial += 1
            for y, first, end in update.spans:
                pieces = zip(update.chop_ends[y], update.chops[y].items(), strict=True)
                for right, (x, strip) in pieces:
                    if x < end and right > first:
                        assert strip is not None, f"nothing for row {y} from column {x}"
                        self.put(x, y, strip)
        elif update is not None:
            self.whole += 1
            for y, strips in enumerate(update.strips):
                self.put(0, y, Strip.join(list(strips)))

    def put(self, x: int, y: int, strip: Strip) -> None:
        for segment in strip:
            for character in segment.text:
                self.cells[x, y] = (character, segment.style)
                x += cell_len(character)


def _whole(seat: Seat) -> dict[tuple[int, int], tuple[str, Style | None]]:
    """What a frame of the whole screen would show."""
    picture = Picture()
    visible_screen_stack.set(seat.app._background_screens)
    for y, strip in enumerate(seat.app.screen._compositor.render_strips()):
        picture.put(0, y, strip)
    return picture.cells


EVERYWHERE = (
    *("j", "k", "enter", "j", "k", "enter", "colon", "5", "enter", "pagedown", "f"),
    *("slash", "t", "escape", "1", "j", "3", "4", "j", "5", "x", "escape", "2", "space", "escape"),
    *("0", "j", "k", "i", "x", "escape", "t", "question_mark", "escape"),
)
"""Keys that go through areas, questions and screens, and what they show there."""


@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["wide", "small"])
async def test_frames_of_a_part_add_up_to_the_whole(
    size: tuple[int, int], builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = FileChange(path="x", kind="changed", added=1, removed=0, diff="@@ -1 +1 @@\n+new")
    with builder.bulk():
        for rollout in ("r-one", "r-two"):
            builder.start(rollout, task="r")
            for number in range(1, 61):
                builder.whole(
                    rollout, number, f"thought {number}", texts=("a\nb",), files=(change,)
                )
    async with sit(builder.home, rollout="r-one", size=size) as seat:
        picture = Picture()

        def display(screen: Any, update: Any) -> None:
            picture.take(update)

        def is_whole() -> bool:
            return picture.cells == _whole(seat)

        monkeypatch.setattr(seat.app, "_display", display)
        seat.app.screen.refresh()
        for key in EVERYWHERE:
            await seat.press(key)
            await seat.until(is_whole, f"the picture after {key}")
        assert picture.partial > len(EVERYWHERE) // 2


async def test_behind_a_question_only_what_changes_is_drawn(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with builder.bulk():
        builder.start("r")
        for number in range(1, 21):
            builder.whole("r", number, f"thought {number}")
    async with sit(builder.home, rollout="r") as seat:
        picture = Picture()
        monkeypatch.setattr(seat.app, "_display", lambda screen, update: picture.take(update))
        seat.app.screen.refresh()
        await seat.app.push_screen(ConfirmDialog("Go on?"))
        await seat.until(lambda: picture.cells == _whole(seat), "the question")
        for number in range(21, 26):
            builder.whole("r", number, f"thought {number}")
            await seat.until(lambda number=number: f"step {number} of" in picture.text)
            await seat.until(lambda: picture.cells == _whole(seat), f"step {number}")
            if number == 21:  # opening the question had left something to draw
                whole = picture.whole
        assert picture.whole == whole
        await seat.press("n")
        await seat.until(lambda: picture.cells == _whole(seat), "no question any more")


WHILE_READING: dict[str, tuple[int, int, Callable[[HomeBuilder], None]]] = {
    "a step below the screen": (20, 0, lambda home: home.whole("r", 61, "new")),
    "a step right below the screen": (58, 0, lambda home: home.whole("r", 61, "new")),
    "a verdict on steps in view": (20, 2, lambda home: home.judged("r", 22, 23, "mask", "bad")),
    "a note beside a step in view": (20, 1, lambda home: home.marked("r", 21, "bob", "look")),
    "a step in view, scored by a model": (20, 1, lambda home: home.rewarded("r", 22, 0.1)),
    "the step at the end closes": (58, 1, lambda home: home.close_step("r", 60)),
    "the third of equal failures, which takes a line": (
        58,
        60,
        lambda home: home.whole("r", 61, "thought 61", texts=("no",), success=False),
    ),
}
"""The step at the cursor, how many rows change at most, and what happens."""


def _transcript_cells(
    seat: Seat, cells: dict[tuple[int, int], tuple[str, Style | None]]
) -> dict[tuple[int, int], tuple[str, Style | None]]:
    region = seat.transcript.region
    return {place: cell for place, cell in cells.items() if region.contains(*place)}


@pytest.mark.parametrize("name", WHILE_READING)
async def test_what_happens_while_somebody_reads_is_drawn_where_it_changed(
    name: str, builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, most, happen = WHILE_READING[name]
    with builder.bulk():
        builder.start("r")
        for number in range(1, 60):
            fails = "equal failures" in name and number > 57
            builder.whole("r", number, f"thought {number}", texts=("no",), success=not fails)
        (call,) = builder.begin("r", 60, "thought 60")
        builder.answer("r", 60, call, "no", success="equal failures" not in name)
        if "closes" not in name:
            builder.close_step("r", 60)
    async with sit(builder.home, rollout="r") as seat:
        picture, drawn = Picture(), set[int]()
        row_line = seat.transcript.row_line

        def counted(row: int, offset: int) -> TextLine:
            drawn.add(row)
            return row_line(row, offset)

        monkeypatch.setattr(seat.app, "_display", lambda screen, update: picture.take(update))
        await seat.press("colon", *str(at), "enter")
        seat.app.screen.refresh()
        await seat.until(lambda: picture.cells == _whole(seat), "the steps")
        monkeypatch.setattr(seat.transcript, "row_line", counted)
        happen(builder)
        (events,) = builder.connection.execute("SELECT max(seq) FROM events").fetchone()
        await seat.until(lambda: f"event {events}" in picture.text, "it is known")
        if most:  # the line that says so is drawn before the steps are read
            await seat.until(lambda: bool(drawn), "it is drawn")
        await seat.transcript.settle()
        await seat.until(lambda: picture.cells == _whole(seat), "it is shown")
        assert len(drawn) <= most, f"rows {drawn} were drawn"
        shown = _transcript_cells(seat, picture.cells)
        seat.transcript.show()  # all of it anew
        await seat.transcript.settle()
        await seat.press()
        assert shown == _transcript_cells(seat, _whole(seat))


@pytest.mark.parametrize(
    ("columns", "tabs"),
    [
        (80, " 0 Home  1 Rollouts  2 Trajectory  3 Terminals  4 Files  5 Guide"),
        (60, " 0 Home 1 Rollouts 2 Trajectory 3 Terminals 4 Files 5 Guide"),
        (50, " 0  1  2 Trajectory  3  4  5"),
    ],
)
async def test_a_narrow_bar_leaves_whole_words_out(
    builder: HomeBuilder, sit: Sit, columns: int, tabs: str
) -> None:
    with builder.bulk():
        for number in range(12):
            builder.start(f"r-{number}")
            if number:
                state = "failed" if number % 2 else "finished"
                builder.state(f"r-{number}", state, "worker")
    async with sit(builder.home, size=(columns, 20)) as seat:
        assert seat.app.query_one(TabBar).render_line(0).text.rstrip() == tabs
        status = seat.bar("#status")
        assert "daemon down" in status and "…" not in status
        for count in ("●1", "✗6", "✓5"):
            assert count in status
