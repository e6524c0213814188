"""The log of a simulated world stays whole when the disk does not take a turn."""

import resource
from pathlib import Path

import pytest

from houston_daemon.environments.simulation.simulated_world import (
    ActionLog,
    LogDamaged,
    Turn,
    WorldSettings,
)


def turn(call: str) -> Turn:
    return Turn(call=call, action="look around", hash="0" * 24)


def test_a_turn_that_was_written_in_part_does_not_spoil_the_next(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "world.jsonl")
    log.begin(WorldSettings(settings={"task": "boil"}, hash="1" * 24))
    log.add(turn("1.0"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (tmp_path / "world.jsonl").stat().st_size + 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # as a disk with ten bytes left
    try:
        with pytest.raises(OSError, match="File too large"):
            log.add(turn("2.0"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.add(turn("3.0"))
    found = ActionLog(tmp_path / "world.jsonl")
    found.load()
    assert [one.call for one in found.turns] == [one.call for one in log.turns] == ["1.0", "3.0"]


def test_a_log_with_a_flipped_bit_is_called_damaged(tmp_path: Path) -> None:
    """Some flips make bytes that are no text, which msgspec says in other words."""
    file = tmp_path / "world.jsonl"
    log = ActionLog(file)
    log.begin(WorldSettings(settings={"task": "boil"}, hash="1" * 24))
    log.add(turn("1.0"))
    file.write_bytes(file.read_bytes().replace(b"look", b"\xecook"))
    with pytest.raises(LogDamaged):
        ActionLog(file).load()
