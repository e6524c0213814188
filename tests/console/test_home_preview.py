"""The right column of home: what it says of the rollout at the cursor, and speaking from there."""

import asyncio
import threading
from pathlib import Path

import pytest

from houston_console.panes.guidance_composer import Composer
from houston_console.screens.home_list import HomeList
from houston_console.screens.preview_reader import (
    MARK_PLACES,
    TerminalTail,
    read_preview,
    read_terminal_tail,
)
from houston_console.screens.rollout_preview import (
    RolloutPreviewPane,
    _terminal_lines,
    score_chart_lines,
)
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.braille_chart import draw_curve
from houston_console.widgets.styled_text import CURSOR_GLYPH, line, line_text, line_width, span
from houston_shared.safe_text import safe
from houston_shared.store.store_reader import Reader
from houston_shared.terminal_log_files import segment_file, terminals_folder
from tests.console import draw_console
from tests.console.conftest import SMALL, LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder
from tests.console.record_terminals import STILL_OPEN
from tests.console.test_fuzz import _send
from tests.console.test_hostile import CORPUS
from tests.console.test_recorded_terminals import SESSIONS

COLUMNS = (140, 40)
SIZES = ((100, 30), (120, 35), COLUMNS, (200, 60))
TEXT = "#preview-text"


def preview(seat: Seat) -> RolloutPreviewPane:
    return seat.app.home_screen.preview


async def settled(seat: Seat) -> str:
    """What the preview says once the rollout at the cursor was read."""
    await preview(seat).settle()
    await seat.press()
    return seat.text(TEXT)


def _two(builder: HomeBuilder) -> None:
    with builder.bulk():
        for name in ("t-one", "t-two"):
            builder.start(name, "t")
            builder.whole(name, 1, f"{name} thinks")


def _ended(builder: HomeBuilder, task: str, scores: tuple[float, ...]) -> None:
    """Rollouts of a task that finished, one for each score."""
    with builder.bulk():
        for number, score in enumerate(scores):
            name = f"{task}-e{number}"
            builder.start(name, task)
            builder.scored(name, 1, "try it", score)
            builder.state(name, "finished", "worker", "finish")


# --- what it says --------------------------------------------------------------------------------


async def test_it_shows_scores_marks_steps_and_the_terminal(tmp_path: Path, sit: Sit) -> None:
    with draw_console.build(tmp_path) as builder:
        for size in SIZES:
            async with sit(builder.home, size=size, at_home=True) as seat:
                await seat.press("slash", *"r-7f3a", "enter")
                text = await settled(seat)
                for part in (
                    "r-7f3a  running", "score over active time", "56.67", "43.33", "errors", "✗",
                    "heard", "✎", "last steps", "61", "terminal main", "pass 3/3", "92 %", "60/200",
                    "queued, alice: Back up",
                ):  # fmt: skip
                    assert part in text, (size, part, text)
                assert any("\u2800" < character <= "\u28ff" for character in text), size
                shown = seat.app.screen.query_one(TEXT, expect_type=type(preview(seat).text))
                assert max(map(line_width, shown.lines)) <= shown.line_cells, size
                assert len(shown.lines) <= shown.size.height, size


