"""`houston train prm` as people call it: trained, measured, registered, and used as a reward."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from houston_daemon.suites.word_worlds import BOXES, ITEMS, LEVELS, word_world
from houston_daemon.training.prm.prm_scorer import load_scorer
from tests.support.station import Station
from tests.support.tensorboard_events import TENSORBOARD, read_scalars
from tests.support.tiny_policies import tiny_policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
QUICK = ("--set", "device=cpu", "--set", "epochs=8", "--set", "report_to=none")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy("medium", tmp_path_factory)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What opening each box is worth in many worlds: the right one 1, any other 0."""
    file = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    lines = []
    for index in range(160):
        world = word_world(LEVELS["medium"], "train", index)
        for box in (world.right, BOXES[index % len(BOXES)]):
            text = f"Task:\n{world.instructions}\nStep 1, the decision:\nopen {box}"
            score = float(box == world.right)
            lines.append(
                {"rollout": f"r{index}", "step": 1, "task": f"t{index}", "text": text}
                | {"score": score, "source": "judge", "reason": "", "sound": True}
            )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(ITEMS) == len(BOXES)
    return file


@pytest.fixture
def started(station: Station, model: Path) -> Station:
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.tiny]\nkind = "embedded"\nmodel = "{model}"\ndialect = "words"\n'
    )
    station.start()
    return station


def train(station: Station, *words: str) -> dict[str, Any]:
    output = station.run("train", *words, "--json", timeout=400).stdout
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def test_a_model_is_trained_measured_registered_and_rewards_decisions(
    started: Station, model: Path, labels: Path
) -> None:
    words = ("prm", "--labels", str(labels), "--base", str(model))
    quick = ("--set", "device=cpu", "--set", "epochs=20", *TENSORBOARD)
    told = train(started, *words, *quick)
    held_out = told["result"]["held_out"]
    tracked = read_scalars(Path(told["folder"]))
    assert list(tracked["held_out/mae"].values()) == pytest.approx([held_out["mae"]])
    assert len(tracked["train/loss"]) == told["result"]["steps"]
    assert held_out["mae"] < 0.6 * held_out["mean_predictor_mae"]
    assert held_out["rank_correlation"] > 0.6
    assert ElementTree.parse(Path(told["folder"], "calibration.svg")).getroot() is not None
    shown = started.run("policy", "show", told["policy"]).stdout
    assert "no engine: it scores decisions" in shown
    assert f"off by {held_out['mae']:.3f} on" in shown
    (policy,) = started.json("policy", "show", told["policy"])
    (loss,) = [curve for curve in policy["curves"] if curve["name"] == "loss"]
    assert len(loss["points"]) == told["result"]["steps"]
    (row,) = [row for row in started.json("policy", "list") if row["policy"] == told["policy"]]
    assert row["kind"] == "reward"
    refused = started.run("policy", "activate", told["policy"], "--engine", "tiny", code=None)
    assert refused.returncode
    assert "scores decisions and samples nothing" in refused.stderr
    based = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", "--base", "prm@2")
    assert "samples nothing" in started.run(*based, code=None).stderr
    decisions_are_rewarded_by_it(started)
    rollouts_are_rewarded_by_it_and_their_outcome(started)


RL = (
    *("dapo", "--suite", "word-worlds", "--engine", "tiny", "--recipe", "small"),
    *("--set", "updates=1", "--set", "groups=4", "--set", "group_size=4", "--set", "refill=1"),
    *("--set", "precision=fp32", "--set", "device=cpu", "--set", "process_reward=prm"),
    *("--set", "report_to=none"),
)


def decisions_are_rewarded_by_it(station: Station) -> None:
    collect = ("suite", "run", "word-worlds", "--engine", "tiny", "--split", "train", "-n", "8")
    station.run(*collect, "--name", "collect", timeout=280)
    station.run("daemon", "stop")  # and with it the engine: the trainer is the first to need it
    station.start()
    told = train(station, *RL, "--set", 'states=["collect"]')
    station.run("policy", "activate", told["policy"], "--engine", "tiny")
    (update,) = told["updates"]
    sampling = update["sampling"]
    assert sampling["rollouts"] == 4 * sampling["groups"]
    assert 0 < sampling["process_reward"] < 1
    assert update["trained_tokens"] > 0
    assert update["gap_largest"] < 0.1, "nearly what the trainer computes"
    kept = Path(told["folder"], "decisions", "0.0.json")
    assert len(json.loads(kept.read_text())) == 4


def rollouts_are_rewarded_by_it_and_their_outcome(station: Station) -> None:
    told = train(station, *RL, "--set", "process_weight=0.5")
    (update,) = told["updates"]
    assert 0 < update["sampling"]["process_reward"] < 1
    folder = Path(told["folder"])
    scores = [json.loads(file.read_text()) for file in (folder / "process_rewards").iterdir()]
    assert len(scores) == update["sampling"]["groups"]
    assert all(0 <= score <= 1 for group in scores for steps in group for score in steps.values())
    rows = station.home / "rows"
    station.run("export", "--run", folder.name, "--format", "verl-rl", "--out", str(rows))
    exported = [json.loads(line) for line in (rows / "data.jsonl").read_text().splitlines()]
    assert sum(sum(row["response_mask"]) for row in exported) == update["trained_tokens"]
    unlike = [row for row in exported if len(set(row["advantages"]) - {0.0}) > 1]
    assert unlike, "decisions of one rollout have advantages of their own"


def test_a_killed_training_goes_on_and_gives_the_same_model(
    started: Station, model: Path, labels: Path
) -> None:
    words = ("prm", "--labels", str(labels), "--base", str(model), *QUICK)
    whole = train(started, *words, "--name", "whole")
    run = train(started, *words, "--name", "cut", "--detach")["run"]
    folder = started.home / "training" / run
    end = time.monotonic() + 200
    while not list(folder.glob("checkpoints/checkpoint-*/complete.json")):
        assert time.monotonic() < end, (folder / "log.txt").read_text()
        time.sleep(0.02)
    assert not (folder / "result.json").exists(), "it is killed amid training"
    os.kill(trainer_of(folder), signal.SIGKILL)
    cut = wait_for(started, run)
    text = ["Task:\nfind coin\nStep 1, the decision:\nopen red"]
    results = [json.loads((Path(each) / "result.json").read_text())["held_out"]["mae"]
               for each in (whole["folder"], folder)]  # fmt: skip
    assert results[0] == pytest.approx(results[1], abs=1e-6)
    scores = [
        load_scorer(started.home / "policies" / name, "cpu").score(text)
        for name in (whole["policy"], cut)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def trainer_of(folder: Path) -> int:
    """The process that has the folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"houston_daemon.training.prm" in words and str(folder).encode() in words:
                return int(process.name)
    raise AssertionError(f"no trainer has {folder}")


def wait_for(station: Station, run: str) -> str:
    """The policy that a run became, started again by the daemon after its trainer died."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        (row,) = [row for row in station.json("train", "list") if row["run"] == run]
        if row["state"] == "finished":
            return str(row["policy"])
        assert row["state"] in ("queued", "running"), row
        time.sleep(0.5)
    raise AssertionError(f"{run} did not finish")
