"""The command: killed in the middle it goes on with what it began."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.experiments import order_vocabulary, run_stages
from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedEndpoint,
    ScriptedTurn,
    endpoint_engine,
)
from houston_shared.store import rollout_queries

RECIPE = """
name = "killed"
arms = ["base"]

[model]
engine = {engine}

[orders]
held_out = 4
"""


LIMIT = 180
"""Seconds that only bound a hanging test."""


def until(true: Callable[[], Any], why: str) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"it did not happen: {why}"
        time.sleep(0.02)


def houston(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "houston_shared.command", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run, whose daemon is stopped whatever happened."""
    folder = tmp_path / "run"
    yield folder
    if (folder / "recipe.toml").is_file():
        run_stages.open_run(folder, lambda line: None).experiment_home.stop()


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_rollouts_that_it_began(run: Path, tmp_path: Path) -> None:
    all_told = threading.Event()

    def waits(chat: ChatHistory) -> ScriptedTurn:
        """No first step ends before its order is said, however long nobody is there to say it."""
        all_told.wait(LIMIT)
        return ScriptedTurn("", "list_files", {"path": "."})

    with ScriptedEndpoint(waits) as endpoint:
        table = ", ".join(
            f"{k} = {json.dumps(v)}" for k, v in endpoint_engine(endpoint.port).items()
        )
        recipe = tmp_path / "killed.toml"
        recipe.write_text(RECIPE.replace("{engine}", f"{{ {table} }}"))
        words = ("experiment", str(recipe), "--out", str(run))
        first = houston(*words)
        try:
            begun = run / "stages" / "measure-base-1.begun.json"
            until(lambda: begun.is_file() or first.poll() is not None, "rollouts are begun")
        finally:
            first.send_signal(signal.SIGKILL)
            output = first.communicate()
        assert begun.is_file(), output
        again = houston(*words)
        output = again.communicate(timeout=LIMIT)
        assert again.returncode == 2
        assert "holds a run of an experiment" in output[1]
        experiment_home = run_stages.open_run(run, lambda line: None).experiment_home
        last = houston(*words, "--resume")
        until(
            lambda: orders_said(experiment_home) == 4 or last.poll() is not None, "orders are said"
        )
        all_told.set()
        output = last.communicate(timeout=LIMIT)
        assert last.returncode == 0, output[1]
    assert "differs" not in output[1]
    assert Path(output[0].strip()) == run / "report" / "report.md"
    assert (run / "orders.toml").read_bytes() == order_vocabulary.ORDERS_FILE.read_bytes()
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert about["commands"] == [about["command"], f"{about['command']} --resume"]
    recipe.write_text(recipe.read_text().replace("held_out = 4", "held_out = 5"))
    report = houston(*words, "--report")
    output = report.communicate(timeout=LIMIT)
    assert report.returncode == 0
    assert f"{recipe} differs from the recipe stored in {run}: the stored one is used" in output[1]
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert f"`houston {' '.join(words)}`" in text
    assert "0 of 4, 0% [0%, 49%]" in text
    rollouts = experiment_home.read(rollout_queries.list_rollouts())
    assert [rollout.state for rollout in rollouts] == ["finished"] * 4
    assert all(len(experiment_home.guidance(rollout.id)) == 1 for rollout in rollouts)


def orders_said(experiment_home: ExperimentHome) -> int:
    rollouts = experiment_home.read(rollout_queries.list_rollouts())
    return sum(bool(experiment_home.guidance(rollout.id)) for rollout in rollouts)


def test_a_report_of_no_run_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = houston("experiment", "small", "--out", str(folder), "--report")
    output = process.communicate(timeout=LIMIT)
    assert process.returncode == 66
    assert f"There is no run of an experiment in {folder}." in output[1]
    assert not folder.exists()
