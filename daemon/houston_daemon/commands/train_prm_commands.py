"""`houston train prm`: train a process reward model on labels, as a child of the daemon.

Ctrl-C stops following; the run goes on. Training itself is `training.prm` and is not imported here.
"""

import argparse
from pathlib import Path

from houston_daemon.commands.train_rl_commands import (
    add_daemon_run_arguments,
    add_recipe_arguments,
    assign_gpus,
    follow_and_report,
    queue_daemon_run,
    require_no_flags_to_resume,
    require_resumable,
    run_folder_path,
    with_requested_gpus,
)
from houston_daemon.training.prm import create_prm_run, prm_recipe
from houston_daemon.training.prm.prm_run_folder import PrmRunFolder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon
from houston_shared.errors import UsageError

_DEFAULT_RECIPE = "small"


def add_train_prm_arguments(parser: argparse.ArgumentParser) -> None:
    """`--labels`, `--base`, recipe and settings."""
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="what decisions are worth (houston label)"
    )
    parser.add_argument(
        "--base", default="", metavar="MODEL", help="model that gets a head; default: the engine's"
    )
    add_recipe_arguments(parser, prm_recipe.RECIPES_FOLDER, _DEFAULT_RECIPE, "prm-recipe")
    parser.add_argument(
        "--name",
        default="",
        help=f"family of the resulting model ({create_prm_run.DEFAULT_PRM_FAMILY})",
    )
    add_daemon_run_arguments(parser)


def run_train_prm(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    require_daemon(loaded.home)
    folder = _resume_run(loaded, arguments) if arguments.resume else _create_run(loaded, arguments)
    queue_daemon_run(loaded, folder, folder.spec, create_prm_run.RUN_KIND)
    return follow_and_report(
        arguments,
        loaded,
        folder,
        lambda state: {"result": folder.result if state == "finished" else None},
        _advice,
    )


def _advice(policy: str) -> str:
    return (
        f"houston train dapo … --set process_reward={policy}, or process_reward ="
        f' "{policy}" in [review] for live scores'
    )


def _create_run(loaded: LoadedConfiguration, arguments: argparse.Namespace) -> PrmRunFolder:
    if arguments.labels is None:
        raise UsageError(
            "A process reward model is trained on labels, and --labels names none.",
            NOTHING_TRAINED_MESSAGE,
            "houston label R… --out labels.jsonl",
        )
    request = create_prm_run.PrmRequest(
        labels=arguments.labels,
        recipe=arguments.recipe or _DEFAULT_RECIPE,
        settings=arguments.settings,
        base=arguments.base,
        name=arguments.name or create_prm_run.DEFAULT_PRM_FAMILY,
    )
    folder = create_prm_run.create_prm_run(loaded, request)
    assign_gpus(arguments, loaded, folder, folder.spec)
    return folder


def _resume_run(loaded: LoadedConfiguration, arguments: argparse.Namespace) -> PrmRunFolder:
    """The folder of a run that goes on. Raises HoustonError for what it cannot have otherwise."""
    require_no_flags_to_resume(arguments, "labels", "base", "recipe", "name")
    folder = PrmRunFolder(run_folder_path(loaded, arguments.resume))
    require_resumable(loaded, folder, folder.spec)
    folder.write_spec(with_requested_gpus(arguments, folder.spec))
    return folder
