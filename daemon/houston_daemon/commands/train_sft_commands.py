"""`houston train sft R… | --data DIR`: train a model on rows, as a child of the daemon or alone.

Makes the folder of the run and starts the trainer, or has the daemon start it; then shows how the
run goes until it ends. `--resume` continues a run with its data and recipe. Training itself is
`training.sft` and is not imported here.
"""

import argparse
import secrets
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.commands import export_commands
from houston_daemon.commands.export_commands import (
    add_row_arguments,
    add_rules_argument,
    read_row_options,
)
from houston_daemon.commands.train_rl_commands import add_recipe_arguments, with_requested_gpus
from houston_daemon.training.export import export_manifest
from houston_daemon.training.policies.policy_constraints import activation_command
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.runs import run_progress
from houston_daemon.training.sft import create_run, sft_launch, sft_recipe, sft_run_folder
from houston_daemon.training.sft.run_policies import (
    data_manifest_hash,
    register_run,
    report_run_state,
)
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec
from houston_shared import command_output, secret_redaction
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from houston_shared.hub_models import parse_hub_id
from houston_shared.policy_and_run_files import full_run_name, is_policy_name, is_run_name
from houston_shared.store import policy_queries
from houston_shared.store.rollout_queries import select_rollout_ids
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import ENDED_RUN_STATES

DEFAULT_RECIPE = "small"
"""The recipe where none is named."""


def add_train_sft_arguments(parser: argparse.ArgumentParser) -> None:
    """Rollouts or data, a recipe with settings, where it runs."""
    export_commands.add_selection_arguments(parser, "rollouts, exported for it first")
    parser.add_argument("--data", metavar="DIR", type=Path, help="what `export --format trl` wrote")
    parser.add_argument(
        "--held-out",
        nargs="+",
        action="extend",
        default=[],
        metavar="TASK",
        help="tasks of R that are not trained on, whose loss is measured; or a share, such as 0.2",
    )
    add_row_arguments(parser)
    add_rules_argument(parser)
    add_recipe_arguments(parser, sft_recipe.RECIPES_FOLDER, DEFAULT_RECIPE, "training")
    # So that what was said can be told.
    parser.set_defaults(rules=None, **dict.fromkeys(_default_row_flags()))
    base = "model to train, a folder or org/name@revision; or a policy to continue from: policy@2"
    parser.add_argument("--base", metavar="MODEL|POLICY", help=base)
    parser.add_argument("--full", action="store_true", help="train all weights, no LoRA adapter")
    parser.add_argument(
        "--name",
        default="",
        help="family of the resulting policy (policy, or that of --base POLICY)",
    )
    _add_placement_arguments(parser)


