"""Rules run on rollouts as they go on: beside the daemon, replaced by what comes, after any end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.training.test_judge_command import package
from tests.support.station import Station, alive

KEY = "qV7rT2mX9bLp4WzN8cHd"
LIVE = "houston_daemon.review.live_rules_child"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    started = Station(tmp_path)
    started.environment["HOUSTON__DAEMON__LIVE_RULES"] = "true"
    started.environment["LIVE_TOKEN"] = KEY
    started.environment["PYTHONPATH"] = str(package(tmp_path / "packages"))
    yield started
    started.clear()


def step(command: str, **more: Any) -> dict[str, Any]:
    call = {"name": "run_command", "arguments": {"command": command}}
    return {"thought": "I act.", "calls": [call], **more}


def begin(station: Station, *steps: dict[str, Any], name: str = "probe") -> str:
    """A rollout that then waits for a long time, also after an interruption."""
    script = station.script([*steps, *[step("true", delay=3600)] * 3], name)
    (rollout,) = station.rollout(station.task(name, files={"a.py": "print(1)\n"}), script)
    return rollout


def masked(station: Station, rollout: str) -> dict[int, str]:
    rows = station.json("verdict", rollout)
    return {row["step"]: row["reason"] for row in rows if row["verdict"] == "mask"}


def verdict_count(station: Station, rollout: str) -> int:
    query = "SELECT count(*) FROM events WHERE rollout = ? AND kind = 'verdict'"
    return int(station.query(query, rollout)[0][0])


def until_masked(station: Station, rollout: str, *steps: int) -> dict[int, str]:
    rows = "SELECT step FROM verdicts WHERE rollout = ? AND source = 'rule' ORDER BY step"
    wanted = [(number,) for number in steps]
    station.until(lambda: station.query(rows, rollout) == wanted, 60, f"{steps} are masked")
    return masked(station, rollout)


@pytest.mark.slow
def test_verdicts_come_while_it_runs_and_change_with_what_follows(station: Station) -> None:
    station.start()
    rollout = begin(station, step("python3 a.py"), step(f"cat {KEY}"), step("ls"))
    masks = until_masked(station, rollout, 2)
    assert station.state(rollout) == "running"
    assert "error_observation@" in masks[2] and "[secret:LIVE_TOKEN]" in masks[2]
    stored = station.query("SELECT body FROM events WHERE kind = 'verdict'")
    assert stored and all(KEY not in str(row) for row in stored)

    station.run("verdict", rollout, "3", "mask", "--reason", "no")
    station.run("guide", rollout, "Do not run a.py.", "--interrupt")
    masks = until_masked(station, rollout, 1, 2)
    assert "contradicted_guidance@" in masks[1], "what a person said later condemns it"
    assert masks[3] == "no", "a person's word stays"

    before = verdict_count(station, rollout)
    station.kill_daemon()
    station.start()
    follower = station.until(lambda: running(station), 60, "rules run again")
    os.kill(follower, signal.SIGKILL)
    station.until(lambda: not alive(follower), 30, "it is gone")
    station.run("rollout", "cancel", rollout)
    other = begin(station, step("cat none"), name="other")
    until_masked(station, other, 1)
    assert verdict_count(station, rollout) == before, "the same is not said again"
    station.run("verify")


def running(station: Station) -> int:
    try:
        return station.process(LIVE)
    except AssertionError:
        return 0


@pytest.mark.slow
def test_a_rule_that_fails_on_one_rollout_is_named_and_stops_no_other(station: Station) -> None:
    station.start()
    bad = station.task("stumbling")
    bad.write_text(bad.read_text() + '\n[rules]\npackages = ["stumbles"]\n')
    (failing,) = station.rollout(bad, station.script([step("cat none"), step("true", delay=3600)]))
    good = begin(station, step("cat none"))
    until_masked(station, good, 1)

    def trouble() -> str:
        return str(station.json("daemon", "status")[0]["troubles"].get("rules", ""))

    words = station.until(trouble, 60, "it is said")
    assert words.startswith(f"{failing} is not judged: The code of the rule 'stumbles' failed")
    assert masked(station, failing) == {}


@pytest.mark.slow
def test_they_can_be_turned_off(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__LIVE_RULES"] = "false"
    station.start()
    rollout = begin(station, step("cat none"), step("ls"))
    station.until(lambda: station.closed(rollout) >= 2, 60, "two steps")
    station.run("daemon", "restart")
    assert running(station) == 0
