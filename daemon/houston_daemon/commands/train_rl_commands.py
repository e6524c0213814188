"""`houston train dapo` and `houston train grpo`: train a policy on rollouts of a suite, as a child
of the daemon.

Both are the same trainer with another recipe. The daemon samples, so it has to run. Ctrl-C stops
following; the run goes on. Training itself is `training.rl` and is not imported here.
"""

import argparse
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from houston_daemon.training.policies.policy_constraints import activation_command
from houston_daemon.training.rl import create_rl_run, rl_recipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.runs import run_progress
from houston_daemon.training.runs.run_folder import TrainingRunFolder, TrainingRunSpec
from houston_daemon.training.sft import create_run, sft_launch
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, packaged_recipe_names
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.control_client import require_daemon, send_with_retry
from houston_shared.control_messages import StartTraining
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.policy_and_run_files import (
    full_run_name,
    is_run_name,
    missing_run_error,
    training_folder,
)
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import RunKind
from houston_shared.training_figures import read_run_figures

Spec = TypeVar("Spec", bound=msgspec.Struct)


def add_train_dapo_arguments(parser: argparse.ArgumentParser) -> None:
    """`--suite`, `--engine`, `--base`, recipe and settings, where it runs."""
    add_train_rl_arguments(parser, "dapo")


def add_train_grpo_arguments(parser: argparse.ArgumentParser) -> None:
    """The same, with the recipe `grpo`."""
    add_train_rl_arguments(parser, "grpo")


