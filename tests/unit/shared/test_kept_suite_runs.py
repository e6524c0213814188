"""Which of a home's results are held against each other, and what is counted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.suites.suite_results import write_run
from houston_shared.home import Home
from houston_shared.kept_suite_runs import (
    KeptRun,
    SuiteAttempt,
    SuiteRun,
    SuiteWorld,
    list_kept_runs,
    suite_outcomes,
    suites_folder,
)


def attempt(mark: str) -> SuiteAttempt:
    return SuiteAttempt(
        rollout="r", state="finished", score=100.0 * (mark == "1"), steps=3, failures=2,
        no_action=0,
    )  # fmt: skip


def run(policy: str, *worlds: str, at: str = "1", **fields: Any) -> SuiteRun:
    """worlds: by index, a `1` for each attempt that solved it, a `0` for each that did not."""
    played = tuple(
        SuiteWorld(index=index, attempts=tuple(map(attempt, tried)))
        for index, tried in enumerate(worlds)
    )
    given: dict[str, Any] = {
        "suite": "word-worlds", "version": 1, "split": "test", "engine": "e", "policy": policy,
        "started_at": at, "seconds": 1.0, "worlds": played,
    }  # fmt: skip
    return SuiteRun(**{**given, **fields})


def kept(*runs: SuiteRun) -> list[KeptRun]:
    return [KeptRun(f"word-worlds/{number}", each) for number, each in enumerate(runs)]


def test_before_and_after_are_the_newest_of_each_and_flips_are_counted() -> None:
    runs = kept(
        run("policy@2", "0", "0", "0", "0"),
        run("", "1", "0", "0", "0"),
        run("", "1", "1", "0", "0"),
        run("policy@2", "0", "1", "1", "1", at="2"),
    )
    (outcome,) = suite_outcomes(runs, "policy@2", ("",))
    assert outcome.before is not None
    assert (outcome.before.name, outcome.after.name) == ("word-worlds/2", "word-worlds/3")
    assert (outcome.before.solved, outcome.after.solved) == (0.5, 0.75)
    assert (outcome.gained, outcome.lost) == (2, 1)
    assert outcome.after.interval is not None
    assert outcome.after.interval.low < 0.75 < outcome.after.interval.high
    assert (outcome.after.score, outcome.after.failures) == (75.0, 2.0)


def test_several_attempts_have_a_mean_and_no_interval_of_ours() -> None:
    (outcome,) = suite_outcomes(kept(run("p@2", "11", "10")), "p@2", ())
    assert (outcome.after.solved, outcome.after.interval) == (0.75, None)


NOT_ALIKE = [
    pytest.param({"split": "validation"}, id="another split"),
    pytest.param({"suite": "word-errands"}, id="another suite"),
    pytest.param({"version": 2}, id="another version of the suite"),
    pytest.param({"temperature": 0.0}, id="another temperature"),
    pytest.param({"agent": "flow"}, id="another agent"),
    pytest.param({"purify": "on"}, id="purified"),
    pytest.param({"engine": "other"}, id="the own model of another engine"),
]


@pytest.mark.parametrize("fields", NOT_ALIKE)
def test_what_is_not_alike_is_not_held_against_each_other(fields: dict[str, Any]) -> None:
    runs = kept(run("", "0", **fields), run("policy@2", "1"))
    outcomes = suite_outcomes(runs, "policy@2", ("",))
    assert [outcome.before for outcome in outcomes] == [None]


def test_the_nearest_ancestor_that_was_evaluated_counts() -> None:
    runs = kept(run("", "0"), run("policy@2", "1", engine="other"), run("policy@3", "1"))
    (outcome,) = suite_outcomes(runs, "policy@3", ("policy@2", ""))
    assert outcome.before is not None
    assert outcome.before.policy == "policy@2", "a policy is the same on every engine"


def test_results_are_read_from_the_home_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = suites_folder(home) / "word-worlds"
    write_run(folder / "b.json", run("policy@2", "1", at="2"))
    write_run(folder / "a.json", run("", "0", at="1"))
    (folder / "notes.json").write_text("{}")
    assert [each.name for each in list_kept_runs(home)] == ["word-worlds/a", "word-worlds/b"]
    write_run(folder / "b.json", run("policy@2", "1", "1", at="2"))
    (newest,) = [each for each in list_kept_runs(home) if each.name == "word-worlds/b"]
    assert len(newest.run.worlds) == 2, "a file that was written again is read again"
    (folder / "b.json").write_bytes(msgspec.json.encode({"suite": "x"}))
    assert [each.name for each in list_kept_runs(home)] == ["word-worlds/a"]
