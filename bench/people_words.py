"""What a critic learns from what people said: 40 scripted annotators' sentences with their gains.

    python bench/people_words.py --model DIR [--rollouts 40] [--attempts 200] [--seeds 3]
                                 [--folder DIR]

A scripted agent in the worlds of `word-errands` opens wrong boxes; a scripted person names an item
and a box, the right one in 70 %, over the wire, is heard as `<real_user>`, and obeyed. A critic is
trained on that (`houston train echo --human`), once a seed, and held against the one that it began
as: on the same held-out attempts of the same policy, by the gain of refinements that are told what
each says. Paired by attempt; intervals draw attempts and seeds anew (95 %). The same command goes
on where it was broken off in `--folder`. Written to bench/results/people_words.json.
"""

import argparse
import contextlib
import json
import random
import socket
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.learning import PATIENCE, interval

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_statistics import score_differences
from houston_daemon.experiments.scripted_agents import ANNOTATOR_AUTHOR
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedEndpoint,
    ScriptedSpecs,
    ScriptedTurn,
    endpoint_engine,
)
from houston_daemon.suites.suite_results import SuiteRun, read_run
from houston_daemon.suites.word_critiques import named_boxes
from houston_daemon.suites.word_worlds import LEVELS, WordWorldTask, word_world
from houston_daemon.training.echo.critique_trials import mean_gains, try_critiques
from houston_daemon.training.echo.sampled_critiques import CritiqueSampler
from houston_daemon.training.rl.engine_sampler import EngineSampler
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_shared.config import LoadedConfiguration, load_configuration

RESULTS = ROOT / "bench" / "results" / "people_words.json"
SUITE, LEVEL, ENGINE, PERSON = "word-errands", LEVELS["errands"], "tiny", "guided"
WRONG, RIGHT_WORDS = 0.7, 0.7
"""How often the agent goes for a wrong box, and how often the person names the right one."""
CRITIQUES = 4
"""Of each held-out attempt."""
TRAINING = {"epochs": 8, "learning_rate": 1e-3, "batch": 8, "precision": "fp32"}


class GuidedErrands:
    """The agent, and the person beside it, as one scripted endpoint plays both."""

    def __init__(self, home: ExperimentHome) -> None:
        self._home = home
        self._specs = ScriptedSpecs(home)

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """The next step; the person speaks before it where a wrong box is open."""
        spec = self._specs.spec_of(chat)
        index = int(spec.task.name.rpartition("-")[2])
        world = word_world(LEVEL, "train", index)
        draw = random.Random(f"{spec.seed}/{index}")
        boxes = {item: self._first_box(world, item, draw) for item in world.wanted}
        done = [_action(message) for message in chat.messages if message["role"] == "assistant"]
        entered = sum(action.startswith("enter") for action in done)
        item = list(world.wanted)[min(entered, len(world.wanted) - 1)]
        last = max((at for at, each in enumerate(done) if each.startswith("enter")), default=-1)
        since = done[last + 1 :]
        told: dict[str, str] = {}
        for words in chat.all_guidance:
            told |= named_boxes(words, world)
        box = told.get(item, boxes[item])
        opened = [each.removeprefix("open ") for each in since if each.startswith("open ")]
        if opened == [boxes[item]] and item not in told and boxes[item] != world.wanted[item]:
            right = draw.random() < RIGHT_WORDS
            others = [each for each in world.codes if each != world.wanted[item]]
            said = world.wanted[item] if right else draw.choice(others)
            if not since[1:]:  # once
                self._home.queue_guidance(chat.rollout, f"{item} {said}", ANNOTATOR_AUTHOR)
        if not opened or opened[-1] != box:
            return ScriptedTurn("", "open", {"box": box})
        if since[-1] != "read":
            return ScriptedTurn("", "read", {})
        return ScriptedTurn("", "enter", {"code": " ".join(world.codes[box])})

    def _first_box(self, world: WordWorldTask, item: str, draw: random.Random) -> str:
        others = [box for box in world.codes if box != world.wanted[item]]
        return draw.choice(others) if draw.random() < WRONG else world.wanted[item]


def _action(message: Any) -> str:
    function = message["tool_calls"][0]["function"]
    return " ".join((function["name"], *json.loads(function["arguments"] or "{}").values()))


