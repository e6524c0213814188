"""What scoring every decision costs a rollout, with the tiny policy and with SmolLM2 as scorer.

    python bench/process_reward_cost.py [--pairs 3] [--only tiny|smollm2]

A real daemon runs the same rollouts with live scores off and on, in turn: worlds of words sampled
by a tiny policy (1.8 million parameters, 8 at once) and scored by a model of its size, and the demo
task sampled by SmolLM2-135M and scored by a model of that size, all on the CPU. The seconds of a
step are those between a rollout's beginning and its last observation. Beside them: processor time
of the scoring process for each second of rollouts, and how long after the last rollout the last
score came. What was not scored before a run is scored before it begins. The heads have random
weights: what a score is does not change what it costs. Written to
bench/results/process_reward_cost.json.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from bench.durable.machine import machine
from transformers import AutoTokenizer, LlamaForSequenceClassification

from houston_daemon.engines.local_model import model_path
from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy
from houston_daemon.training.policies.policy_files import hash_files
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Person
from tests.support.station import Station

RESULTS = ROOT / "bench" / "results" / "process_reward_cost.json"
AIM = 0.05
"""Most of a rollout's time that scoring may cost."""
CHILD = "houston_daemon.training.prm.live_scores_child"
TICK = os.sysconf("SC_CLK_TCK")
WORLDS, STEPS = 240, 8
"""Worlds of words in a run; steps of a rollout of the demo task."""
UNSCORED = """
SELECT count(*) FROM steps s WHERE s.current AND s.observation_seq IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM process_rewards p WHERE p.rollout = s.rollout AND p.step = s.step
    AND p.attempt = s.attempt)
"""


