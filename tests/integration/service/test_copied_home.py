"""`cp -a` of a home that has rollouts under way, and a daemon on the copy: the first is left alone.

Both homes have the same rollouts, and the same folders on the host. What the copy must not do is
work in them, end what runs there, or free them; it says whose they are.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station
from tests.support.tiers import sampled

STEPS = 12
FIRST_GOES_ON = "the first goes on"
FIRST_WAS_KILLED = "the first was killed"


@pytest.fixture
def copy(station: Station, tmp_path: Path) -> Iterator[Station]:
    """A station for the copy, with the hosts' folder of the first, as of the same user."""
    made = Station(tmp_path / "copy")
    made.folder.mkdir()
    made.environment["HOUSTON__HOSTS__ROOT"] = str(station.host_root)
    yield made
    made.run("daemon", "stop", code=None)


def _working(station: Station) -> str:
    """A rollout that writes a line a step through a terminal, while no file `hold` is there."""
    held = "while [ -e hold ]; do sleep 0.1; done"
    lines: list[dict[str, Any]] = [
        {
            "thought": "",
            "calls": [
                {
                    "name": "run_command",
                    "arguments": {
                        "command": f"{held}; echo {n} >>lines.txt",
                        "session_id": "main",
                    },
                }
            ],
            "delay": 0.4,
        }
        for n in range(1, STEPS + 1)
    ]
    task = station.task(sandbox="none", budget=f"steps = {STEPS + 5}\ncommand_seconds = 600")
    (rollout,) = station.rollout(task, station.script(lines))
    station.until(lambda: station.closed(rollout) >= 3, why="it works")
    return rollout


@pytest.mark.parametrize("state", sampled([FIRST_GOES_ON, FIRST_WAS_KILLED], 1))
def test_a_copy_drives_no_workspace_of_the_first(
    state: str, station: Station, copy: Station
) -> None:
    station.start()
    rollout = _working(station)
    if state == FIRST_GOES_ON:
        station.stop()
    else:
        station.kill_daemon()
        pid = "houston_daemon.agent.rollout_worker"
        station.until(lambda: not _processes(rollout, pid), why="its worker has ended with it")
    shutil.copytree(station.home, copy.home, ignore=shutil.ignore_patterns("*.sock", "*.pipe"))
    lines = station.host_root / "rollouts" / rollout / "workspace" / "lines.txt"
    before, hold = lines.read_text(), lines.with_name("hold")
    if state == FIRST_GOES_ON:
        hold.touch()  # it goes on for as long as the copy is looked at
        station.start()
        station.until(lambda: _processes(rollout, "agent.rollout_worker"), why="the first works on")

    copy.start()
    copy.until(lambda: copy.state(rollout) == "paused", why="the copy does not go on")
    shown = copy.show(rollout)
    assert shown["paused_by"] == "host"
    assert f"used elsewhere: the home {station.home}" in shown["reason"]
    resumed = copy.run("rollout", "resume", rollout, code=None)
    assert resumed.returncode == 0 or str(station.home) in resumed.stderr
    copy.until(lambda: copy.state(rollout) == "paused", why="nor when it is resumed")
    copy.run("rollout", "cancel", rollout)
    copy.until(lambda: copy.state(rollout) == "cancelled", why="what is the copy's may be ended")
    copy.stop()
    assert lines.read_text() == before, "nothing was done in the workspace"
    hold.unlink(missing_ok=True)

    if state == FIRST_WAS_KILLED:
        assert _processes(rollout, "tmux"), "its terminals were not ended"
        station.start()
    assert station.ended(rollout)["state"] == "finished"
    assert lines.read_text().split() == [str(n) for n in range(1, STEPS + 1)]
    station.run("verify")


def _processes(rollout: str, word: str) -> list[int]:
    """Living processes that name the rollout and the word on their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if rollout in words and word in words:
                found.append(int(entry.name))
    return found
