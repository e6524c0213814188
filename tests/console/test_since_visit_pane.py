"""What happened since somebody was here: the walk through it as a table, and the strip above."""

from typing import Any

from houston_console.panes.since_visit_pane import (
    ChangesSinceVisit,
    EventWalk,
    SinceList,
    since_entries,
    summary_strip,
)
from houston_console.widgets.styled_text import line_text, line_width
from houston_shared.store.changes_since_visit import (
    ChangesSinceEvent,
    HeardGuidance,
    NotableEvent,
    ScoredEvaluation,
    TouchedFile,
)
from houston_shared.store.last_actions import LastAction
from tests.console import crowded_home
from tests.console.conftest import SMALL, WIDE, Sit
from tests.console.home_builder import HomeBuilder

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000

EVENTS = [
    NotableEvent(10, 4, 1, "error", "run_command failed"),
    NotableEvent(20, 0, 2, "state", "paused"),
    NotableEvent(30, 9, 3, "evaluation", "score 5"),
    NotableEvent(31, 9, 3, "guidance", "ben: look"),
    NotableEvent(40, 12, 4, "fork", "new context"),
]  # fmt: skip
# Each walk: (key, where the cursor is) → the step it leads to; None at an end.
WALKS: dict[str, list[tuple[int, int, int | None]]] = {
    "from the first to the last, wherever one follows": [
        (1, 99, 4), (1, 4, 9), (1, 9, 12), (1, 12, None), (-1, 12, 12)],
    "and back": [(1, 99, 4), (1, 4, 9), (-1, 9, 4), (-1, 4, None), (1, 4, 4)],
    "on from where somebody went": [(1, 99, 4), (1, 10, 12), (-1, 8, 4)],
    "nothing comes after the last": [(1, 99, 4), (1, 50, None)],
    "nothing before the first": [(-1, 99, None), (1, 99, 4)],
}  # fmt: skip


def test_a_key_walks_from_step_to_step() -> None:
    for what, walk in WALKS.items():
        walker = EventWalk(EVENTS)
        for by, cursor, wanted in walk:
            stop = walker.go(by, cursor)
            assert (stop.step if stop else None) == wanted, (what, by, cursor)
    assert EventWalk(EVENTS).stops[1].text == "score 5; ben: look"
    assert EventWalk(()).go(1, 3) is None


def since(**fields: Any) -> ChangesSinceEvent:
    defaults = {
        "rollout": "r", "after": 5, "seq": 90, "first": 4, "last": 44, "steps": 41, "errors": 3,
        "active_us": HOUR, "best_before": 20.0, "more_files": 2, "events": tuple(EVENTS),
        "evaluations": (
            ScoredEvaluation(9, 60.0, "scored", NOW, 30),
            ScoredEvaluation(12, None, "failed", NOW, 33),
        ),
        "guidance": (
            HeardGuidance("g", "ben", "Look\nthere.", 9, NOW, LastAction(10, NOW, False, "ls")),
        ),
        "files": (TouchedFile("src/a.py", 7, 30, 4, 40),),
    }  # fmt: skip
    return ChangesSinceEvent(**{**defaults, **fields})


def test_the_strip_says_first_what_matters_most_and_fits() -> None:
    visit = ChangesSinceVisit(since(), NOW - 6 * HOUR)
    for width, parts in (
        (130, ("since you were here, 6 h ago:", "41 steps", "★ 2, best 60 (was 20)", "✗ 3 errors",
               "✎ 1 heard", "± 3 files", "I show ] next")),
        (72, ("since 6 h ago:", "41 steps", "★ 2, best 60 (was 20)", "I show ] next")),
        (44, ("since 6 h ago:", "41 steps")),
    ):  # fmt: skip
        strip = summary_strip(visit, NOW, width, False, ("I", "]"))
        assert line_width(strip) == width
        assert [part for part in parts if part not in line_text(strip)] == [], width
    assert "new to you: " in line_text(
        summary_strip(ChangesSinceVisit(since(), 0), NOW, 130, False)
    )


