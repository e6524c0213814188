"""Jobs of rollouts that really ran: what `houston jobs` says of what runs, has ended, and how."""

from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared.home import Home
from tests.support.station import Station


def do(name: str, **arguments: Any) -> dict[str, Any]:
    return {"thought": "On.", "calls": [{"name": name, "arguments": arguments}]}


def left_running(command: str, session: str) -> dict[str, Any]:
    return do("run_command", command=command, session_id=session, wait_for_completion=False)


SLEEP = do("sleep", sleep_time=600)
GO = "until test -e go; do sleep 0.05; done"
JOBS = [
    left_running(f"{GO}; echo epoch 3; python3 -c 'raise SystemExit(3)'", "train"),
    left_running(f"{GO}; echo all done", "good"),
    left_running("sleep 600", "mine"),
    do("run_command", command=f"({GO}; echo no luck; exit 4) > apart.log 2>&1 &"),
    do("kill_session_processes", session_id="mine"),
    left_running("printf 'step 1\\rstep 2'; sleep 600", "serve"),
    SLEEP,
]


@pytest.fixture
def running(station: Station) -> Iterator[Station]:
    station.start()
    yield station


def start(station: Station, name: str, steps: list[dict[str, Any]]) -> str:
    task = station.task(name, budget="steps = 50\n")
    (rollout,) = station.rollout(task, station.script(steps, name))
    return rollout


def jobs(station: Station, rollout: str) -> dict[str, dict[str, Any]]:
    """By session."""
    return {job["session"]: job for job in station.json("jobs", rollout)}


def need(station: Station, rollout: str) -> dict[str, str]:
    (row,) = [one for one in station.json("rollout", "list") if one["rollout"] == rollout]
    return {one["kind"]: one["text"] for one in row["reasons"]}


def go(station: Station, rollout: str) -> None:
    (station.host_root / "rollouts" / rollout / "workspace" / "go").touch()


def test_jobs_are_told_while_the_agent_sleeps(running: Station) -> None:
    rollout = start(running, "jobs", JOBS)
    running.until(lambda: running.closed(rollout) == 6, why="the agent sleeps")
    running.until(lambda: len(jobs(running, rollout)) == 5, why="all are told")
    print(running.run("jobs", rollout).stdout)
    go(running, rollout)
    running.until(lambda: jobs(running, rollout)["main"]["exit_code"] == 4, why="x")
    running.until(lambda: jobs(running, rollout)["train"]["exit_code"] == 3, why="x")
    print(running.run("jobs", rollout).stdout)
    print(running.run("jobs", rollout, "--json").stdout)
    print(need(running, rollout))
    print(running.run("rollout", "list").stdout)
    running.run("rollout", "cancel", rollout)
    running.ended(rollout)
    print(running.run("jobs", rollout).stdout)
    print(running.run("jobs", rollout, "--state", "done").stdout)
    running.stop()
    assert verify_home(Home(running.home)).findings == ()
    assert 0