def suite_run(home: ExperimentHome, name: str, engine: str, split: str, count: int) -> SuiteRun:
    """`houston suite run`; what was run before is read."""
    file = home.home.path / "suites" / SUITE / f"{name}.json"
    if not file.is_file():
        words = ("suite", "run", SUITE, "--engine", engine, "--name", name)
        home.run(*words, "--split", split, "-n", str(count), seconds=PATIENCE)
    return read_run(file)


def taught(home: ExperimentHome, seed: int, rollouts: Sequence[str]) -> dict[str, Any]:
    """Train one critic; how it went. What was trained before is read."""
    kept = home.folder / f"taught-{seed}.json"
    if not kept.is_file():
        settings = [f"{key}={value}" for key, value in {**TRAINING, "seed": seed}.items()]
        told = home.run(
            *("train", "echo", "--engine", ENGINE, "--name", f"taught-{seed}", "--json"),
            *(word for setting in settings for word in ("--set", setting)),
            *("--human", *rollouts),
            seconds=PATIENCE,
        )
        kept.write_text(told.splitlines()[-1])
    return dict(json.loads(kept.read_text()))


def gains(
    home: ExperimentHome, loaded: LoadedConfiguration, attempts: Sequence[str], critic: str
) -> dict[str, Any]:
    """By attempt the mean gain of a critic's refinements, and what it said."""
    kept = home.folder / f"gains-{critic.replace('@', '-')}.json"
    if not kept.is_file():
        recipe = RlRecipe(critic="frozen", group_size=CRITIQUES)
        sampler = EngineSampler(loaded, ENGINE, lambda: False, lambda line: None)
        critiques = CritiqueSampler(loaded, recipe, sampler, home.folder / "critiques")
        criticised = critiques.criticise(critic, attempts, critic)
        found = mean_gains(criticised, try_critiques(loaded, f"gains/{critic}", criticised))
        kept.write_text(
            json.dumps(
                {
                    "gain": found,
                    "malformed": sum(bool(s.problem) for e in criticised for s in e.critiques),
                    "said": sum(len(each.critiques) for each in criticised),
                }
            )
        )
    return dict(json.loads(kept.read_text()))


def learn(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """Collect, teach, measure."""
    collected = suite_run(home, "collect", PERSON, "train", asked.rollouts)
    rollouts = [world.attempts[0].rollout for world in collected.worlds]
    held_out = suite_run(home, "attempts", ENGINE, "test", asked.attempts)
    attempts = [
        world.attempts[0].rollout for world in held_out.worlds if not world.attempts[0].solved
    ]
    loaded = load_configuration(str(home.home.path), str(home.home.path / "houston.toml"))
    runs = {seed: taught(home, seed, rollouts) for seed in range(1, asked.seeds + 1)}
    before = gains(home, loaded, attempts, "base")
    after = {seed: gains(home, loaded, attempts, run["policy"]) for seed, run in runs.items()}
    cells = {
        attempt: {
            seed: found["gain"][attempt]
            for seed, found in after.items()
            if attempt in found["gain"]
        }
        for attempt in attempts
    }
    cells = {attempt: gained for attempt, gained in cells.items() if gained}
    base = {attempt: dict.fromkeys(after, gain) for attempt, gain in before["gain"].items()}
    return {
        "attempts": len(attempts),
        "gain before": interval(base),
        "gain taught": interval(cells),
        "taught minus before": interval(score_differences(cells, base)),
        "malformed": {
            "before": before["malformed"],
            "taught": [e["malformed"] for e in after.values()],
        },
        "training": {str(seed): run["result"] for seed, run in runs.items()},
    }


def main() -> int:
    """Teach, print, keep; exit code 1 where the taught critic gains no more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", type=Path, required=True, help="of `houston policy tiny`")
    parser.add_argument("--rollouts", type=int, default=40)
    parser.add_argument("--attempts", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="houston-people-"))
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        model = str(asked.model.absolute())
        engines = {
            ENGINE: {"kind": "embedded", "model": model, "dialect": "words"},
            PERSON: endpoint_engine(port),
        }
        home = ExperimentHome(folder, engines, at_once=32)
        stack.enter_context(ScriptedEndpoint(GuidedErrands(home), port))
        home.start()
        try:
            result = learn(home, asked)
        finally:
            home.stop()
        about = machine(folder)
    about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl")}
    how = {"rollouts": asked.rollouts, "seeds": asked.seeds, "settings": TRAINING}
    RESULTS.write_text(json.dumps({**about, **how, **result}, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in result if key != "training"}, indent=1))
    return int(result["taught minus before"]["low"] <= 0)


if __name__ == "__main__":
    sys.exit(main())
