"""Stages: what is done is done once, what was begun is found again, what failed begins anew."""

from pathlib import Path

import pytest

from houston_daemon.experiments.experiment_home import StageInvalid
from houston_daemon.experiments.experiment_run import StageProgress, StageStore


def test_a_stage_is_done_once(tmp_path: Path) -> None:
    calls: list[str] = []

    def what(begun: StageProgress) -> dict[str, object]:
        calls.append("done")
        return {"value": 3}

    lines: list[str] = []
    first = StageStore(tmp_path, lines.append).run_stage("one", what)
    again = StageStore(tmp_path, lines.append).run_stage("one", what)
    assert calls == ["done"]
    assert first == again
    assert first["value"] == 3
    assert lines[0] == "one …"
    assert len(lines) == 2


def test_what_a_killed_stage_began_is_found_again(tmp_path: Path) -> None:
    names: list[str] = []

    def make(name: str) -> str:
        names.append(name)
        return name.upper()

    def killed(begun: StageProgress) -> dict[str, object]:
        begun.get("a", lambda: make("a"))
        raise KeyboardInterrupt

    def whole(begun: StageProgress) -> dict[str, object]:
        return {name: begun.get(name, lambda n=name: make(n)) for name in "ab"}

    stages = StageStore(tmp_path, lambda line: None)
    with pytest.raises(KeyboardInterrupt):
        stages.run_stage("one", killed)
    result = stages.run_stage("one", whole)
    assert names == ["a", "b"]
    assert (result["a"], result["b"]) == ("A", "B")


def test_rollouts_that_failed_are_no_measurement_and_are_begun_anew(tmp_path: Path) -> None:
    names: list[str] = []

    def failing(begun: StageProgress) -> dict[str, object]:
        begun.get("a", lambda: names.append("a"))
        raise StageInvalid(1, 4, "r-1", "the engine refused")

    stages = StageStore(tmp_path, lambda line: None)
    for _ in range(2):
        with pytest.raises(StageInvalid, match="1 of 4 rollouts do not count, r-1 because"):
            stages.run_stage("one", failing)
    assert names == ["a", "a"]
    assert stages.result("one") is None


def test_times_are_told_in_the_order_of_the_stages(tmp_path: Path) -> None:
    stages = StageStore(tmp_path, lambda line: None)
    for name in ("sample", "judge", "measure-base-1"):
        stages.run_stage(name, lambda begun: {})
    stages.kept_value("ports", lambda: {"guided": 1})
    assert list(stages.seconds()) == ["sample", "judge", "measure-base-1"]
    assert stages.kept_value("ports", lambda: {"guided": 2}) == {"guided": 1}
