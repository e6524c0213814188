"""Training runs as children of the daemon: looked after, started again, ended with it, cancelled.

The real trainer on a model of two layers, so that what takes time is starting its processes.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station, alive, told
from tests.training.sft import tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
"""Each test goes on where the one before it ended: the whole file runs, or none of it."""


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("trainers"))
    try:
        made.start()
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """`houston train sft` on a tiny model and rows, without waiting for its end."""
    place = tmp_path_factory.mktemp("data")
    base = tiny.save_model(place / "base")
    data = tiny.write(place / "data", tiny.rows())
    (data / "manifest.json").write_text('{"format": "trl"}')
    common = ["--data", str(data), "--base", str(base), "--gpus", "0", "--detach"]
    for setting in ("batch=2", "save_steps=10", "warmup=0", "epochs=1000"):
        common += ["--set", setting]
    return ["train", "sft", *common]


def show(station: Station, run: str) -> dict[str, Any]:
    (row,) = station.json("train", "show", run)
    return dict(row)


def processes(station: Station, run: str) -> list[int]:
    """Everything that the trainer of a run started."""
    mark = f"HOUSTON_TRAINER={station.home}/training/{run}"
    found = [entry for entry in Path("/proc").glob("[0-9]*") if mark in told(entry, "environ")]
    return [int(entry.name) for entry in found if alive(int(entry.name))]


def state(station: Station, run: str) -> str:
    return str(station.query("SELECT state FROM training_runs WHERE id = ?", run)[0][0])


def test_a_run_outlives_its_trainer_and_its_daemon_and_ends_when_it_is_cancelled(
    station: Station, words: list[str]
) -> None:
    (row,) = station.json(*words, "--set", "steps=100000")
    run = row["run"]
    station.until(lambda: "checkpoint at" in log(station, run), 200, "it has a checkpoint")
    standing = lambda: station.json("daemon", "status")[0]["training"].get(run, "")  # noqa: E731
    station.until(lambda: "step" in standing(), 60, "the status says how far it is")
    for pid in processes(station, run):
        os.kill(pid, signal.SIGKILL)
    station.until(lambda: log(station, run).count("going on from") == 1, 200, "started again")
    before = processes(station, run)
    assert before
    station.kill_daemon()
    station.until(lambda: not any(map(alive, before)), 60, "it ends with the daemon")
    assert "when the daemon is back" in station.run("train", "list").stdout
    station.start()
    station.until(lambda: log(station, run).count("going on from") == 2, 200, "and goes on")
    assert show(station, run)["starts"] == 3
    (second,) = station.json(*words, "--set", "steps=2")
    waits = "waits for training"
    station.until(lambda: waits in show(station, second["run"])["reason"], 60, "one at a time")
    station.run("train", "cancel", run, "--reason", "enough")
    station.until(lambda: state(station, run) == "cancelled", 60, "it is told to end")
    assert not processes(station, run)
    assert show(station, run)["policy"] is None
    assert "is cancelled" in station.run("train", "cancel", run).stdout
    station.until(lambda: state(station, second["run"]) == "finished", 200, "its turn")


def test_what_has_finished_is_a_policy_with_its_lineage(station: Station) -> None:
    """The second run of the test before."""
    (found,) = [row for row in station.json("train", "list") if row["state"] == "finished"]
    assert (found["policy"], found["starts"]) == ("policy@2", 1)
    (policy,) = station.json("policy", "show", "policy@2")
    assert policy["run"] == found["run"]
    assert policy["manifest"] == show(station, found["run"])["manifest"]
    assert policy["metrics"]["steps"] == 2
    station.run("verify")


def test_a_run_beside_the_daemon_that_was_killed_can_be_gone_on_with(
    station: Station, words: list[str]
) -> None:
    """Its trainer and its command are gone: nobody is left who could say that it failed."""
    (row,) = station.json(*words, "--alone", "--set", "steps=100000")
    run = row["run"]
    station.until(lambda: "checkpoint at step" in log(station, run), 200, "it has a checkpoint")
    for pid in beside(station, run):
        os.kill(pid, signal.SIGKILL)
    station.until(lambda: not beside(station, run), 60, "it is gone")
    assert state(station, run) == "running", "as far as anybody knows"
    station.json("train", "sft", "--resume", run, "--detach")
    station.until(lambda: "going on from" in log(station, run), 200, "as a child of the daemon")
    station.run("train", "cancel", run)
    station.until(lambda: state(station, run) == "cancelled", 60, "it is told to end")


def beside(station: Station, run: str) -> list[int]:
    """Trainers in the folder of a run that the daemon did not start."""
    words = f"houston_daemon.training.sft {station.home}/training/{run}"
    found = [entry for entry in Path("/proc").glob("[0-9]*") if words in told(entry, "cmdline")]
    return [int(entry.name) for entry in found if alive(int(entry.name))]


def log(station: Station, run: str) -> str:
    file = station.home / "training" / run / "log.txt"
    return file.read_text() if file.exists() else ""
