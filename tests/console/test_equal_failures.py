"""Equal failures on one line: found step by step, unfolded by a key, and judged as they are named.

Also the gutter, which is counted from the same index.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_console.transcript.rollout_gutter import RolloutGutter, gutter_marks, part_bounds
from houston_console.transcript.step_index import (
    FIRST_INDEX_STEPS,
    INDEX_STEPS,
    IndexRow,
    Run,
    StepIndex,
    read_failed_results,
    read_index_rows,
)
from houston_console.transcript.transcript_layout import MANY_ROWS, FoldState
from houston_shared import wire
from houston_shared.records import FileChange
from houston_shared.store import annotation_queries
from houston_shared.store.store_reader import Reader
from tests.console.conftest import SMALL, LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder

# --- which steps stand on one line, without an app -----------------------------------------------


def _index_row(step: int, errors: int = 1, **given: Any) -> IndexRow:
    fields = {"attempt": 1, "last_seq": step, "is_open": 0, "guided": 0, "score": None,
              "tools": "run_command", "stands_alone": 0}  # fmt: skip
    return IndexRow(step=step, errors=errors, **{**fields, **given})


def _plain_runs(kinds: list[int]) -> list[Run]:
    runs, at = [], 1
    for kind, group in itertools.groupby(kinds):
        count = len(list(group))
        if kind and count > 1:
            runs.append((at, at + count - 1))
        at += count
    return runs


kinds_of_steps = st.lists(st.sampled_from([0, 1, 1, 1, 2]), min_size=1, max_size=40)


@given(kinds_of_steps, st.lists(st.integers(1, 40), max_size=8))
def test_runs_are_those_that_plain_grouping_finds_in_whatever_order_steps_are_read(
    kinds: list[int], looked_at: list[int]
) -> None:
    index = StepIndex()
    keys: dict[int, bytes | None] = {at: bytes([kind]) for at, kind in enumerate(kinds, 1) if kind}
    index.put([_index_row(at) for at in keys], 1, len(kinds))
    index.put_keys(keys)
    for step in [*looked_at, *range(len(kinds), 0, -3), *range(1, len(kinds) + 1)]:
        if step <= len(kinds):
            index.find_runs(step, min(len(kinds), step + 2))
    assert index.runs == _plain_runs(kinds)
    for first, last in index.runs:
        assert index.equal_range((first + last) // 2) == (first, last)


ALONE: dict[str, dict[str, Any]] = {
    "heard guidance": {"guided": 1},
    "was scored": {"score": 3.0},
    "changed a file or began a context": {"stands_alone": 1},
    "is open": {"is_open": 1},
    "did not fail": {"errors": 0},
}


@pytest.mark.parametrize("what", ALONE)
def test_a_step_of_which_more_is_to_be_said_has_a_line_of_its_own(what: str) -> None:
    index = StepIndex()
    rows = [_index_row(step, **(ALONE[what] if step == 3 else {})) for step in range(1, 6)]
    unread = index.unread_keys(index.put([row for row in rows if row.errors], 1, 5))
    assert unread == [1, 2, 4, 5]
    index.put_keys(dict.fromkeys(unread, b"k"))
    index.find_runs(1, 5)
    assert index.runs == [(1, 2), (4, 5)]


def test_only_failures_beside_a_failure_of_the_same_action_are_read() -> None:
    index = StepIndex()
    python: dict[str, Any] = {"tools": "python"}
    rows = [_index_row(1), _index_row(3), _index_row(4, **python), _index_row(5, **python)]
    assert index.put(rows, 1, 5) == [1, 3, 4, 5]
    assert index.unread_keys([1, 3, 4, 5]) == [4, 5]
    index.put_keys({4: b"k", 5: b"k"})
    assert index.put([_index_row(5, **python), _index_row(6, **python)], 5, 6) == [6]
    assert index.unread_keys([6]) == [6]


def test_a_step_that_is_tried_again_and_goes_well_is_no_failure_any_more() -> None:
    index = StepIndex()
    index.put([_index_row(step) for step in range(1, 6)], 1, 5)
    index.put_keys(dict.fromkeys(range(1, 6), b"k"))
    index.find_runs(1, 5)
    assert (index.runs, index.failed.count(1)) == ([(1, 5)], 5)
    assert index.put([], 3, 3) == [3]
    index.find_runs(3, 3)
    assert (index.runs, index.failed.count(1)) == ([(1, 2), (4, 5)], 4)


def test_a_run_is_one_line_until_it_is_unfolded() -> None:
    folds = FoldState(21)
    folds.set_runs([(5, 14)])
    assert (folds.total, folds.extent(9), folds.extent(15)) == (12, (5, 14), (15, 15))
    assert [folds.at(line)[0] for line in (4, 5, 6)] == [4, 5, 15]
    assert list(folds.between(4, 3)) == [4, 5, 15]
    assert (folds.nearest_shown(9, 1), folds.nearest_shown(9, -1)) == (15, 5)
    folds.set_runs([(5, 16)])  # it grew
    assert folds.total == 10
    assert folds.unfold_run(5)
    assert (folds.total, folds.extent(9)) == (21, (9, 9))
    folds.set_open(9, True)
    folds.set_height(9, 4)
    assert folds.fold_run(12) == 5
    assert (folds.total, folds.is_open(9)) == (10, False)
    folds.show_only({9, 18})
    assert (folds.total, folds.extent(9)) == (2, (9, 9))
    folds.show_only(None)
    folds.set_all(True)
    assert (folds.total, folds.run_at(5)) == (21, None)
    folds.set_all(False)
    assert folds.total == 10


@given(st.lists(st.lists(st.integers(1, 60), unique=True, max_size=8).map(sorted), max_size=6),
       st.booleans())  # fmt: skip
def test_heights_follow_whatever_runs_become(cuts: list[list[int]], many: bool) -> None:
    factor = MANY_ROWS if many else 1
    folds = FoldState(60 * factor + 1)
    for ends in cuts:
        runs = [(a * factor, b * factor) for a, b in zip(ends[::2], ends[1::2], strict=False)]
        folds.set_runs(runs)
        hidden = sum(last - first for first, last in runs)
        assert folds.total == 60 * factor + 1 - hidden
        assert all(folds.height(first) == 1 and folds.height(last) == 0 for first, last in runs)


# --- at a console --------------------------------------------------------------------------------


TYPO = (("run_command", {"command": "python3 src/trian.py"}),)
FAILED: dict[str, Any] = {
    "texts": ("No such file",),
    "success": False,
    "result": {"fields": {"exit_code": 2}},
}


def _fail(builder: HomeBuilder, step: int, **given: Any) -> None:
    builder.whole("r", step, f"thought {step}", TYPO, **{**FAILED, **given})


def _stuck(builder: HomeBuilder) -> None:
    """120 steps; 21 to 80 fail equally."""
    with builder.bulk():
        builder.start("r")
        for step in range(1, 121):
            if 21 <= step <= 80:
                _fail(builder, step)
            else:
                builder.whole("r", step, f"thought {step}", success=step != 100)


def _numbers(seat: Seat) -> list[str]:
    """The steps that lines begin with."""
    return [row.split()[1] for row in seat.lines() if len(row.split()) > 1]


async def test_equal_failures_are_one_line_and_a_key_unfolds_and_folds_them(
    builder: HomeBuilder, sit: Sit
) -> None:
    _stuck(builder)
    async with sit(builder.home) as seat:
        await seat.press("colon", "2", "1", "enter")
        assert seat.transcript.folds.run_at(21) is None, "a step that is named is shown itself"
        await seat.press("left")
        assert seat.transcript.line_count() == 121 - 59
        (row,) = (row for row in seat.lines() if "21–80" in row)
        assert row.split()[:4] == ["≡", "21–80", "✗", "run_command"]
        assert row.rstrip().endswith("exit 2  ×60")
        assert "steps 21–80 of 120" in seat.frame("#trajectory")
        await seat.press("j")
        assert seat.transcript.cursor == 81
        await seat.press("k", "k")
        assert seat.transcript.cursor == 20
        await seat.press("j", "enter")
        assert _numbers(seat)[-1:] != ["81"]
        assert "steps" not in seat.frame("#trajectory") and seat.transcript.line_count() == 121
        await seat.press("j", "enter")
        assert "→ run_command" in seat.text() and seat.transcript.cursor == 22
        await seat.press("h")  # first the step, then its equals
        assert seat.transcript.line_count() == 121
        await seat.press("h")
        assert (seat.transcript.cursor, seat.transcript.line_count()) == (21, 62)
        await seat.press("right", "z", "z")
        assert seat.transcript.line_count() == 62, "all are folded: these too"


JUMPS = {
    "to a step by its number": (["colon", "5", "0", "enter"], 50, True),
    "to a part of the rollout": (["colon", "5", "0", "percent_sign", "enter"], 60, True),
    "to the next error from before": (["g", "e"], 21, False),
    "to the next error from the line": (["g", "e", "e"], 100, False),
    "to the error before, from behind": (["E", "E"], 21, False),
    "past the line to the error before": (["g", "e", "e", "E"], 21, False),
    "to the next with the same action": (["colon", "1", "enter", "o"], 2, False),
    "to a bookmark": (["g", "b"], 40, True),
    "to a verdict": (["g", "full_stop"], 30, True),
    "to a hit": (["slash", *"77", "enter"], 77, True),
}


async def test_jumps_land_on_the_step_or_on_the_line_of_its_equals(
    builder: HomeBuilder, sit: Sit
) -> None:
    _stuck(builder)
    builder.marked("r", 40, "ada")
    builder.judged("r", 30, 31, "mask")
    async with sit(builder.home) as seat:
        for what, (keys, step, unfolds) in JUMPS.items():
            await seat.press("z", "z", "f")  # all are folded, and it follows
            assert seat.transcript.cursor == 120 and seat.transcript.folds.run_at(50), what
            await seat.press(*keys)
            await seat.until(lambda: seat.transcript.cursor == step, what)  # noqa: B023
            await seat.transcript.settle()
            assert (seat.transcript.folds.run_at(50) is None) is unfolds, what
            assert any(number == str(step) or number.startswith(f"{step}–")
                       for number in _numbers(seat)), what  # fmt: skip


async def test_a_rollout_that_goes_on_failing_adds_to_the_line_and_reads_only_what_is_new(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stuck(builder)
    asked: list[int] = []

    def rows(rollout: str, first: int, last: int) -> Any:
        asked.append(first)
        return read_index_rows(rollout, first, last)

    def results(rollout: str, steps: list[int]) -> Any:
        asked.extend(steps)
        return read_failed_results(rollout, steps)

    module = "houston_console.transcript.step_index"
    monkeypatch.setattr(f"{module}.read_index_rows", rows)
    monkeypatch.setattr(f"{module}.read_failed_results", results)
    async with sit(builder.home) as seat:
        asked.clear()
        for step in range(121, 124):
            _fail(builder, step)
            await seat.until(lambda: seat.transcript.steps == step, "the step")  # noqa: B023
        await seat.until(lambda: "121–123" in seat.text() and "×3" in seat.text(), "one line")
        assert seat.transcript.following
        assert seat.transcript.cursor == 121
        frame = "steps 121–123 of 123"
        await seat.until(lambda: frame in seat.frame("#trajectory"), "the frame")
        assert min(asked) == 121, "nothing that was read before"
        builder.whole("r", 124, "something else")
        await seat.until(lambda: "something else" in seat.text(), "its own line")
        assert "×3" in seat.text()


async def test_what_is_looked_at_keeps_its_line_while_equal_failures_come(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    for step in (1, 2):
        _fail(builder, step)
    builder.whole("r", 3, "looks")
    _fail(builder, 4)
    builder.whole("r", 5, "looks again")
    async with sit(builder.home) as seat:
        await seat.press("k")
        assert (seat.transcript.cursor, seat.transcript.following) == (4, False)
        builder.connection.execute("DELETE FROM steps WHERE step = 5")  # a repair took it
        _fail(builder, 6)
        _fail(builder, 7)
        await seat.until(lambda: "6–7" in seat.text(), "these are one line")
        assert seat.transcript.cursor == 4
        assert "1–2" in seat.text()


async def test_a_filter_that_ends_leaves_the_cursor_on_the_line_of_its_step(
    builder: HomeBuilder, sit: Sit
) -> None:
    _stuck(builder)
    async with sit(builder.home) as seat:
        await seat.press("slash", *"trian", "enter")
        await seat.until(lambda: seat.transcript.hits, "hits")
        await seat.press("ampersand", "g", "down", "down")
        assert seat.transcript.cursor == 23, "each hit has a line"
        await seat.press("ampersand", "left", "left")
        assert seat.transcript.cursor == 21
        await seat.press("ampersand", "g", "down", "down", "ampersand")
        assert seat.transcript.cursor == 21


BREAKS: dict[str, Callable[[HomeBuilder], None]] = {
    "guidance": lambda b: b.say("r", "g", "look"),
    "a new context": lambda b: b.fork_before("r", 4, 2, "so far"),
}


@pytest.mark.parametrize("what", [*BREAKS, "a changed file"])
async def test_a_line_hides_no_step_of_which_more_is_to_be_said(
    builder: HomeBuilder, sit: Sit, what: str
) -> None:
    change = FileChange(path="a.py", kind="changed", added=1, removed=0)
    builder.start("r")
    for step in range(1, 7):
        files = (change,) if what == "a changed file" and step == 4 else ()
        if step == 4 and what in BREAKS:
            BREAKS[what](builder)
        _fail(builder, step, files=files)
    async with sit(builder.home) as seat:
        assert _numbers(seat)[1:] == ["1–3", "4", "5–6"]


async def test_a_long_rollout_is_read_from_its_end_and_its_lines_are_joined(
    builder: HomeBuilder, sit: Sit
) -> None:
    """Equal failures that reach over every part that is read."""
    steps = FIRST_INDEX_STEPS + INDEX_STEPS + 100
    with builder.bulk():
        builder.start("r")
        for step in range(1, steps + 1):
            if step <= 10 or step > steps - 5:
                builder.whole("r", step, f"thought {step}")
            else:
                _fail(builder, step)
    async with sit(builder.home, size=SMALL) as seat:
        whole = f"11–{steps - 5}"
        await seat.until(lambda: whole in seat.text(), "one line")
        assert "thought 10" in seat.text() and f"thought {steps}" in seat.text()
        assert seat.transcript.line_count() == 1 + 10 + 1 + 5


# --- judging -------------------------------------------------------------------------------------


def _live_failure(worker: Any, step: int) -> None:
    fields = {"success": False, "text": "No such file", "fields": {"exit_code": 2}}
    acks = worker.sample(step), worker.intent(step), worker.result(step, **fields)
    assert all(isinstance(ack, wire.Ack) for ack in (*acks, worker.observation(step)))


def _verdicts(live: LiveStation, rollout: str) -> dict[int, str]:
    with Reader(live.home) as reader:
        found = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
    return {step: rows[0].verdict for step, rows in found.items()}


async def test_what_is_masked_is_what_the_line_names(live: LiveStation, sit: Sit) -> None:
    worker = live.working()
    worker.step(1)
    for step in range(2, 8):
        _live_failure(worker, step)
    worker.step(8)
    rollout = worker.rollout

    async def judged(steps: range | tuple[int, ...], verdict: str = "mask") -> None:
        wanted = dict.fromkeys(steps, verdict)
        await seat.until(lambda: _verdicts(live, rollout) == wanted, f"{wanted}")

    async with sit(live.home, rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        await seat.press("k")
        assert "2–7" in seat.text()
        await seat.press("M")
        await judged(range(2, 8))
        await seat.until(lambda: "Masked steps 2 to 7" in seat.offered(), "it says which")
        await seat.until(lambda: "∅h" in seat.lines()[2], "all of them are")
        await seat.press("Z")
        await judged(())
        await seat.until(lambda: "∅" not in seat.lines()[2], "none is")
        await seat.press("V", "k")  # the step before, and the line
        assert "▌ 1–7 chosen" in seat.frame("#trajectory")
        await seat.press("M")
        await judged(range(1, 8))
        await seat.press("Z")
        await judged(())
        await seat.press("j", "enter", "j", "M")  # one of them, unfolded
        await judged((3,))
        await seat.press("h")
        await seat.until(lambda: "∅ 1 of 6" in seat.lines()[2], "how many are")
        _live_failure(worker, 9)  # another rollout's pace changes nothing here
        await seat.press("j", "V", "k")
        assert "▌ 2–8 chosen" in seat.frame("#trajectory")
        await seat.press("K")
        await judged(range(2, 9), "keep")
        await seat.until(lambda: "✓h" in seat.lines()[2], "all are kept")


async def test_notes_and_bookmarks_show_on_the_line(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    for step in range(1, 6):
        _fail(builder, step)
    builder.marked("r", 3, "ada")
    async with sit(builder.home) as seat:
        await seat.until(lambda: "⚑" in seat.lines()[1], "a bookmark")
        builder.marked("r", 4, "ada", "here it is stuck")
        await seat.until(lambda: "¶" in seat.lines()[1], "a note")


# --- the gutter ----------------------------------------------------------------------------------


def _gutter_index() -> StepIndex:
    """1,000 steps in ten parts."""
    index = StepIndex()
    rows = [_index_row(step, 0) for step in range(1, 1_001)]

    def at(step: int, **given: Any) -> None:
        rows[step - 1] = rows[step - 1]._replace(**given)

    at(50, errors=1)  # part 0: one failure
    for step in range(101, 121):
        at(step, errors=1)  # part 1: a fifth
    for step in range(201, 261):
        at(step, errors=1)  # part 2: most
    at(350, score=40.0)  # part 3: the first score
    at(450, score=39.0)  # part 4: a lower one
    at(550, score=39.0)
    for step in range(501, 560):
        at(step, errors=1)  # part 5: most failed, and a lower score
    at(650, score=41.0, errors=1)  # part 6: the best
    at(750, guided=1, score=50.0, errors=1)  # part 7: guidance before all else
    for step in (*range(801, 860), *range(901, 921)):
        at(step, errors=1)
    at(870, score=60.0)  # part 8: most failed, which matters more than the best score
    at(970, score=55.0)  # part 9: a fifth failed, which matters more than a lower one
    index.put([row for row in rows if row.errors or row.guided or row.score], 1, 1_000)
    return index


def test_a_part_of_the_rollout_shows_what_matters_most_in_it() -> None:
    marks = gutter_marks(_gutter_index(), 1_000, 10)
    assert [mark.glyph for mark in marks] == ["·", "▪", "█", "★", "☆", "█", "★", "✎", "█", "▪"]


@given(st.integers(0, 12_000), st.integers(0, 80))
def test_every_step_is_in_one_part_and_parts_are_alike(steps: int, parts: int) -> None:
    bounds = part_bounds(steps, parts)
    sizes = [end - first for first, end in itertools.pairwise(bounds)]
    assert sum(sizes) == (steps if parts else 0)
    assert len(sizes) == min(steps, parts)
    assert not sizes or max(sizes) - min(sizes) <= 1


async def test_a_click_in_the_gutter_goes_there_and_percents_do_the_same(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        for step in range(1, 2_001):
            if step == 1_000:
                builder.say("r", "g", "look at the log")
            builder.whole("r", step, f"thought {step}", success=step % 7 != 0)
    async with sit(builder.home, size=SMALL) as seat:
        gutter = seat.app.query_one(RolloutGutter)
        height = gutter.size.height
        await seat.until(lambda: "✎" in seat.text(RolloutGutter), "all of it was read")
        rows = seat.lines(RolloutGutter)
        assert len([row for row in rows if "✎" in row]) == 1
        assert "┃" in rows[height - 1] and not any("┃" in row for row in rows[:-2])
        guided = next(at for at, row in enumerate(rows) if "✎" in row)
        await seat.pilot.click(RolloutGutter, offset=(0, guided))
        await seat.press()
        assert seat.transcript.cursor == 1_000
        assert "thought 1000" in seat.text()
        assert "┃" in seat.lines(RolloutGutter)[guided]
        assert "┃" not in seat.lines(RolloutGutter)[height - 1]
        await seat.press("colon", "2", "5", "percent_sign", "enter")
        assert seat.transcript.cursor == 500
        builder.say("r", "g2", "and at the other one")
        builder.whole("r", 2_001, "hears it")
        await seat.until(lambda: seat.text(RolloutGutter).count("✎") == 2, "what is new")


async def test_a_click_in_an_unfolded_transcript_stands_on_its_step(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    for step in range(1, 6):
        builder.whole("r", step, f"thought {step}")
    async with sit(builder.home) as seat:
        await seat.press("g", "j", "enter")
        at = next(y for y, row in enumerate(seat.lines()) if "thought 4" in row)
        await seat.pilot.click("#transcript", offset=(20, at))
        assert seat.transcript.cursor == 4
