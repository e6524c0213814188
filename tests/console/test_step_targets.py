"""Going through a trajectory: places that are typed, and the nearest step of each kind."""

import pytest

from houston_console.transcript import trajectory_reader
from houston_console.transcript.trajectory_reader import (
    StepTarget,
    parse_step_target,
)
from houston_console.transcript.transcript_layout import FoldState
from houston_shared import command
from houston_shared.command_arguments import format_permalink
from houston_shared.records import FileChange
from houston_shared.store.store_reader import Reader
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder

NOW = 10_000 * 1_000_000
MINUTE = 60_000_000
PLACES = {
    "1234": StepTarget("step", 1234),
    "+5": StepTarget("step", 45),
    "-5": StepTarget("step", 35),
    "-99": StepTarget("step", 0),
    "03:15": StepTarget("active", 195 * MINUTE),
    "100:00:30": StepTarget("active", 6000 * MINUTE + MINUTE // 2),
    "-2h": StepTarget("ended", NOW - 120 * MINUTE),
    "-90s": StepTarget("ended", NOW - 3 * MINUTE // 2),
    "r-7f3a@12": StepTarget("link", 12, "r-7f3a"),
    "7f3a@1": StepTarget("link", 1, "7f3a"),
    "3:75": None,
    "2h": None,
    "@7": None,
    "word": None,
}


@pytest.mark.parametrize("text", PLACES)
def test_a_place_is_what_was_typed(text: str) -> None:
    assert parse_step_target(f" {text} ", 40, NOW) == PLACES[text]


def test_a_permalink_leads_to_its_own_step() -> None:
    assert parse_step_target(format_permalink("r-7f3a", 12), 1, NOW) == StepTarget(
        "link", 12, "r-7f3a"
    )


def _walked(builder: HomeBuilder) -> None:
    change = FileChange(path="a.py", kind="changed", added=1, removed=0)
    with builder.bulk():
        builder.start("r")
        for step in range(1, 41):
            if step in (5, 30):
                builder.scored("r", step, "try", {5: 50.0, 30: 20.0}[step])
            elif step == 20:
                builder.fork_before("r", 20, 10, "so far")
                builder.say("r", "g", "look at the log")
                builder.whole("r", step, "a", (("edit_file", {}), ("run_command", {})),
                              files=(change,))  # fmt: skip
            elif step == 12:
                builder.whole("r", step, "b", success=False, attention=("error",))
            elif step == 14:
                builder.whole("r", step, "b", (("sleep", {}),), attention=("long_sleep",))
            elif step == 16:
                builder.whole("r", step, "nothing to call", ())
            else:
                builder.whole("r", step, "work", (("edit_file" if step == 33 else "ls", {}),))
        builder.judged("r", 8, 9, "mask")
        builder.marked("r", 7, "ada")
        builder.marked("r", 25, "ben", "a turn")


FROM_HERE = {
    ("error", 1): 12, ("error", -40): 12, ("guidance", 1): 20, ("attention", 1): 14,
    ("attention", -14): None, ("file", 1): 20, ("evaluation", 5): 30, ("evaluation", -30): 5,
    ("drop", 1): 30, ("drop", -29): None, ("fork", 1): 20, ("bookmark", 1): 7,
    ("bookmark", 7): 25, ("verdict", 8): 9, ("verdict", -40): 9, ("tool", 20): 33,
    ("tool", -33): 20, ("tool", 16): None,
}  # fmt: skip
"""From a step on, or back where it is negative."""


def test_jumps_of_every_kind_go_to_the_nearest_step(builder: HomeBuilder) -> None:
    _walked(builder)
    assert {kind for kind, _ in FROM_HERE} == set(trajectory_reader.STEP_KINDS)
    with Reader(builder.home) as reader:
        for (kind, start), wanted in FROM_HERE.items():
            tools = reader.run(trajectory_reader.read_step_tools("r", abs(start)))
            step = reader.run(
                trajectory_reader.find_nearest_step("r", abs(start), kind, start > 0, tools)
            )
            assert step == wanted, (kind, start)
        assert (
            reader.run(trajectory_reader.find_step_at_time("r", "active", 10 * MINUTE)) == 20
        )  # half a minute each
        assert (
            reader.run(trajectory_reader.find_step_at_time("r", "active", 10_000 * MINUTE)) is None
        )
        assert reader.run(trajectory_reader.find_step_at_time("r", "ended", 1)) == 1


async def test_a_console_opens_at_the_step_that_is_named(builder: HomeBuilder, sit: Sit) -> None:
    _walked(builder)
    async with sit(builder.home, "r@12") as seat:
        await seat.until(lambda: seat.transcript.cursor == 12, "it is there")
        await seat.press("down")
        assert seat.transcript.cursor == 13, "keys go to the steps"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        pytest.param("r@99", "r has no step 99; its last is 40.", id="later than the last"),
        pytest.param("r@3-7", "Name one step", id="several"),
        pytest.param("r@x", "is not a step such as 7", id="no number"),
        pytest.param("q@3", "q", id="no such rollout"),
    ],
)
def test_a_place_that_is_not_there_opens_nothing(
    builder: HomeBuilder, place: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _walked(builder)
    assert command.main(["console", place, "--home", str(builder.home.path)]) != 0
    assert words in capsys.readouterr().err


def test_a_branch_is_walked_through_the_past_that_it_shares(builder: HomeBuilder) -> None:
    _walked(builder)
    builder.connection.execute(
        "INSERT INTO rollouts SELECT 'twig', task, state, '', '', '', engine, policy, '', 'r', 25,"
        " 0, sandbox, spec_seq, head_seq, NULL, 0, 1, 25, 0, 0, NULL, NULL, 0, '', created_at,"
        " updated_at, last_seq, '', '{}' FROM rollouts WHERE id = 'r'"
    )
    builder.whole("twig", 26, "another way", success=False)
    builder.marked("twig", 3, "ada")
    with Reader(builder.home) as reader:
        assert reader.run(trajectory_reader.find_nearest_step("twig", 13, "error", True)) == 26
        assert reader.run(trajectory_reader.find_nearest_step("twig", 26, "error", False)) == 12
        assert reader.run(trajectory_reader.find_nearest_step("twig", 1, "bookmark", True)) == 3
        assert (
            reader.run(trajectory_reader.find_nearest_step("twig", 5, "evaluation", True)) is None
        )  # not the parent's 30
        rows = {
            row.step: row for row in reader.run(trajectory_reader.read_step_rows("twig", 1, 26))
        }
    assert (rows[3].has_bookmark, rows[7].has_bookmark, rows[9].verdict) == (1, 1, "human0")


def test_a_verdict_on_a_range_touches_every_step_of_it(builder: HomeBuilder) -> None:
    _walked(builder)
    before = builder.seq
    builder.judged("r", 3, 6, "keep")
    with Reader(builder.home) as reader:
        assert reader.run(trajectory_reader.read_changes("r", before)).touched == [3, 4, 5, 6]


def test_rows_that_are_not_shown_have_no_line_and_are_passed_over() -> None:
    folds = FoldState(101)
    folds.show_only({10, 50, 90})
    assert folds.total == 3
    assert [folds.at(line)[0] for line in range(3)] == [10, 50, 90]
    assert list(folds.between(0, 2)) == [10, 50]
    assert [folds.nearest_shown(row) for row in (11, 95)] == [50, 90]
    assert [folds.nearest_shown(row, -1) for row in (49, 0)] == [10, 10]
    folds.set_open(50, True)
    assert (folds.set_height(50, 7), folds.set_height(51, 7), folds.total) == (6, 0, 9)
    folds.grow(120)
    assert folds.total == 9
    folds.show_only(None)
    assert folds.total == 120
