"""`houston train prm`: train a process reward model on labels, as a child of the daemon.

Ctrl-C stops following; the run goes on. Training itself is `training.prm` and is not imported here.
"""

import argparse
from pathlib import Path

import msgspec

from houston_daemon.commands.train_rl_commands import (
    follow_and_report,
    queue_daemon_run,
    requested_gpus,
    require_no_flags_to_resume,
    require_unfinished,
    run_folder_path,
)
from houston_daemon.training.prm import create_prm_run, prm_recipe
from houston_daemon.training.prm.prm_run_folder import PrmRunFolder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon
from houston_shared.errors import ExitCode, HoustonError


def add_train_prm_arguments(parser: argparse.ArgumentParser) -> None:
    """`--labels`, `--base`, recipe and settings."""
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="what decisions are worth (houston label)"
    )
    parser.add_argument(
        "--base", default="", metavar="MODEL", help="model that is given a head; default: engine's"
    )
    names = ", ".join(prm_recipe.prm_recipe_names())
    parser.add_argument(
        "--recipe",
        default="small",
        metavar="RECIPE",
        help=f"{names}, or a TOML file (small); docs/prm-recipe.md has the keys",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the recipe, for this run",
    )
    parser.add_argument(
        "--name",
        default=create_prm_run.DEFAULT_PRM_FAMILY,
        help="family of the model that comes out (%(default)s)",
    )
    parser.add_argument(
        "--gpus", type=whole_number(0, 1), metavar="N", help="GPUs of this machine, at most one"
    )
    parser.add_argument("--share-gpus", action="store_true", help="a GPU on which an engine runs")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was cut short")
    parser.add_argument("--detach", action="store_true", help="return when it has been started")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")


def run_train_prm(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    require_daemon(loaded.home)
    folder = _resumed(loaded, arguments) if arguments.resume else _created(loaded, arguments)
    spec = folder.spec
    queue_daemon_run(loaded, folder, spec, create_prm_run.RUN_KIND)
    command_output.print_note(f"{folder.path.name}: {folder.path}")
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


def _created(loaded: LoadedConfiguration, arguments: argparse.Namespace) -> PrmRunFolder:
    if arguments.labels is None:
        raise HoustonError(
            "A process reward model is trained on labels, and --labels names none.",
            NOTHING_TRAINED_MESSAGE,
            "houston label R… --out labels.jsonl",
            ExitCode.USAGE,
        )
    request = create_prm_run.PrmRequest(
        labels=arguments.labels,
        recipe=arguments.recipe,
        settings=arguments.settings,
        base=arguments.base,
        name=arguments.name,
    )
    folder = create_prm_run.create_prm_run(loaded, request)
    spec = folder.spec
    gpus = requested_gpus(arguments, loaded, spec.recipe.device)
    folder.write_spec(msgspec.structs.replace(spec, gpus=gpus, share_gpus=arguments.share_gpus))
    return folder


def _resumed(loaded: LoadedConfiguration, arguments: argparse.Namespace) -> PrmRunFolder:
    """The folder of a run that goes on. Raises HoustonError for what it cannot have otherwise."""
    flags = [f"--{name}" for name in ("labels", "base") if getattr(arguments, name)]
    flags += ["--set"] if arguments.settings else []
    require_no_flags_to_resume(flags)
    folder = PrmRunFolder(run_folder_path(loaded, arguments.resume))
    require_unfinished(folder, folder.spec)
    return folder