def run_train_dapo(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    return run_train_rl(arguments, loaded, "dapo")


def run_train_grpo(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """The same, with the recipe `grpo`."""
    return run_train_rl(arguments, loaded, "grpo")


def add_train_rl_arguments(parser: argparse.ArgumentParser, algorithm: str) -> None:
    """Of a command whose default recipe has the name of its algorithm."""
    parser.add_argument(
        "--suite", metavar="SUITE", default="", help="tasks to train on (houston suite list)"
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        default="",
        help="engine that samples, embedded or vllm; default: `default_engine`",
    )
    parser.add_argument(
        "--base",
        default="",
        metavar="POLICY",
        help="continue from policy@2; default: engine's model",
    )
    add_recipe_arguments(parser, rl_recipe.RECIPES_FOLDER, algorithm, "rl-recipe")
    parser.add_argument("--name", default="", help="family of the resulting policies")
    add_daemon_run_arguments(parser)


def add_recipe_arguments(
    parser: argparse.ArgumentParser, folder: Path, default: str, page: str
) -> None:
    """Add `--recipe` (None if not given) and `--set`. folder: of packaged recipes. default: the
    recipe used then, for the help. page: of docs/, with the keys."""
    names = packaged_recipe_names(folder)
    parser.add_argument(
        "--recipe",
        metavar="RECIPE",
        help=f"{', '.join(names)}, or a TOML file ({default}); docs/{page}.md has the keys",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the recipe, for this run",
    )


def add_daemon_run_arguments(parser: argparse.ArgumentParser) -> None:
    """How the daemon runs it: GPUs, whether it goes on, whether it is followed."""
    parser.add_argument(
        "--gpus", type=whole_number(0, 1), metavar="N", help="GPUs of this machine, at most one"
    )
    parser.add_argument(
        "--share-gpus",
        action=argparse.BooleanOptionalAction,
        help="use a GPU on which an engine runs",
    )
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted run")
    parser.add_argument("--detach", action="store_true", help="return once it has started")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")


def run_train_rl(arguments: argparse.Namespace, loaded: LoadedConfiguration, algorithm: str) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    if arguments.resume:
        require_daemon(loaded.home)
        folder = _resume_run(loaded, arguments)
    else:
        folder = _create_run(loaded, arguments, algorithm)
    spec = folder.spec
    queue_daemon_run(loaded, folder, spec, create_rl_run.RUN_KIND, spec.parent)
    return follow_and_report(
        arguments,
        loaded,
        folder,
        lambda _: {"updates": folder.updates},
        lambda policy: activation_command(loaded, policy, spec.recipe.engine),
    )


def _create_run(
    loaded: LoadedConfiguration, arguments: argparse.Namespace, algorithm: str
) -> RlRunFolder:
    request = create_rl_run.RlRequest(
        algorithm=algorithm,
        suite=arguments.suite,
        recipe=arguments.recipe or algorithm,
        settings=arguments.settings,
        engine=arguments.engine,
        base=arguments.base,
        name=arguments.name,
    )
    recipe = create_rl_run.read_asked_recipe(request)  # what was typed is the first thing to say
    require_daemon(loaded.home)
    folder = create_rl_run.create_rl_run(loaded, request, recipe)
    assign_gpus(arguments, loaded, folder, folder.spec)
    return folder


def _resume_run(loaded: LoadedConfiguration, arguments: argparse.Namespace) -> RlRunFolder:
    """The folder of a run that goes on. Raises HoustonError for what it cannot have otherwise."""
    require_no_flags_to_resume(arguments, "suite", "engine", "base", "recipe", "name")
    folder = RlRunFolder(run_folder_path(loaded, arguments.resume))
    require_resumable(loaded, folder, folder.spec)
    folder.write_spec(with_requested_gpus(arguments, folder.spec))
    return folder


def assign_gpus(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    folder: TrainingRunFolder,
    spec: TrainingRunSpec[Any],
) -> None:
    """Write into the folder how many GPUs a new run gets: as many as `--gpus` says; by default one
    if there are any, none for the CPU."""
    gpus = 0 if spec.recipe.device == "cpu" else min(1, loaded.gpus(LOCAL_HOST))
    folder.write_spec(with_requested_gpus(arguments, msgspec.structs.replace(spec, gpus=gpus)))


def with_requested_gpus(arguments: argparse.Namespace, spec: Spec) -> Spec:
    """The spec with the GPUs that were asked for; a resumed run keeps its own by default."""
    flags = {"gpus": arguments.gpus, "share_gpus": arguments.share_gpus}
    changed = {key: value for key, value in flags.items() if value is not None}
    return msgspec.structs.replace(spec, **changed)


def run_folder_path(loaded: LoadedConfiguration, run: str) -> Path:
    """Where a run's folder lies. Raises HoustonError for what is no name of a run."""
    run = full_run_name(loaded.home, run)
    if not is_run_name(run):
        raise missing_run_error(run, NOTHING_TRAINED_MESSAGE)
    return training_folder(loaded.home) / run


def queue_daemon_run(
    loaded: LoadedConfiguration,
    folder: TrainingRunFolder,
    spec: TrainingRunSpec[Any],
    kind: RunKind,
    parent: str = "",
) -> None:
    """Have the daemon queue a run, whatever an earlier try said of it. Raises HoustonError."""
    message = StartTraining(
        request=secrets.token_hex(16),
        run=spec.run,
        kind=kind,
        name=spec.name,
        parent=parent,
        base=spec.recipe.base,
        base_hash=spec.base_hash,
        recipe=msgspec.to_builtins(spec.recipe),
        gpus=spec.gpus,
        share_gpus=spec.share_gpus,
    )
    run_progress.ProgressWriter(folder.path).set_state("queued")
    send_with_retry(
        loaded.home, message, "It may have been queued.", f"houston train show {message.run}"
    )
    command_output.print_note(f"{folder.path.name}: {folder.path}")


def require_ended_well(folder: TrainingRunFolder, state: str) -> None:
    """Raise HoustonError for a run that failed or was cancelled, with what its trainer said."""
    if state not in ("failed", "cancelled"):
        return
    progress = run_progress.read_progress(folder.path)
    effect, _, advice = (progress.message if progress else "").partition(" Next: ")
    ending = "failed" if state == "failed" else "was ended"
    raise HoustonError(f"{folder.path.name} {ending}.", effect, advice or folder.resume_command)


def require_no_flags_to_resume(arguments: argparse.Namespace, *names: str) -> None:
    """Raise HoustonError if a resumed run is given flags that only a new one takes: one of these,
    or a setting."""
    flags = ["--set"] if arguments.settings else []
    flags += [f"--{name}" for name in names if getattr(arguments, name)]
    if flags:
        raise UsageError(
            f"A resumed run already has its recipe: --resume takes no {', '.join(flags)}.",
            NOTHING_TRAINED_MESSAGE,
            "houston train list",
        )


def require_resumable(loaded: LoadedConfiguration, folder: TrainingRunFolder, spec: object) -> None:
    """Raise HoustonError for a run that has finished, or that the daemon has. spec: the run's, read
    already."""
    run = folder.path.name
    progress = run_progress.read_progress(folder.path)
    if spec and progress is not None and progress.state == "finished":
        raise HoustonError(
            f"{run} has finished: {folder.output}.", next=f"houston train show {run}"
        )
    create_run.check_not_daemon_run(loaded, run)


def follow_and_report(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    folder: TrainingRunFolder,
    details: Callable[[str], Mapping[str, object]],
    advice: Callable[[str], str],
) -> int:
    """Wait for a run unless `--detach` says not to, and print what came of it.

    details: for `--json`, given how it ended. advice: the next command, given the policy that came
    out. Raises HoustonError where it failed.
    """
    run = folder.path.name
    state = "running" if arguments.detach else sft_launch.follow_daemon_run(loaded, folder)
    require_ended_well(folder, state)
    with Reader(loaded.home) as reader:
        row = reader.run(policy_queries.find_training_run(run))
    policy = row.policy if row else ""
    best = read_run_figures(folder.path).best_validated
    if arguments.json:
        facts = {"run": run, "state": state, "folder": str(folder.path), "policy": policy}
        chosen = best._asdict() if best else None
        command_output.print_json_line({**facts, "best_validated": chosen, **details(state)})
    elif state == "finished":
        command_output.print_line(f"{run} became {policy}.")
        if best:
            command_output.print_line(
                f"{best.policy} solved most validation tasks, {best.solved:.0%} of {best.tasks}."
            )
        command_output.print_note(f"next: {advice(best.policy if best else policy)}")
    else:
        command_output.print_line(run)
    return int(ExitCode.DONE)
