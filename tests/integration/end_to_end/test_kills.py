"""kill -9 of daemon, worker and engine, and a stop in mid-sleep: no step lost, none doubled."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.station import Station, alive

STEPS: list[dict[str, Any]] = [
    {
        "thought": f"line {i}",
        "calls": [
            {
                "name": "run_command",
                "arguments": {"command": f"echo {i} >> log.txt", "session_id": "main"},
            },
            {"name": "think", "arguments": {"thought": f"that was {i}"}},
        ],
        "delay": 0.1,
    }
    for i in range(1, 21)
]


def whole(station: Station, rollout: str, steps: int) -> None:
    """The rollout holds every step once and the journal is sound."""
    record = station.ended(rollout)
    assert record["state"] == "finished", record
    numbers = [step["step"] for step in station.steps(rollout)]
    assert numbers == list(range(1, steps + 1))
    keys = station.query(
        "SELECT step, attempt, part, count(*) FROM events WHERE rollout = ? AND part IS NOT NULL"
        " GROUP BY 1, 2, 3 HAVING count(*) > 1",
        rollout,
    )
    assert keys == []
    station.run("verify")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_daemon_killed_in_mid_step(station: Station) -> None:
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(STEPS))
    for reached in (3, 9, 15):
        station.until(lambda n=reached: station.closed(rollout) >= n, why=f"step {reached}")
        station.kill_daemon()
        before = station.steps(rollout)
        station.start()
        assert station.steps(rollout)[: len(before)] == before, "what was shown stays"
    whole(station, rollout, 21)
    lines = (station.host_root / "rollouts" / rollout / "workspace" / "log.txt").read_text().split()
    assert len(lines) == len(set(lines)), "no command ran twice"


@pytest.mark.slow
def test_worker_killed_in_mid_call(station: Station) -> None:
    steps = [
        {
            "thought": "long",
            "calls": [
                {
                    "name": "run_command",
                    "arguments": {"command": "echo started; sleep 5; echo over"},
                },
            ],
        },
        {"thought": "look", "calls": [{"name": "sleep", "arguments": {"sleep_time": 6}}]},
        {
            "thought": "look",
            "calls": [{"name": "get_session_output", "arguments": {"session_id": "main"}}],
        },
    ]
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(steps))
    station.until(
        lambda: station.query("SELECT 1 FROM events WHERE rollout=? AND part='intent.0'", rollout),
        why="the call is about to run",
    )
    time.sleep(1)
    kill(station.process("houston_daemon.agent.rollout_worker", rollout))
    whole(station, rollout, 4)
    first, _, third, _ = station.steps(rollout)
    assert "unknown" in first["observation"], "an honest observation, not a second run"
    assert "started" in first["observation"], "with what the terminal shows"
    assert third["observation"].count("over") >= 1, "the command itself ran on"
    assert third["observation"].count("started\n") <= 1


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(600)
def test_engine_killed_in_mid_sample(station: Station) -> None:
    station.start()
    budget = "steps = 4\nminimum_steps = 4\nanswer_tokens = 80\nsleep_seconds = 1\n"
    (rollout,) = station.rollout(station.task(budget=budget), "embedded")
    station.until(lambda: station.closed(rollout) >= 2, 240, "two steps")
    time.sleep(0.5)
    kill(station.process("houston_daemon.engines.embedded"))
    record = station.ended(rollout, 300)
    assert record["state"] == "finished"
    assert [step["step"] for step in station.steps(rollout)] == list(range(1, 5))
    station.run("verify")


@pytest.mark.slow
def test_stop_and_start_with_a_sleeping_agent(station: Station) -> None:
    steps = [
        {"thought": "wait", "calls": [{"name": "sleep", "arguments": {"sleep_time": 4}}]},
        {"thought": "on", "calls": [{"name": "list_files", "arguments": {"path": "."}}]},
    ]
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(steps))
    station.until(
        lambda: station.query("SELECT 1 FROM events WHERE rollout=? AND part='intent.0'", rollout),
        why="it sleeps",
    )
    station.stop()
    assert station.show(rollout)["state"] == "running", "a stop does not end a rollout"
    station.start()
    whole(station, rollout, 3)
    assert "slept" in station.steps(rollout)[0]["observation"].lower()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["supervisor", "rollout_worker"])
def test_nothing_is_left_running(station: Station, who: str) -> None:
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(STEPS))
    station.until(lambda: station.closed(rollout), why="the first step")
    worker = station.process("houston_daemon.agent.rollout_worker", rollout)
    daemon = station.pid
    end: dict[str, Callable[[], Any]] = {
        "supervisor": lambda: kill(daemon),
        "rollout_worker": station.stop,
    }
    end[who]()
    station.until(lambda: not alive(worker) and not alive(daemon), 60, "both are gone")