def _add_placement_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it runs, and until when it is followed."""
    parser.add_argument(
        "--accelerate",
        metavar="FILE",
        help=f"several processes: {', '.join(sft_launch.accelerate_names())}, or an accelerate"
        " file",
    )
    parser.add_argument(
        "--gpus",
        type=whole_number(0, 1024),
        metavar="N",
        help="GPUs of this machine; several: of the Ray cluster, if there is one",
    )
    parser.add_argument(
        "--share-gpus",
        action=argparse.BooleanOptionalAction,
        help="use GPUs on which an engine runs",
    )
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted run")
    parser.add_argument(
        "--alone", action="store_true", help="run outside the daemon, not as its child"
    )
    parser.add_argument("--detach", action="store_true", help="return once it has started")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")


def run_train_sft(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    if arguments.resume:
        _check_resume_flags(arguments)
        arguments.resume = full_run_name(loaded.home, arguments.resume)
    if (finished := _finished_without_policy(arguments, loaded)) is not None:
        _register_finished_run(loaded, finished, arguments.name)
        return _say_run_state(arguments, loaded, finished, "finished")
    daemon_runs = find_running_daemon(loaded.home) is not None
    alone = bool(arguments.alone) or not daemon_runs
    beside_daemon = alone and daemon_runs
    planned = _plan_run(arguments, loaded)
    gpus = _gpu_count(arguments, loaded, planned)
    ray = sft_launch.ray_address(loaded, planned.recipe, gpus)
    gpu_environment = (
        sft_launch.environment_with_gpus(loaded, planned.run, gpus, planned.share_gpus)
        if alone
        else {}
    )
    spec = planned if arguments.resume else _make_run(arguments, loaded)
    folder = sft_run_folder.folder_of_run(loaded.home, spec.run)
    folder.write_spec(msgspec.structs.replace(spec, beside=beside_daemon))
    if daemon_runs:
        _report_killed_run(loaded, folder.path.name)
    run_progress.ProgressWriter(folder.path).set_state("queued")  # what an earlier try said is over
    if daemon_runs:
        _tell_daemon(loaded, folder, gpus, alone)
    child = sft_launch.start_trainer(folder.path, gpus, gpu_environment, ray) if alone else None
    if beside_daemon:
        report_run_state(loaded, folder.path.name, "running")
    command_output.print_note(f"{folder.path.name}: {folder.path}")
    if arguments.detach:
        return _say_run_state(arguments, loaded, folder, "running")
    state = (
        sft_launch.follow_process(child, folder)
        if child
        else sft_launch.follow_daemon_run(loaded, folder)
    )
    if beside_daemon and state == "failed":  # where it could not say so
        report_run_state(loaded, folder.path.name, "failed", "its process was killed")
    return _say_run_state(arguments, loaded, folder, state)


def _finished_without_policy(
    arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> RunFolder | None:
    """The run to go on with, where that has finished and no daemon has taken its policy."""
    run = arguments.resume
    if not run or not is_run_name(run) or _policy_of_run(loaded, run):
        return None
    folder = sft_run_folder.folder_of_run(loaded.home, run)
    progress = run_progress.read_progress(folder.path)
    return folder if progress is not None and progress.state == "finished" else None


def _register_finished_run(loaded: LoadedConfiguration, folder: RunFolder, name: str) -> None:
    """Have the daemon take down a run that has finished, and the policy that came of it.

    name: family of the policy, where another is asked for.
    """
    if name:
        folder.write_spec(create_run.rename_policy(loaded, folder.spec, name))
    run = folder.path.name
    if find_running_daemon(loaded.home) is None:
        raise HoustonError(
            f"{run} has finished, and no daemon runs that could take its policy.",
            f"It is in {folder.output}.",
            f"houston daemon start, then {folder.resume_command}",
            ExitCode.DAEMON_NOT_RUNNING,
        )
    with Reader(loaded.home) as reader:
        row = reader.run(policy_queries.find_training_run(run))
    if row is None or row.state in ("failed", "cancelled"):
        _tell_daemon(loaded, folder, 0, True)
    register_run(loaded, folder)
    if row is None or row.alone or row.state != "finished":
        report_run_state(loaded, run, "finished")


def _report_killed_run(loaded: LoadedConfiguration, run: str) -> None:
    """Say that a run beside the daemon has failed whose trainer was killed with all who could have
    said so: nobody is at work in its folder (`RunFolder.resume_command`)."""
    with Reader(loaded.home) as reader:
        row = reader.run(policy_queries.find_training_run(run))
    if row is not None and row.alone and row.state not in ENDED_RUN_STATES:
        report_run_state(loaded, run, "failed", "its process was killed")


def _default_row_flags() -> dict[str, Any]:
    """The flags of how rows are made, with what holds where nobody says."""
    plain = argparse.ArgumentParser(add_help=False)
    add_row_arguments(plain)
    return vars(plain.parse_args([]))


def _check_resume_flags(arguments: argparse.Namespace) -> None:
    """Raise HoustonError for what a run that goes on cannot have otherwise: it has its rows."""
    names = ["data", "held_out", "rules", *_default_row_flags(), "recipe"]
    flags = ["rollouts"] if export_commands.read_selection(arguments).is_given else []
    flags += [
        f"--{name.replace('_', '-')}"
        for name in names
        if getattr(arguments, name) not in (None, [])
    ]
    if flags:
        raise UsageError(
            f"A resumed run already has its data and recipe: --resume takes no {', '.join(flags)}.",
            sft_recipe.NOTHING_TRAINED_MESSAGE,
            "Leave that out, or train a new run without --resume",
        )


def _plan_run(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> RunSpec:
    """What is asked of a run that goes on, or of a new one as far as its words say; nothing is
    written yet."""
    settings = _recipe_settings(arguments)
    if arguments.resume:
        spec = create_run.request_resume(loaded, arguments.resume, settings, arguments.name)
    else:
        spec = RunSpec(
            run="", recipe=sft_recipe.load_recipe(arguments.recipe or DEFAULT_RECIPE, settings)
        )
    return with_requested_gpus(arguments, spec)


def _make_run(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> RunSpec:
    """Make the folder of a new run: what is asked of it, with all that was found for it."""
    secret_redaction.install_secrets(loaded.config)
    request = create_run.TrainingRequest(
        _selected_rollouts(arguments, loaded),
        arguments.data,
        arguments.held_out,
        _row_options_with_defaults(arguments, loaded.home),
        arguments.recipe or DEFAULT_RECIPE,
        _recipe_settings(arguments),
        arguments.name,
        arguments.rules or "run",
    )
    created = create_run.create_run_folder(loaded, request)
    command_output.print_note(export_manifest.judged_by_sentence(created.manifest))
    return with_requested_gpus(arguments, created.spec)


def _recipe_settings(arguments: argparse.Namespace) -> list[str]:
    settings = list(arguments.settings)
    settings += [f"base={_resolve_base(arguments.base)}"] if arguments.base else []
    settings += ["full=true"] if arguments.full else []
    settings += [f"accelerate={arguments.accelerate}"] if arguments.accelerate else []
    return settings


def _row_options_with_defaults(arguments: argparse.Namespace, home: Home) -> RowOptions:
    flags = {name: getattr(arguments, name) for name in _default_row_flags()}
    flags = {name: value for name, value in flags.items() if value is not None}
    return read_row_options(argparse.Namespace(**{**_default_row_flags(), **flags}), home)


def _resolve_base(named: str) -> str:
    """What `--base` names, so that it holds in any folder; an id of the hub as it is."""
    is_name = is_policy_name(named) or parse_hub_id(named) is not None
    return named if is_name else str(Path(named).absolute())


def _selected_rollouts(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> list[str]:
    """Whole ids of the rollouts to train on; none where data are named."""
    selection = export_commands.read_selection(arguments)
    if not selection.is_given:
        return []
    with Reader(loaded.home) as reader:
        return reader.run(select_rollout_ids(selection, sft_recipe.NOTHING_TRAINED_MESSAGE))


def _gpu_count(arguments: argparse.Namespace, loaded: LoadedConfiguration, spec: RunSpec) -> int:
    """As many as were asked for; else one where this host has any.

    On the CPU none: a run may go on there that had some.
    """
    if arguments.gpus is None and spec.recipe.device == "cpu":
        return 0
    return min(1, loaded.gpus(LOCAL_HOST)) if spec.gpus is None else spec.gpus


def _tell_daemon(loaded: LoadedConfiguration, folder: RunFolder, gpus: int, alone: bool) -> None:
    """Have the daemon queue it, or note that it runs alone."""
    from houston_shared.control_client import send_with_retry
    from houston_shared.control_messages import StartTraining

    spec = folder.spec
    message = StartTraining(
        request=secrets.token_hex(16),
        run=spec.run,
        alone=alone,
        name=spec.name,
        parent=spec.parent,
        base=spec.recipe.base,
        base_hash=spec.base_hash,
        rollouts=spec.rollouts,
        manifest=data_manifest_hash(folder.data),
        recipe=msgspec.to_builtins(spec.recipe),
        gpus=gpus,
        share_gpus=spec.share_gpus,
    )
    send_with_retry(
        loaded.home, message, "It may have been queued.", f"houston train show {spec.run}"
    )


def _say_run_state(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, folder: RunFolder, state: str
) -> int:
    progress, run = run_progress.read_progress(folder.path), folder.path.name
    policy = _policy_of_run(loaded, run)
    if arguments.json:
        fields = {"run": run, "state": state, "folder": str(folder.path), "policy": policy}
        fields |= {"output": str(folder.output) if folder.output.is_dir() else None}
        command_output.print_json_line({**fields, "result": folder.result})
    elif state == "finished" and policy:
        command_output.print_line(f"{run} became {policy}.")
        command_output.print_note(f"next: {activation_command(loaded, policy)}")
    elif state == "finished":
        command_output.print_line(
            f"{run}: no daemon runs, so no policy was registered; it is in {folder.output}."
        )
        command_output.print_note(f"next: houston daemon start, then {folder.resume_command}")
    elif state in ("failed", "cancelled"):
        raise _run_failure(
            folder, state, progress.message if progress and progress.state == state else ""
        )
    else:
        command_output.print_line(run)
    return int(ExitCode.FAILED if state in ("failed", "cancelled") else ExitCode.DONE)


def _run_failure(folder: RunFolder, state: str, message: str) -> HoustonError:
    """What the trainer said of its end, with its own advice: the same again may be of no use."""
    effect, _, advice = message.partition(" Next: ")
    cause = f"{folder.path.name} {'failed' if state == 'failed' else 'was ended'}."
    return HoustonError(cause, effect, advice if message else folder.resume_command)


def _policy_of_run(loaded: LoadedConfiguration, run: str) -> str | None:
    if not loaded.home.database.exists():
        return None
    with Reader(loaded.home) as reader:
        row = reader.run(policy_queries.find_training_run(run))
    return row.policy or None if row else None
