"""What a person says reaches the agent: next, wake, interrupt; edited, withdrawn, in order."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.station import Station

SLEEPER: list[dict[str, Any]] = [
    {"thought": "wait", "calls": [{"name": "sleep", "arguments": {"sleep_time": 600}}]},
    {"thought": "on", "calls": [{"name": "list_files", "arguments": {"path": "."}}]},
]


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One daemon for the module: nothing here ends it."""
    made = Station(tmp_path_factory.mktemp("station"))
    made.start()
    yield made
    made.clear()


def sleeping(station: Station, steps: list[dict[str, Any]] = SLEEPER) -> str:
    task = station.task(budget="sleep_seconds = 3600")
    (rollout,) = station.rollout(task, station.script(steps))
    station.until(
        lambda: station.query("SELECT 1 FROM events WHERE rollout=? AND part='intent.0'", rollout),
        why="the call runs",
    )
    return rollout


def test_next_waits_and_wake_cuts_the_sleep(station: Station) -> None:
    rollout = sleeping(station)
    station.run("guide", rollout, "first")
    station.run("guide", rollout, "never mind this")
    (_, second) = station.json("guidance", rollout)
    station.run("guidance", rollout, "--withdraw", second["id"])
    assert station.steps(rollout) == [], "next does not wake"
    station.run("guide", rollout, "wake up", "--wake")
    station.ended(rollout)
    heard = station.steps(rollout)[0]
    assert [g["text"] for g in heard["guidance"]] == ["first", "wake up"]
    assert "never mind" not in heard["observation"]
    states = [(g["text"], g["state"], g["step"]) for g in station.json("guidance", rollout)]
    assert states == [
        ("first", "delivered", 1),
        ("never mind this", "withdrawn", None),
        ("wake up", "delivered", 1),
    ]


def test_interrupt_ends_the_waiting_for_a_command_but_not_the_command(station: Station) -> None:
    steps = [
        {
            "thought": "long",
            "calls": [
                {"name": "run_command", "arguments": {"command": "echo begun; sleep 300"}},
                {"name": "list_files", "arguments": {"path": "."}},
            ],
        },
        {
            "thought": "how is it",
            "calls": [{"name": "get_session_status", "arguments": {"session_id": "main"}}],
        },
    ]
    task = station.task(budget="command_seconds = 600")
    (rollout,) = station.rollout(task, station.script(steps))
    station.until(
        lambda: station.query("SELECT 1 FROM events WHERE rollout=? AND part='intent.0'", rollout),
        why="the command runs",
    )
    station.run("guide", rollout, "stop waiting", "--interrupt")
    station.ended(rollout)
    first, second, _ = station.steps(rollout)
    assert first["observation"].endswith("<real_user>stop waiting</real_user>")
    results = station.query(
        "SELECT count(*) FROM events WHERE rollout=? AND step=1 AND kind='result'", rollout
    )
    assert results == [(2,)], "no call is left without a result"
    assert "running" in second["observation"]


def test_interrupt_stops_a_sample_in_flight(station: Station) -> None:
    steps = [
        {
            "thought": "slow",
            "delay": 300,
            "calls": [{"name": "list_files", "arguments": {"path": "."}}],
        }
    ]
    (rollout,) = station.rollout(station.task(budget="steps = 1"), station.script(steps))
    sampling = "SELECT 1 FROM rollouts WHERE id=? AND state='running' AND activity LIKE 'sampl%'"
    station.until(lambda: station.query(sampling, rollout), why="it samples")
    assert "sampl" in station.show(rollout)["activity"]
    station.run("guide", rollout, "think again", "--interrupt")
    station.until(lambda: station.closed(rollout), why="the step is closed")
    step = station.steps(rollout)[0]
    assert step["calls"] == []
    assert "[interrupted by a person]" in step["observation"]
    assert step["observation"].endswith("<real_user>think again</real_user>")


@pytest.mark.slow
def test_pause_and_resume(station: Station) -> None:
    steps = [
        {
            "thought": "a",
            "delay": 0.2,
            "calls": [{"name": "list_files", "arguments": {"path": "."}}],
        }
    ] * 10
    (rollout,) = station.rollout(station.task(), station.script(steps))
    station.until(lambda: station.closed(rollout) >= 2, why="two steps")
    station.run("rollout", "pause", rollout)
    assert station.show(rollout)["state"] == "paused"
    station.run("rollout", "resume", rollout)
    assert station.ended(rollout)["state"] == "finished"
    assert len(station.steps(rollout)) == 11