async def test_a_narrow_or_low_screen_has_the_list_alone(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    for count, size in enumerate((SMALL, (99, 40), (160, 19)), 1):
        async with sit(builder.home, size=size, at_home=True) as seat:
            assert not preview(seat).display, size
            _send(seat.app, ["i", *"There"])  # T is a key of home, too
            composer = seat.app.watch_screen.guidance.composer
            typed = "There" * count  # the draft is kept
            await seat.until(lambda composer=composer, typed=typed: composer.text == typed, "typed")
            assert seat.app.state.selected == "t-two"


async def test_it_follows_the_cursor_and_what_is_new(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        assert "t-two thinks" in await settled(seat)
        await seat.press("j")
        assert "t-one thinks" in await settled(seat)
        builder.scored("t-one", 2, "now it is scored", 41.5)
        await seat.until(lambda: "now it is scored" in seat.text(TEXT), "the new step")
        await seat.until(lambda: "41.5" in seat.text(TEXT), "its score")


async def test_a_held_key_reads_only_where_it_rests(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with builder.bulk():
        for number in range(40):
            builder.start(f"t-{number:02}", "t")
            builder.whole(f"t-{number:02}", 1, "works")
    read: list[str] = []

    def counted(rollout: str):  # type: ignore[no-untyped-def]
        read.append(rollout)
        return read_preview(rollout)

    monkeypatch.setattr("houston_console.screens.rollout_preview.read_preview", counted)
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        read.clear()
        await seat.pilot.press(*["j"] * 20)
        await settled(seat)
        assert read[-1] == seat.app.home_screen.list.chosen
        assert len(set(read)) < 20, "what the cursor passed over was not read"


async def test_the_cursor_is_drawn_where_the_preview_is(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        seat.app.home_screen.refresh_list("t-one")
        assert "t-one thinks" in await settled(seat)
        listed = seat.app.home_screen.list
        rows = [str(strip.text) for strip in seat.app.screen._compositor.render_strips()]
        (marked,) = (row for row in rows if CURSOR_GLYPH in row)
        assert "t-one" in marked[: listed.size.width]


async def test_nothing_is_read_behind_another_screen(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _two(builder)
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        await seat.press("enter")
        builder.whole("t-two", 2, "behind")
        await seat.until(lambda: "behind" in seat.text(Transcript), "the rollout goes on")
        assert preview(seat)._followed == ""
        await seat.press("0")
        assert "behind" in await settled(seat)


async def test_what_cannot_be_read_is_said_in_its_place(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    builder.connection.execute("UPDATE events SET body = x'c1' WHERE kind = 'spec'")
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        await seat.until(lambda: "next: houston verify" in seat.text(TEXT), "why")
        await seat.press("j")
        assert seat.app.home_screen.list.chosen == "t-one"


async def test_hostile_text_is_harmless_in_it(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    root = tmp_path / "host"
    with builder.bulk():
        for number, words in enumerate(CORPUS):
            name = f"r[/{number}"
            builder.start(name, f"task {words[:60]}", host_root=str(root))
            builder.say(name, f"g{number}", words, author=words[:20])
            call = (words[:30], {"command": words})
            builder.whole(name, 1, words, (call,), (words,), attention=(words[:12],))
            terminal = root / "rollouts" / name / "terminals" / "main"
            terminal.mkdir(parents=True)
            (terminal / "log.0000000000000000").write_bytes(words.encode("utf-8", "replace"))
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        for _ in CORPUS:
            await settled(seat)
            for text in (*seat.lines(TEXT), *seat.lines(HomeList), seat.frame("#home-guidance")):
                assert safe(text) == text
                assert "\n" not in text
            await seat.press("j")


async def test_a_long_rollout_is_read_by_windows(builder: HomeBuilder) -> None:
    with builder.bulk():
        builder.start("long", "t")
        for step in range(1, 3_001):
            builder.begin("long", step, f"thought {step}")
            builder.close_step("long", step)
    with Reader(builder.home) as reader:
        shown = reader.run(read_preview("long"))
    assert [row.step for row in shown.steps] == list(range(2_971, 3_001))
    assert not shown.error_places
    builder.whole("long", 3_001, "fails", success=False)
    builder.say("long", "g", "Look again.")
    builder.whole("long", 3_002, "hears", success=False)
    with Reader(builder.home) as reader:
        shown = reader.run(read_preview("long"))
    assert max(shown.error_places) == max(shown.guidance_places) == MARK_PLACES - 1
    assert len(shown.error_places) <= 2


async def test_a_branch_shows_the_past_that_it_shares(builder: HomeBuilder) -> None:
    builder.start("r", "t")
    builder.scored("r", 1, "first", 30.0)
    builder.whole("r", 2, "second", success=False)
    builder.start("b", "t")
    builder.connection.execute("UPDATE rollouts SET parent = 'r', parent_step = 2 WHERE id = 'b'")
    builder.whole("b", 3, "third")
    with Reader(builder.home) as reader:
        shown = reader.run(read_preview("b"))
    assert [row.step for row in shown.steps] == [1, 2, 3]
    assert [point.score for point in shown.scores] == [30.0]
    assert shown.error_places


async def test_leaving_lets_go_of_the_database(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    before = set(threading.enumerate())
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        await seat.press("enter")  # home is not on the stack any more
    await asyncio.sleep(0)
    left = {thread for thread in set(threading.enumerate()) - before if not thread.daemon}
    assert not [thread for thread in left if "aiosqlite" in type(thread).__module__ + thread.name]


# --- the curve -----------------------------------------------------------------------------------

CURVES = {
    "nothing": ([], 2, 1, ["  "]),
    "one point at the left": ([(0.0, 1.0)], 2, 1, ["⠁ "]),
    "level at the top": ([(0.0, 1.0), (1.0, 1.0)], 2, 1, ["⠉⠉"]),
    "level at the bottom": ([(0.0, 0.0), (1.0, 0.0)], 2, 1, ["⣀⣀"]),
    "rising": ([(0.0, 0.0), (1.0, 1.0)], 2, 1, ["⡠⠊"]),
    "a step up": ([(1.0, 0.0), (1.0, 1.0)], 1, 2, ["⢸", "⢸"]),
    "outside is drawn at the edge": ([(-1.0, -1.0), (2.0, -1.0)], 2, 1, ["⣀⣀"]),
    "no room": ([(0.0, 0.0)], 0, 3, []),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_drawn_in_dots(name: str) -> None:
    points, width, height, wanted = CURVES[name]
    assert draw_curve(points, width, height) == wanted


def test_marks_stand_below_the_scores_of_their_time(builder: HomeBuilder) -> None:
    builder.start("r", "t")
    for step in range(1, 101):
        if step == 50:
            builder.say("r", "g", "Look again.")
        builder.whole("r", step, "works", success=step != 25)
    with Reader(builder.home) as reader:
        shown = reader.run(read_preview("r"))
    errors, heard, axis = map(line_text, score_chart_lines(shown, 108, 4))
    assert (errors.index("✗") - 7, heard.index("✎") - 7) == (25, 50)
    assert axis.split() == ["0", "50m"]


# --- speaking from home --------------------------------------------------------------------------


async def test_guidance_is_written_and_sent_without_opening(live: LiveStation, sit: Sit) -> None:
    worker, other = live.working(), live.working()
    worker.step(1)
    other.step(1)
    async with sit(live.home, size=COLUMNS, at_home=True) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "live")
        seat.app.home_screen.refresh_list(worker.rollout)
        await settled(seat)
        await seat.press("i")
        assert f"i Say to {worker.rollout}" in seat.frame("#home-guidance")
        assert "enter send" in seat.hint()
        await seat.write("look at it, q too")
        await seat.press("enter")
        assert seat.app.screen is seat.app.home_screen
        ids = "SELECT rollout, state FROM guidance"
        await seat.until(lambda: live.query(ids) == [(worker.rollout, "queued")], "queued")
        await seat.until(lambda: "queued, " in seat.text(TEXT), "it is said in the preview")
        await seat.press("escape")
        assert seat.app.focused is seat.app.home_screen.list
        assert [message.text for message in worker.step(2).guidance] == ["look at it, q too"]
        await seat.until(lambda: "heard at step 2" in seat.text(TEXT), "and that it was heard")


async def test_a_key_at_once_after_the_cursor_writes_to_the_rollout_there(
    builder: HomeBuilder, sit: Sit
) -> None:
    _two(builder)
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        _send(seat.app, ["j", "i", *"Thear"])  # T is a key of home, too
        await seat.until(lambda: seat.app.outbox.draft("t-one").text == "Thear", "what was typed")
        assert seat.app.screen is seat.app.home_screen
        assert preview(seat).composer_rollout == "t-one" == seat.app.home_screen.list.chosen
        assert seat.app.outbox.draft("t-two").text == ""


async def test_a_draft_is_the_same_at_home_and_in_the_rollout(
    builder: HomeBuilder, sit: Sit
) -> None:
    _two(builder)
    async with sit(builder.home, "t-one", size=COLUMNS) as seat:
        at_rollout = seat.app.watch_screen.guidance.composer
        await seat.press("0")
        await settled(seat)
        await seat.press("i", *"begun", "escape", "enter")
        assert (seat.app.state.selected, at_rollout.text) == ("t-one", "begun")
        await seat.press("5", *"more", "escape", "0")
        await settled(seat)
        assert preview(seat).guidance.composer.text == "begunmore"
        await seat.press("i", "enter")  # there is no daemon: it waits
        await seat.until(lambda: "unsent" in seat.text(TEXT), "it waits here")
        await seat.press("escape", "escape")
        assert at_rollout.text == ""
        await seat.until(lambda: "begunmore" in seat.text("#queue"), "and is listed there")


async def test_an_ended_rollout_is_told_to_hear_nothing(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    builder.state("t-one", "failed", "worker", "engine lost")
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await settled(seat)
        assert seat.app.home_screen.list.chosen == "t-one"
        await seat.press("i", *"no", "enter")
        assert "nobody would hear it" in seat.hint()
        assert not seat.app.outbox.unsent()


# --- folds ---------------------------------------------------------------------------------------


async def test_what_has_ended_is_folded_by_task_and_unfolds_by_a_key(
    builder: HomeBuilder, sit: Sit
) -> None:
    _two(builder)
    _ended(builder, "a", (61.0, 88.0, 70.0))
    _ended(builder, "b", (55.0,))
    for size in (COLUMNS, SMALL):
        async with sit(builder.home, size=size, at_home=True) as seat:
            listed = seat.app.home_screen.list
            assert [row.id for row in listed.rows] == ["t-two", "t-one", "", "b-e0"]
            (fold,) = (text for text in seat.lines(HomeList) if "ended" in text)
            assert fold.split() == ["▸", "a", "3", "ended", "•", "3", "unseen", "88"]
            await seat.press("G", "k")
            assert listed.fold_at_cursor is not None
            await seat.press("enter")
            assert [row.id for row in listed.rows[2:]] == ["", "a-e2", "a-e1", "a-e0", "b-e0"]
            await seat.press("j", "j")
            assert listed.chosen == "a-e1"
            await seat.press("z")
            assert listed.fold_at_cursor is not None, "the cursor stays with what was folded"
            await seat.press("z", "slash", *"e0")
            assert [row.id for row in listed.rows if row.id] == ["a-e0", "b-e0"]
            await seat.press("enter", "escape", "t")
            assert [row.task for row in listed.rows if row.is_task] == ["t", "b", "a"]


async def test_the_preview_of_a_fold_lists_the_best_first(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    _ended(builder, "a", (61.0, 88.0, 70.0))
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        await seat.press("G")
        lines = [text.split() for text in seat.lines(TEXT) if "steps" in text]
        assert [words[-1] for words in lines] == ["88", "70", "61"]
        assert not preview(seat).guidance.display


async def test_a_rollout_that_ends_under_the_cursor_is_not_folded_away(
    builder: HomeBuilder, sit: Sit
) -> None:
    _two(builder)
    _ended(builder, "t", (61.0, 88.0))
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        listed = seat.app.home_screen.list
        now = 0.0
        listed.order.attention.clock = lambda: now
        await seat.press("j")
        assert listed.chosen == "t-one"
        places = [row.id for row in listed.rows]
        builder.state("t-one", "finished", "worker", "finish")
        builder.state("t-two", "finished", "worker", "finish")
        await seat.until(lambda: listed.order.is_held, "another order waits")
        assert [row.id for row in listed.rows] == places
        await seat.press("circumflex_accent")
        assert [row.id for row in listed.rows] == [""]
        assert "4 ended" in seat.text(HomeList)


async def test_five_hundred_rollouts_are_listed_in_a_few_lines(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        for number in range(500):
            name = f"task-{number % 5}-{number:03}"
            builder.start(name, f"task-{number % 5}")
            builder.whole(name, 1, "works")
            if number >= 5:
                builder.state(name, "finished", "worker", "finish")
    async with sit(builder.home, size=COLUMNS, at_home=True) as seat:
        listed = seat.app.home_screen.list
        assert len(listed.rows) == 10
        await seat.press("z")
        assert len(listed.rows) == 505
        await seat.press("G", "k", "pageup", "g")
        assert "works" in await settled(seat)


async def test_what_was_spent_stands_in_the_list(builder: HomeBuilder, sit: Sit) -> None:
    _two(builder)
    async with sit(builder.home, size=(200, 60), at_home=True) as seat:
        await seat.until(lambda: "tokens" in seat.text("#home-heads"), "a column of tokens")
        assert "cost" not in seat.text("#home-heads")
        builder.connection.execute("UPDATE samples SET cost = 1.25 WHERE rollout = 't-one'")
        builder.begin("t-one", 2, "more", prompt_tokens=5_000_000, cost=2.25)
        await seat.until(lambda: "5.0M" in seat.text(HomeList), "what came since is added")
        await seat.until(lambda: "2.25" in seat.text(HomeList), "and what it cost")
        composer = seat.app.home_screen.query_one(Composer)
        assert composer.text == ""


@pytest.mark.parametrize("name", [STILL_OPEN, "top", "vim and less", "colours"])
@pytest.mark.parametrize("before", [0, 40_000], ids=["at the start of its log", "far behind it"])
def test_the_end_of_a_terminal_is_what_its_terminal_shows(
    name: str, before: int, tmp_path: Path
) -> None:
    data, session = SESSIONS[name]
    log = segment_file(terminals_folder(tmp_path, "r") / "main", 0)
    log.parent.mkdir(parents=True)
    log.write_bytes(b"earlier\r\n" * (before // 9) + data)
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("r", host_root=str(tmp_path))
        with Reader(builder.home) as reader:
            tail = read_terminal_tail(reader.run(read_preview("r")))
    shown = [line_text(parts).rstrip() for parts in tail.lines]
    count = min(len(shown), len(session["tmux"]))
    assert count and shown[-count:] == session["tmux"][-count:]
    assert (tail.cursor >= 0) == (name == STILL_OPEN)


def test_the_screen_of_a_program_is_shown_from_its_top_as_far_as_its_cursor() -> None:
    screen = tuple(line(span(f"row {number}")) for number in range(50))
    for cursor, first, last in ((0, 0, 8), (20, 12, 20), (49, 41, 49), (-1, 41, 49)):
        tail = TerminalTail("main", screen, "", cursor)
        shown = [line_text(parts).strip() for parts in _terminal_lines(tail, 40, 9)]
        assert (shown[1], shown[-1]) == (f"row {first}", f"row {last}")
