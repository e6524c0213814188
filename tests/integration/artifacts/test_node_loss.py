"""A node is lost: daemon, home and host root. Another goes on from the store, by the command."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import s3_server
from tests.support.s3_server import Line
from tests.support.station import Station, told


def steps(count: int) -> list[dict[str, Any]]:
    return [
        {
            "thought": f"Line {number}.",
            "calls": [
                {"name": "run_command", "arguments": {"command": f"echo {number} >> lines.txt"}}
            ],
            "delay": 0.1,
        }
        for number in range(1, count + 1)
    ]


def node(folder: Path, url: str, line: Line) -> Station:
    """A machine with Houston, whose daemon copies into the store."""
    folder.mkdir()
    station = Station(folder)
    station.environment |= {
        **s3_server.environment(line),
        "HOUSTON__ARTIFACTS__URL": url,
        "HOUSTON__ARTIFACTS__EVERY_SECONDS": "0.2",
    }
    return station


def copied(station: Station) -> int:
    """The last event that the store has."""
    try:
        return int(json.loads((station.home / "artifacts.json").read_text())["seq"])
    except (OSError, json.JSONDecodeError):
        return 0


def newest(station: Station) -> int:
    return int(station.query("SELECT max(seq) FROM events")[0][0])


def lose(station: Station) -> None:
    """The whole machine is gone, with all that ran there."""
    station.kill_daemon()
    root = str(station.folder)
    for entry in Path("/proc").glob("[0-9]*"):
        ours = root in told(entry, "cmdline") or root in told(entry, "environ")
        if ours and int(entry.name) != os.getpid():
            os.kill(int(entry.name), signal.SIGKILL)
    shutil.rmtree(station.home)
    shutil.rmtree(station.host_root)


@pytest.fixture
def nodes(tmp_path: Path, url: str, line: Line) -> Iterator[tuple[Station, Station]]:
    here, there = node(tmp_path / "here", url, line), node(tmp_path / "there", url, line)
    yield here, there
    here.clear()
    there.clear()


def test_a_rollout_goes_on_elsewhere_from_its_snapshot(
    nodes: tuple[Station, Station], url: str, tmp_path: Path
) -> None:
    here, there = nodes
    task = here.task(sandbox="none")
    engine = here.script(steps(200))
    short = here.script(steps(3), name="short")
    here.start()
    (ended,) = here.rollout(task, short)
    here.ended(ended)
    (rollout,) = here.rollout(task, engine)
    here.until(lambda: here.closed(rollout) >= 8)
    seq = newest(here)
    here.until(lambda: copied(here) >= seq, why="what was stored is copied")
    assert "event" in next(
        row for row in here.run("daemon", "status").stdout.splitlines() if "artifacts" in row
    )
    lose(here)

    done = there.run("backup", "--restore", url, "--take-over")
    assert "next: houston daemon start" in done.stdout
    assert f"{rollout}: paused by restore" in done.stderr
    assert there.run("verify").stdout.startswith("Sound")
    before = there.closed(rollout)
    assert before >= 8, "nothing that was copied is lost"
    assert f"comes from {url}" in there.show(rollout)["reason"]

    there.start()
    there.run("rollout", "resume", rollout)
    there.until(lambda: there.closed(rollout) >= before + 3, why="it goes on")
    there.run("rollout", "cancel", rollout)
    into = tmp_path / "workspace"
    there.run("rollout", "restore", f"{rollout}@{before + 3}", "--out", str(into))
    numbers = (into / "lines.txt").read_text().split()
    told_agent = there.steps(rollout)[before]["observation"]
    expected = [str(number) for number in range(1, before + 4)]
    lost = [number for number in expected if number not in numbers]
    assert numbers == [number for number in expected if number not in lost], "no call runs twice"
    assert lost in ([], [str(before + 1)]), "only what the open step had done"
    assert f"is as it was after step {before}, and what was done to files since" in told_agent

    past = tmp_path / "past"
    there.run("rollout", "restore", f"{ended}@2", "--out", str(past))
    assert (past / "lines.txt").read_text().split() == ["1", "2"], "fetched for the command"
    (branch,) = there.json("rollout", "branch", ended, "--at", "2")
    there.ended(branch["rollout"])
    seq = newest(there)
    there.until(lambda: copied(there) >= seq, why="the new home copies")
    there.stop()
    assert there.run("verify").stdout.startswith("Sound")


def test_a_store_that_refuses_is_said_and_holds_nobody_up(
    nodes: tuple[Station, Station], line: Line
) -> None:
    here, _ = nodes
    line.fault = "forbidden"
    here.start()
    (rollout,) = here.rollout(here.task(sandbox="none"), here.script(steps(4)))
    assert here.ended(rollout)["state"] == "finished"
    (status,) = here.json("daemon", "status")
    here.until(lambda: "artifacts" in here.json("daemon", "status")[0]["troubles"])
    (status,) = here.json("daemon", "status")
    assert "Access Denied" in status["troubles"]["artifacts"]
    line.fault = ""
    here.until(lambda: copied(here) == newest(here), 120, "it goes on by itself")
    here.until(lambda: not here.json("daemon", "status")[0]["troubles"])
    everything = here.log(10_000) + json.dumps(status)
    assert s3_server.SECRET not in everything
    assert s3_server.KEY_ID not in everything
    assert everything.count("Access Denied") <= 4, "it is said once for each try that differs"


@pytest.mark.slow
def test_a_restored_home_copies_nothing_before_it_took_over(
    nodes: tuple[Station, Station], url: str
) -> None:
    """A drill: the home goes on copying, what was restored from it says that it does not."""
    here, there = nodes
    here.start()
    (rollout,) = here.rollout(here.task(sandbox="none"), here.script(steps(200)))
    here.until(lambda: copied(here) > 20)
    said = there.run("backup", "--restore", url).stderr
    assert "backup --take-over" in said
    there.start()
    there.until(lambda: "artifacts" in there.json("daemon", "status")[0]["troubles"])
    trouble = there.json("daemon", "status")[0]["troubles"]["artifacts"]
    assert str(here.home) in trouble
    at = newest(here)
    here.rollout(here.task(sandbox="none"), here.script(steps(1), name="later"))
    here.until(lambda: copied(here) > at, why="the first goes on")
    assert "artifacts" not in here.json("daemon", "status")[0]["troubles"]
    here.run("rollout", "cancel", rollout, code=None)  # it may be over
    there.run("rollout", "cancel", rollout, code=None)
    there.run("backup", "--restore", url, code=78)
    there.run("backup", "--restore", str(here.home), "--until", "3", code=2)
