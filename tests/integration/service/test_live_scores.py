"""A real daemon with the process that scores decisions: killed, edited, and without a model."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_shared.home import Home
from tests.support.process_reward import register_reward_model
from tests.support.recorder_client import Person
from tests.support.station import Station, alive

SCORES = "houston_daemon.training.prm.live_scores_child"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    started = Station(tmp_path)
    configure(started, "prm")
    yield started
    started.clear()


def configure(station: Station, model: str, weak: float = 0.3) -> None:
    station.home.mkdir(exist_ok=True)
    text = f'[review]\nprocess_reward = "{model}"\nweak_decision = {weak}\n'
    (station.home / "houston.toml").write_text(text)


def register(station: Station, number: int = 2) -> str:
    person = Person(Home(station.home))
    try:
        return register_reward_model(Home(station.home), person, number)
    finally:
        person.close()


def step(word: str, **more: Any) -> dict[str, Any]:
    call = {"name": "run_command", "arguments": {"command": f"echo {word}"}}
    return {"thought": f"{word} {word}", "calls": [call], **more}


def begin(station: Station, *words: str, name: str = "probe", waits: int = 3600) -> str:
    script = station.script([*map(step, words), step("w2", delay=waits)], name)
    (rollout,) = station.rollout(station.task(name), script)
    return rollout


def scored(station: Station, rollout: str, policy: str = "prm@2") -> list[int]:
    query = "SELECT step FROM process_rewards WHERE rollout = ? AND policy = ? ORDER BY step"
    return [step for (step,) in station.query(query, rollout, policy)]


def running(station: Station) -> int:
    try:
        return station.process(SCORES)
    except AssertionError:
        return 0


def trouble(station: Station) -> str:
    return str(station.json("daemon", "status")[0]["troubles"].get("process_reward", ""))


@pytest.mark.slow
def test_decisions_are_scored_while_a_rollout_runs_and_after_a_kill(station: Station) -> None:
    station.start()
    words = station.until(lambda: trouble(station), 60, "no model is said")
    assert "`review.process_reward` names 'prm', and there is no such policy" in words
    register(station)
    rollout = begin(station, "w5", "w9", "w30")
    station.until(lambda: scored(station, rollout) == [1, 2, 3], 90, "three are scored")
    assert station.state(rollout) == "running"
    station.until(lambda: not trouble(station), 30, "the trouble is over")
    assert station.json("daemon", "status")[0]["consoles"] == 0, "it is no console"
    lines = station.steps(rollout)
    assert [line["process_reward"]["policy"] for line in lines] == ["prm@2"] * 3
    assert len({line["process_reward"]["score"] for line in lines}) > 1

    child = running(station)
    os.kill(child, signal.SIGKILL)
    station.until(lambda: not alive(child), 30, "it is gone")
    other = begin(station, "w40", "w41", name="other")
    station.until(lambda: "ended by itself (-9)" in trouble(station), 60, "that it died is said")
    station.until(lambda: scored(station, other) == [1, 2], 90, "the next one goes on")
    assert running(station) != child
    query = "SELECT count(*) FROM events WHERE kind = 'process-reward'"
    assert station.query(query) == [(5,)], "nothing is scored twice"

    station.kill_daemon()
    station.until(lambda: not running(station), 30, "it ends with its daemon")
    station.start()
    station.run("rollout", "cancel", rollout)
    station.run("verify")


@pytest.mark.slow
def test_settings_are_edited_while_the_daemon_runs(station: Station) -> None:
    configure(station, "")
    station.start()
    register(station)
    rollout = begin(station, "w5", "w9")
    station.until(lambda: station.closed(rollout) == 2, 60, "two steps")
    assert running(station) == 0
    configure(station, "prm@2", weak=1.0)
    station.until(lambda: scored(station, rollout) == [1, 2], 90, "it begins")
    rows = station.query("SELECT score, weak FROM process_rewards")
    assert all(weak == (score < 1.0) for score, weak in rows)
    configure(station, "")
    station.until(lambda: not running(station), 60, "it ends")
    station.until(lambda: not trouble(station), 30, "no trouble is left")


@pytest.mark.slow
def test_a_policy_that_samples_is_no_process_reward_model_and_the_other_way(
    station: Station,
) -> None:
    station.start()
    register(station)
    denied = station.run("policy", "activate", "prm@2", "--engine", "embedded", code=None)
    assert denied.returncode != 0
    assert "is a process reward model: it scores decisions and samples nothing" in denied.stderr
    (found,) = (row for row in station.json("doctor") if row["check"] == "process reward")
    assert (found["state"], found["found"]) == ("ok", "prm@2 scores decisions")
    configure(station, "prm@1")
    words = station.until(lambda: trouble(station), 60, "it is said")
    assert "prm@1 is of the kind base" in words