class Scoring:
    """A daemon with an engine, and a process reward model that is turned on and off."""

    def __init__(self, folder: Path, engine: str, model: Path) -> None:
        """engine: lines of `[engines.sampler]`. model: what the scorer is made of."""
        self.station = Station(folder)
        self.station.home.mkdir(mode=0o700, parents=True)
        self._engine = engine
        self.turn("")
        self.station.start()
        self._register(model)

    def turn(self, policy: str) -> None:
        """Score with a policy from now on, or with none; what waits is scored first."""
        text = f'[review]\nprocess_reward = "{policy}"\n[engines.sampler]\n{self._engine}'
        (self.station.home / "houston.toml").write_text(text)
        if not (self.station.home / "houston.db").exists():
            return
        self.station.until(lambda: bool(self.child()) == bool(policy), 120, "the scorer")
        if policy:
            self.station.until(lambda: not self.unscored(), 600, "what waits is scored")

    def child(self) -> int:
        """The scoring process; 0 for none."""
        try:
            return self.station.process(CHILD)
        except AssertionError:
            return 0

    def unscored(self) -> int:
        """Closed steps without a score."""
        return int(self.station.query(UNSCORED)[0][0])

    def child_seconds(self) -> float:
        """Processor seconds of the scoring process so far."""
        if not (child := self.child()):
            return 0.0
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def _register(self, model: Path) -> None:
        name = "prm@2"
        folder = self.station.home / "policies" / name
        torch.manual_seed(0)
        scorer = LlamaForSequenceClassification.from_pretrained(
            model, num_labels=1, problem_type="regression", dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(model)
        scorer.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
        scorer.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = hash_files(file for file in folder.iterdir() if file.is_file())
        (folder / "lineage.json").write_text("{}")
        person = Person(Home(self.station.home))
        policy = PolicyRegistered(
            by="", name=name, kind="reward", base=str(model), base_hash="b", hash=name,
            folder=name, files=files,
        )  # fmt: skip
        answer = person.ask(wire.RegisterPolicy(request=name, policy=policy))
        assert isinstance(answer, wire.RequestStored), answer
        person.close()


def run_words(scoring: Scoring) -> list[str]:
    """Worlds of words by the suite's own command; the rollouts."""
    before = {row for (row,) in scoring.station.query("SELECT id FROM rollouts")}
    words = ("suite", "run", "word-worlds", "--engine", "sampler", "--split", "validation")
    scoring.station.run(*words, "-n", str(WORLDS), "--json", timeout=900)
    rows = scoring.station.query("SELECT id FROM rollouts ORDER BY id")
    return [row for (row,) in rows if row not in before]


def run_demo(scoring: Scoring) -> list[str]:
    """One rollout of the demo task, cut after some steps."""
    task = scoring.station.folder / "demo"
    if not task.exists():
        scoring.station.run("task", "new", "demo", "--out", str(scoring.station.folder))
        file = task / "task.toml"
        text = file.read_text().replace("steps = 40", f"steps = {STEPS}")
        file.write_text(text.replace("minimum_steps = 8", f"minimum_steps = {STEPS}"))
    (rollout,) = scoring.station.rollout(task / "task.toml", "sampler")
    scoring.station.ended(rollout, 900)
    return [rollout]


def measure(scoring: Scoring, act: Callable[[Scoring], list[str]], policy: str) -> dict[str, Any]:
    """One run with the scorer on or off."""
    scoring.turn(policy)
    spent, began = scoring.child_seconds(), time.monotonic()
    rollouts = act(scoring)
    seconds, behind = time.monotonic() - began, scoring.unscored() if policy else 0
    if policy:
        scoring.station.until(lambda: not scoring.unscored(), 600, "all are scored")
    marks = ", ".join("?" * len(rollouts))
    rows = scoring.station.query(
        "SELECT (max(s.closed_at) - min(s.started_at)) / 1e6, count(*) FROM steps s"
        f" WHERE s.current AND s.rollout IN ({marks}) GROUP BY s.rollout",
        *rollouts,
    )
    steps = sum(count for _, count in rows)
    return {
        "scorer": policy or "none",
        "rollouts": len(rollouts),
        "steps": steps,
        "seconds_a_step": round(sum(took for took, _ in rows) / steps, 4),
        "wall_seconds": round(seconds, 2),
        "scorer_cpu_seconds": round(scoring.child_seconds() - spent, 2),
        "unscored_at_the_end": behind,
        "seconds_behind": round(time.monotonic() - began - seconds, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def compare(scoring: Scoring, act: Callable[[Scoring], list[str]], pairs: int) -> dict[str, Any]:
    """Runs in turn; the first of each kind only warms up."""
    measure(scoring, act, "")
    runs = []
    for number in range(pairs):
        for policy in ("", "prm@2") if number % 2 else ("prm@2", ""):
            runs.append(measure(scoring, act, policy))
            print(json.dumps(runs[-1]), flush=True)
    off = statistics.median(r["seconds_a_step"] for r in runs if r["scorer"] == "none")
    on = statistics.median(r["seconds_a_step"] for r in runs if r["scorer"] != "none")
    scored = [run for run in runs if run["scorer"] != "none"]
    cpu = sum(r["scorer_cpu_seconds"] for r in scored) / sum(r["steps"] for r in scored)
    return {
        "seconds_a_step_off": off,
        "seconds_a_step_on": on,
        "cost": round(on / off - 1, 4),
        "aim": AIM,
        "scorer_cpu_seconds_a_step": round(cpu, 4),
        "most_seconds_behind": max(r["seconds_behind"] for r in scored),
        "runs": runs,
    }


def tiny(folder: Path, pairs: int) -> dict[str, Any]:
    """Worlds of words: a tiny policy samples, a model of its size scores."""
    model = folder / "tiny"
    try:
        make_tiny_policy(model, TinyRecipe(traces=600, epochs=6), lambda line: None)
    except HoustonError as problem:  # how often it solves a world does not matter here
        print(problem.cause)
    engine = f'kind = "embedded"\nmodel = "{model}"\ndialect = "words"\n'
    scoring = Scoring(folder / "words", engine, model)
    try:
        return compare(scoring, run_words, pairs)
    finally:
        scoring.station.stop()


def smollm2(folder: Path, pairs: int) -> dict[str, Any]:
    """The demo task: SmolLM2-135M samples, each time the same; a model of its size scores."""
    model = model_path()
    assert model is not None, "houston doctor --fetch-model"
    engine = f'kind = "embedded"\nmodel = "{model}"\nparameters = {{ temperature = 0.0 }}\n'
    scoring = Scoring(folder / "smollm2", engine, model)
    try:
        return compare(scoring, run_demo, pairs)
    finally:
        scoring.station.stop()


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", choices=("tiny", "smollm2"))
    given = parser.parse_args()
    report: dict[str, Any] = {"bench": "process_reward_cost"}
    if given.only and RESULTS.exists():
        report = json.loads(RESULTS.read_text())
    with tempfile.TemporaryDirectory(prefix="houston-bench-") as folder:
        report |= machine(Path(folder))
        for name, act in (("tiny", tiny), ("smollm2", smollm2)):
            if given.only in (None, name):
                report[name] = act(Path(folder), given.pairs)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(
        json.dumps({name: report[name]["cost"] for name in ("tiny", "smollm2") if name in report})
    )


if __name__ == "__main__":
    main()
