"""Warms a language model up for a suite: SFT on rollouts of an imperfect scripted agent.

The rollouts are real ones, of a daemon with its own home below the model's folder, and so are rows
and training (`houston train sft`; its adapter is merged into the model). No rule masks anything:
the model learns the calls and the agent's faults, so it succeeds in 5 to 30 % and rewards can teach
it more. Then it is measured on validation tasks. `tiny_policy` makes tiny policies in another way.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_endpoint import (
    ScriptedEndpoint,
    ScriptedSpecs,
    endpoint_engine,
)
from houston_daemon.suites.imperfect_agents import AgentHabits, ImperfectAgent
from houston_daemon.suites.suite_catalog import find_suite
from houston_daemon.suites.suite_results import check_can_learn
from houston_shared.errors import HoustonError

_HOME, _SCRIPTED, _WARM = "warm-up", "scripted", "warm"
_TRAINING_FIGURES = ("steps", "rows", "tokens", "trained", "seconds", "loss_mean_last_10")
_SETTINGS = (
    "epochs=2", "batch=4", "learning_rate=1e-3", "final_learning_rate=1e-4", "pack_tokens=1024",
)  # fmt: skip
_PATIENCE = 6 * 3600.0
"""Seconds that a stage may take."""


@dataclass(frozen=True, slots=True)
class WarmUpRecipe:
    """What is asked."""

    suite: str
    model: str
    """Folder of the model to begin from."""
    traces: int = 240
    """Rollouts of the scripted agent, on the first tasks of the train split."""
    habits: AgentHabits = field(default_factory=AgentHabits)
    """Of the scripted agent."""
    seed: int = 0
    """Of the agent and of the training."""
    worlds: int = 64
    """Validation tasks that the model is measured on; 0: not at all."""
    at_once: int = 16
    """Rollouts that run together."""
    settings: tuple[str, ...] = ()
    """`key=value` of the SFT recipe `small`, behind `_SETTINGS`."""


def warm_up_model(
    folder: Path, recipe: WarmUpRecipe, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Sample, train, measure; what it does, as also kept in `warm_up.json` of the model's folder.

    tell: takes a line for people. Raises HoustonError where a stage fails, and where the model
    succeeds in less than 5 or more than 30 %; the folder is there all the same.
    """
    begun = time.monotonic()
    tell(f"{recipe.traces} rollouts of the scripted agent …")
    scripted = _sample_rollouts(folder, recipe)
    tell(f"the agent solved {scripted['pass@1']['value']:.0%}; training …")
    trained = _trained(folder, recipe)
    report = {
        **asdict(recipe),
        "scripted": scripted["pass@1"]["value"],
        "training": {name: trained[name] for name in _TRAINING_FIGURES if name in trained},
    }
    if recipe.worlds:
        tell(f"{recipe.worlds} validation tasks …")
        report["validation"] = _measure_validation(folder, recipe)
    report["seconds"] = round(time.monotonic() - begun, 1)
    text = json.dumps(report, indent=1) + "\n"
    (folder / "warm_up.json").write_text(text, encoding="utf-8")
    if recipe.worlds:
        success = report["validation"]["pass@1"]["value"]
        advice = "Try other --traces, --wrong or --errors."
        check_can_learn(f"The model in {folder}", success, "tasks", advice)
    return report


def _home(
    place: Path, engines: Mapping[str, Mapping[str, Any]], at_once: int = 8
) -> ExperimentHome:
    advice = f"Once that is fixed, remove {place.parent} and run the same command again."
    return ExperimentHome(place, engines, at_once, advice=advice)


def _sample_rollouts(folder: Path, recipe: WarmUpRecipe) -> dict[str, Any]:
    """The scripted agent's rollouts; figures of `suite run`."""
    suite, place = find_suite(recipe.suite), folder / _HOME
    specs = ScriptedSpecs(_home(place, {}))
    agent = ImperfectAgent(suite.name, suite.steps, specs, recipe.habits, recipe.seed)
    with ScriptedEndpoint(agent) as endpoint:
        engines = {_SCRIPTED: endpoint_engine(endpoint.port)}
        return _suite_figures(_home(place, engines, recipe.at_once), recipe, "train")


def _trained(folder: Path, recipe: WarmUpRecipe) -> dict[str, Any]:
    """Train an adapter on all of them, merge it into the model below `folder`; figures of the run.

    On a processor an adapter takes less memory and time than all weights.
    """
    home = _home(folder / _HOME, {})
    words = ["train", "sft", "--all", "--rules", "off", "--base", recipe.model]
    words += ["--dialect", find_suite(recipe.suite).dialect, "--name", _WARM, "--json"]
    for setting in (f"seed={recipe.seed}", *_SETTINGS, *recipe.settings):
        words += ["--set", setting]
    home.start()
    try:
        run = json.loads(home.run(*words, seconds=_PATIENCE).splitlines()[-1])
        if not run["policy"]:
            why = f"The training run {run['run']} {run['state']}."
            raise HoustonError(why, "Nothing was made.")
        merged = folder / _HOME / "model"
        home.run("policy", "merge", run["policy"], "--out", str(merged))
    finally:
        home.stop()
    for file in merged.iterdir():
        file.replace(folder / file.name)
    return dict(run["result"])


def _measure_validation(folder: Path, recipe: WarmUpRecipe) -> dict[str, Any]:
    """The model on validation tasks, by the embedded engine; figures of `suite run`."""
    dialect = find_suite(recipe.suite).dialect
    engine = {"kind": "embedded", "model": str(folder), "dialect": dialect}
    home = _home(folder / _HOME, {_WARM: engine}, recipe.at_once)
    return _suite_figures(home, recipe, "validation")


def _suite_figures(home: ExperimentHome, recipe: WarmUpRecipe, split: str) -> dict[str, Any]:
    engine, count = (_SCRIPTED, recipe.traces) if split == "train" else (_WARM, recipe.worlds)
    words = ("suite", "run", recipe.suite, "--split", split, "-n", str(count))
    home.start()
    try:
        output = home.run(*words, "--engine", engine, "--name", split, "--json", seconds=_PATIENCE)
        figures: dict[str, Any] = json.loads(output.splitlines()[-1])
        del figures["file"]
        return figures
    finally:
        home.stop()
