"""The stages that train one arm: rows of its rollouts once, a policy for each seed.

What distinguishes the arms is here: which rollouts, and whether masks count (APOLLO §4.4).
"""

import json
import time
from pathlib import Path
from typing import Any

from houston_daemon.training.experiment.recipe import Arm
from houston_daemon.training.experiment.run import ALONE, GUIDED, Run, model_folder
from houston_daemon.training.experiment.stages import Begun
from houston_shared import training_progress
from houston_shared.errors import HoustonError
from houston_shared.store.queries import training_runs

ENDED = ("finished", "failed", "cancelled")
LOOK_SECONDS = 0.5
SAMPLED: dict[Arm, str] = {
    "without-interaction": ALONE,
    "without-masking": GUIDED,
    "full": GUIDED,
}
"""By trained arm, whose rollouts it learns from."""


def rows(run: Run, arm: Arm, begun: Begun) -> dict[str, Any]:
    """Export the rows of what was sampled for an arm; where they are, and the manifest's counts.

    They stand as their rollouts began, by kind and place: ids end by chance, and the order that a
    seed trains in follows from where rows stand.
    """
    some = list((run.stages.done(f"sample-{SAMPLED[arm]}") or {"rollouts": {}})["rollouts"])
    dialect = str(run.recipe.model.engine.get("dialect", "chatml-json"))
    out = run.folder / "rows" / arm
    words = ["export", *some, "--as-named", "--format", "trl", "--out", str(out)]
    words += ["--leave-out", "--force"]
    words += ["--dialect", dialect, "--tokenizer", str(_tokenizer(run))]
    words += ["--window", str(window(run)), "--json"]
    words += ["--rules", "run" if run.recipe.masks.rules else "off"]
    if arm == "without-masking":
        words.append("--no-masking")
    told = json.loads(run.ground.run(*words))
    return {
        "folder": str(out.relative_to(run.folder)),
        "rollouts": len(some),
        "rows": told["rows"],
        "content_hash": told["content_hash"],
        "counts": told["counts"],
        "left_out": told["left_out"],
    }


def _tokenizer(run: Run) -> Path:
    """The `tokenizer.json` of the model that is trained."""
    named = str(run.recipe.model.engine.get("tokenizer", ""))
    return Path(named) if named else model_folder(run.recipe) / "tokenizer.json"


def window(run: Run) -> int:
    """The model's window in tokens, as its engine will have it."""
    if given := int(run.recipe.model.engine.get("window", 0)):
        return given
    file = model_folder(run.recipe) / "config.json"
    try:
        return int(json.loads(file.read_text(encoding="utf-8"))["max_position_embeddings"])
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(f"{file} does not say the model's window: {problem}.") from problem


def train(run: Run, arm: Arm, seed: int, data: str, begun: Begun) -> dict[str, Any]:
    """Train with one seed, as a child of the daemon; the policy's name and how it went.

    Raises HoustonError when the training run fails.
    """
    made = run.recipe.sft
    words = ["train", "sft", "--data", str(run.folder / data), "--recipe", _recipe(run)]
    words += ["--name", f"{arm}-s{seed}", "--base", str(model_folder(run.recipe)), *made.options]
    words += ["--set", f"seed={seed}", "--detach", "--json"]
    name = str(begun.get("run", lambda: json.loads(run.ground.run(*words))["run"]))
    if _followed(run, name).state != "finished":
        run.ground.run("train", "sft", "--resume", name, "--json", seconds=run.seconds)
    ended = _followed(run, name)
    how = training_progress.read(run.ground.home, name)
    if ended.state != "finished" or not ended.policy or how is None:
        raise HoustonError(
            f"The training run {name} {ended.state}: {ended.reason or 'it gave no policy'}.",
            "The experiment stops here.",
            f"HOUSTON_HOME={run.ground.home.path} houston train sft --resume {name}",
        )
    return {
        "policy": ended.policy,
        "run": name,
        "seed": seed,
        "steps": how.steps,
        "tokens": how.tokens,
        "tokens_per_second": how.tokens_per_second,
        "memory_bytes": how.memory_bytes,
    }


def _recipe(run: Run) -> str:
    """A preset's name, or the file that the run keeps."""
    own = run.folder / "sft.toml"
    return str(own) if own.is_file() else run.recipe.sft.recipe


def _followed(run: Run, name: str) -> training_runs.TrainingRun:
    """The training run at its end. Raises HoustonError when that does not come."""
    end = time.monotonic() + run.seconds
    while time.monotonic() < end:
        one: training_runs.TrainingRun | None = run.ground.read(training_runs.one(name))
        if one is not None and one.state in ENDED:
            return one
        time.sleep(LOOK_SECONDS)
    raise HoustonError(f"The training run {name} has not ended after {run.seconds:.0f} s.")