def test_unfolded_it_lists_scores_guidance_files_and_every_event() -> None:
    entries = since_entries(ChangesSinceVisit(since(), NOW - HOUR), NOW, 90)
    assert [entry.step for entry in entries if not entry.head] == [9, 12, 9, 10, 40, 4, 0, 9, 9, 12]
    texts = "\n".join(line_text(entry.line) for entry in entries)
    for part in ("no score: failed", "ben: Look there.", "→ ls", "src/a.py  7 changes +30 −4",
                 "2 more not shown", "✗ run_command failed", "↳ new context", "● paused",
                 ):  # fmt: skip
        assert part in texts
    assert all(line_width(entry.line) <= 90 for entry in entries)


async def test_who_comes_back_sees_what_happened_and_walks_it(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        for step in range(1, 11):
            builder.whole("r", step, f"thought {step}")
    crowded_home.mark_seen(builder, "r", builder.seq, 6 * 60 * crowded_home.MINUTE)
    for size in (WIDE, SMALL):
        async with sit(builder.home, "r", size) as seat:
            area = seat.app.watch_screen.since
            await seat.until(lambda area=area: area._was_read, "read")
            assert area.visit is None
            assert area.region.height == 0  # nothing happened: not one line is taken
            await seat.press("right_square_bracket")
            assert "Nothing is new since you were here" in seat.hint()
            await seat.press("I")
            await seat.until(lambda: "Nothing happened since" in seat.hint(), "said")
    with builder.bulk():
        builder.say("r", "g", "Look at the log.", author="ben")
        builder.whole("r", 11, "fails", success=False)
        builder.scored("r", 12, "tries", 41.0)
        builder.whole("r", 13, "goes on")
    for size in (WIDE, SMALL):
        async with sit(builder.home, "r", size) as seat:
            await seat.until(lambda: "3 steps" in seat.text("#since-line"), "the strip")
            for part in ("6 h ago", "★ 1, best 41", "✗ 1 error"):
                assert part in seat.text("#since-line"), part
            await seat.press("right_square_bracket")
            assert seat.transcript.cursor == 11
            assert "1/2  step 11" in seat.hint()
            await seat.press("right_square_bracket")
            assert seat.transcript.cursor == 12
            assert "score 41" in seat.hint()
            await seat.press("left_square_bracket")
            assert seat.transcript.cursor == 11
            await seat.press("I")
            assert isinstance(seat.app.focused, SinceList)
            assert "41" in seat.lines(SinceList)[1]
            await seat.press("enter")
            await seat.until(lambda: seat.transcript.cursor == 12, "its step")
            await seat.press("I", "escape")
            assert not seat.app.watch_screen.since.events.display
            await seat.press("right_square_bracket", "right_square_bracket")
            assert "That was all" in seat.hint()
            assert not seat.app.watch_screen.since.strip.display


async def test_who_was_never_here_is_not_disturbed_and_may_ask(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        builder.scored("r", 1, "tries", 7.0)
    async with sit(builder.home, "r") as seat:
        area = seat.app.watch_screen.since
        await seat.until(lambda: area._was_read, "read")
        assert area.region.height == 0
        await seat.press("I")
        await seat.until(lambda: area.events.display, "all of it")
        assert "new to you" in seat.text("#since-line")
        assert "score 7" in seat.text(SinceList)


async def test_a_console_left_open_tells_who_comes_back_to_it(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "one")
    async with sit(builder.home, "r") as seat:
        watching = seat.app.watch_screen
        await seat.until(lambda: watching.since._was_read, "read")
        await seat.press("j")
        watching.since._shown_at -= 11 * crowded_home.MINUTE  # so long ago the last key was
        with builder.bulk():
            builder.whole("r", 2, "two", success=False)
        await seat.until(lambda: seat.transcript.steps == 2, "grown")
        await seat.press("j")
        await seat.until(lambda: "1 step" in seat.text("#since-line"), "the strip")
        assert "11 min ago" in seat.text("#since-line")
