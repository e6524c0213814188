"""The stages of an experiment from first to last: sample, judge, rows, then train and measure arm
by arm.

Judging runs the rules and a scripted judge that knows the solution; training exports the rows of
an arm once and trains a policy for each seed. What distinguishes the arms is here: which
rollouts, and whether masks count (APOLLO §4.4). Each stage is run only once.
"""

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from houston_daemon.engines.local_model import configured_window
from houston_daemon.experiments import (
    experiment_recipe,
    experiment_report,
    measure_stage,
    sample_stage,
)
from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_recipe import Arm
from houston_daemon.experiments.experiment_run import (
    GUIDED_ENGINE,
    MODEL_ENGINE,
    UNGUIDED_ENGINE,
    ExperimentRun,
    StageProgress,
    StageStore,
    model_folder,
    run_vocabulary,
)
from houston_daemon.experiments.experiment_tasks import WorldSolutions
from houston_daemon.experiments.sample_stage import actions_of_steps
from houston_daemon.experiments.scripted_agents import measure_progress
from houston_daemon.experiments.scripted_endpoint import ScriptedEndpoint, endpoint_engine
from houston_shared import policy_and_run_files
from houston_shared.errors import HoustonError
from houston_shared.store import annotation_queries, policy_queries, rollout_queries
from houston_shared.store.training_event_bodies import ENDED_RUN_STATES
from houston_shared.times_and_counts import number_ranges

JUDGE_AUTHOR = "simulated-judge"
OFF_SOLUTION_REASON = "not on the way of the solution"
_ROLLOUTS_PER_COMMAND = 50
"""Rollouts of one command."""


def judge_rollouts(
    run: ExperimentRun,
    rollouts: Mapping[str, str],
    solutions: WorldSolutions,
    begun_work: StageProgress,
) -> dict[str, Any]:
    """Judge `rollouts` (by id what each was for); how many steps were masked by whom."""
    ids = sorted(rollouts)
    if run.recipe.masks.rules:
        for start in range(0, len(ids), _ROLLOUTS_PER_COMMAND):
            run.experiment_home.run(
                "judge", *ids[start : start + _ROLLOUTS_PER_COMMAND], "--rules-only"
            )
    if run.recipe.masks.solution:
        for rollout in ids:
            if rollouts[rollout] != "orders":
                begun_work.get(rollout, partial(_mask_by_solution, run, rollout, solutions))
    return {"steps": _count_masks(run, ids)}


def _mask_by_solution(run: ExperimentRun, rollout: str, solutions: WorldSolutions) -> list[int]:
    """Mask what is not on the way; the masked steps."""
    spec = run.experiment_home.read(
        rollout_queries.read_rollout_spec(
            run.experiment_home.read(rollout_queries.find_rollout(rollout))
        )
    )
    steps = run.experiment_home.steps(rollout)
    progress = measure_progress(solutions.solution_of(rollout, spec), actions_of_steps(steps))
    off = [step.step for step, good in zip(steps, progress.was_on_path, strict=True) if not good]
    run.experiment_home.mask_steps(rollout, number_ranges(off), OFF_SOLUTION_REASON, JUDGE_AUTHOR)
    return off


