"""The log of a simulated world that a branch takes over: read only, and never silently missing."""

from pathlib import Path

import pytest

from houston_daemon.environments.simulation.simulated_world import (
    ActionLog,
    LogDamaged,
    Turn,
    WorldSettings,
)


def test_a_parent_in_the_middle_of_a_write_is_only_read(tmp_path: Path) -> None:
    parent = tmp_path / "parent.jsonl"
    log = ActionLog(parent)
    log.begin(WorldSettings(settings={"task": "boil"}, hash="1" * 24))
    for step in (1, 2):
        log.add(Turn(call=f"{step}.0", action="look", hash="0" * 24))
    with parent.open("ab") as file:
        file.write(b'{"call": "3.0", "act')
    before = parent.read_bytes()
    branch = ActionLog(tmp_path / "branch.jsonl")
    branch.branch(parent, 1, {"own": True})
    assert parent.read_bytes() == before
    branch.load()
    assert branch.beginning is not None
    assert branch.beginning.settings == {"task": "boil", "own": True}
    assert [turn.call for turn in branch.turns] == ["1.0"]


def test_a_parent_whose_log_is_gone_is_no_empty_world(tmp_path: Path) -> None:
    with pytest.raises(LogDamaged, match="no longer there"):
        ActionLog(tmp_path / "branch.jsonl").branch(tmp_path / "gone.jsonl", 1, {})