def _count_masks(run: ExperimentRun, ids: Iterable[str]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for rollout in ids:
        verdicts = run.experiment_home.read(annotation_queries.read_verdicts_with_reasons(rollout))
        counting = [of_step[0] for of_step in verdicts.values()]
        counted["all"] += len(run.experiment_home.steps(rollout))
        counted.update(f"masked by {row.source}" for row in counting if row.verdict == "mask")
    return dict(counted)


POLL_SECONDS = 0.5
ARM_ENGINES: dict[Arm, str] = {
    "without-interaction": UNGUIDED_ENGINE,
    "without-masking": GUIDED_ENGINE,
    "full": GUIDED_ENGINE,
}
"""By trained arm, whose rollouts it learns from."""


def export_arm_rows(run: ExperimentRun, arm: Arm, begun_work: StageProgress) -> dict[str, Any]:
    """Export the rows sampled for an arm; returns where they are, and the manifest's counts.

    Rows follow the order in which their rollouts began, by kind and place: ids end in random
    characters, and the training order of a seed depends on the order of rows.
    """
    sampled = run.stages.result(f"sample-{ARM_ENGINES[arm]}") or {}
    rollouts = list(sampled.get("rollouts", {}))
    dialect = str(run.recipe.model.engine.get("dialect", "chatml-json"))
    out = run.folder / "rows" / arm
    words = ["export", *rollouts, "--as-named", "--format", "trl", "--out", str(out)]
    words += ["--leave-out", "--force"]
    words += ["--dialect", dialect, "--tokenizer", str(_tokenizer_path(run))]
    words += ["--window", str(model_window(run)), "--json"]
    words += ["--rules", "run" if run.recipe.masks.rules else "off"]
    if arm == "without-masking":
        words.append("--no-masking")
    manifest = json.loads(run.experiment_home.run(*words))
    return {
        "folder": str(out.relative_to(run.folder)),
        "rollouts": len(rollouts),
        "rows": manifest["rows"],
        "content_hash": manifest["content_hash"],
        "counts": manifest["counts"],
        "left_out": manifest["left_out"],
    }


def _tokenizer_path(run: ExperimentRun) -> Path:
    """The `tokenizer.json` of the model that is trained."""
    path = str(run.recipe.model.engine.get("tokenizer", ""))
    return Path(path) if path else model_folder(run.recipe) / "tokenizer.json"


def model_window(run: ExperimentRun) -> int:
    """The model's window in tokens, as its engine will have it."""
    if window := int(run.recipe.model.engine.get("window", 0)):
        return window
    folder = model_folder(run.recipe)
    if window := configured_window(folder):
        return window
    raise HoustonError(f"{folder / 'config.json'} does not say the model's window.")


def train_arm(
    run: ExperimentRun, arm: Arm, seed: int, data: str, begun_work: StageProgress
) -> dict[str, Any]:
    """Train with one seed, as a child of the daemon; the policy's name and how it went.

    Raises HoustonError when the training run fails.
    """
    recipe = run.recipe.sft
    words = ["train", "sft", "--data", str(run.folder / data), "--recipe", _sft_recipe(run)]
    words += ["--name", f"{arm}-s{seed}", "--base", str(model_folder(run.recipe)), *recipe.options]
    words += ["--set", f"seed={seed}", "--detach", "--json"]
    name = str(begun_work.get("run", lambda: json.loads(run.experiment_home.run(*words))["run"]))
    if _await_training(run, name).state != "finished":
        run.experiment_home.run("train", "sft", "--resume", name, "--json", seconds=run.seconds)
    ended = _await_training(run, name)
    progress = policy_and_run_files.read_training_progress(run.experiment_home.home, name)
    if ended.state != "finished" or not ended.policy or progress is None:
        raise HoustonError(
            f"The training run {name} {ended.state}: {ended.reason or 'it gave no policy'}.",
            "The experiment stops here.",
            f"HOUSTON_HOME={run.experiment_home.home.path} houston train sft --resume {name}",
        )
    return {
        "policy": ended.policy,
        "run": name,
        "seed": seed,
        "steps": progress.steps,
        "tokens": progress.tokens,
        "tokens_per_second": progress.tokens_per_second,
        "memory_bytes": progress.memory_bytes,
    }


def _sft_recipe(run: ExperimentRun) -> str:
    """A preset's name, or the file that the run keeps."""
    file = run.folder / "sft.toml"
    return str(file) if file.is_file() else run.recipe.sft.recipe


def _await_training(run: ExperimentRun, name: str) -> policy_queries.TrainingRunRow:
    """The training run at its end. Raises HoustonError when that does not come."""
    end = time.monotonic() + run.seconds
    while time.monotonic() < end:
        record: policy_queries.TrainingRunRow | None = run.experiment_home.read(
            policy_queries.find_training_run(name)
        )
        if record is not None and record.state in ENDED_RUN_STATES:
            return record
        time.sleep(POLL_SECONDS)
    raise HoustonError(f"The training run {name} has not ended after {run.seconds:.0f} s.")


def open_run(folder: Path, say: Callable[[str], None], seeds: int | None = None) -> ExperimentRun:
    """The run that lies in `folder`, its daemon not started. seeds: only the first so many."""
    recipe = experiment_recipe.read_recipe(folder / "recipe.toml")
    stages = StageStore(folder / "stages", say)
    ports = stages.kept_value("ports", _free_ports)
    engines = {name: endpoint_engine(port) for name, port in ports.items()}
    engines[MODEL_ENGINE] = {"kind": "vllm", **recipe.model.engine}
    experiment_home = ExperimentHome(folder / "ground", engines, recipe.at_once, recipe.gpus)
    if seeds is not None:
        recipe = experiment_recipe.with_seeds(recipe, seeds)
    return ExperimentRun(folder, recipe, experiment_home, stages, run_vocabulary(folder), say)


def conduct_experiment(run: ExperimentRun, only: Sequence[Arm] = ()) -> str:
    """Do what is not done yet, and write the report; its path. Raises HoustonError.

    only: leave the other arms for another time.
    """
    arms = [arm for arm in run.recipe.arms if not only or arm in only]
    run.experiment_home.start()
    try:
        sample_and_judge(run, arms)
        for seed in run.recipe.seeds:
            for arm in arms:
                _train_and_measure(run, arm, seed)
    finally:
        run.experiment_home.stop()
    return experiment_report.write_report(run)


def sample_and_judge(run: ExperimentRun, arms: Sequence[Arm]) -> None:
    """Sample and judge what the arms learn from; the daemon runs."""
    kinds = {ARM_ENGINES[arm]: None for arm in arms if arm in ARM_ENGINES}
    pending = [kind for kind in kinds if run.stages.result(f"judge-{kind}") is None]
    solutions = WorldSolutions()
    with ExitStack() as serving:
        agents = {kind: sample_stage.SamplingAgents(run, kind, solutions) for kind in pending}
        for kind in pending:
            port = run.stages.kept_value("ports", _free_ports)[kind]
            serving.enter_context(ScriptedEndpoint(agents[kind], port))
        for kind in pending:
            sample = partial(sample_stage.sample_rollouts, run, kind, agents[kind])
            rollouts = run.stages.run_stage(f"sample-{kind}", sample)["rollouts"]
            run.stages.run_stage(f"judge-{kind}", partial(judge_rollouts, run, rollouts, solutions))


def _train_and_measure(run: ExperimentRun, arm: Arm, seed: int) -> None:
    """Train an arm with a seed, unless it is the base, and measure it."""
    policy = ""
    if arm in ARM_ENGINES:
        data = run.stages.run_stage(f"rows-{arm}", partial(export_arm_rows, run, arm))
        train = partial(train_arm, run, arm, seed, data["folder"])
        policy = run.stages.run_stage(f"train-{arm}-{seed}", train)["policy"]
    run.stages.run_stage(
        f"measure-{arm}-{seed}", partial(measure_stage.measure_arm, run, policy, seed)
    )


def _free_ports() -> dict[str, int]:
    """A port for each scripted sampler, which a run that goes on uses again."""
    with socket.socket() as guided, socket.socket() as unguided:
        for free in (guided, unguided):
            free.bind(("127.0.0.1", 0))
        return {
            GUIDED_ENGINE: int(guided.getsockname()[1]),
            UNGUIDED_ENGINE: int(unguided.getsockname()[1]),
        }
