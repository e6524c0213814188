"""`houston train sft R… | --data DIR`: train a model on rows, as a child of the daemon or alone.

It makes the folder of the run and starts the trainer, or has the daemon start it; then it shows how
the run stands until it ends. Training itself is `training.sft`.
"""

import argparse
import secrets
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.commands import selecting
from houston_daemon.commands.export import row_arguments, row_options, rules_argument
from houston_daemon.training.export import judged
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.sft import (
    alone_gpus,
    asking,
    following,
    launch,
    progress,
    recipe,
    run_folder,
)
from houston_daemon.training.sft.finishing import manifest_hash, registered, tell
from houston_daemon.training.sft.run_folder import Asked, RunFolder
from houston_shared import out, secret_values
from houston_shared.config import Loaded
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.lock import holder
from houston_shared.policy_names import is_policy, is_run
from houston_shared.store.queries import training_runs
from houston_shared.store.queries.selection import chosen
from houston_shared.store.reader import Reader

SMALL = "small"
"""The recipe where none is named."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Rollouts or data, a recipe with settings, where it runs."""
    selecting.arguments(parser, "rollouts, exported for it first")
    parser.add_argument("--data", metavar="DIR", type=Path, help="what `export --format trl` wrote")
    parser.add_argument(
        "--held-out",
        nargs="+",
        action="extend",
        default=[],
        metavar="TASK",
        help="tasks of R that are not trained on, and whose loss is taken; or a share, as 0.2",
    )
    row_arguments(parser)
    rules_argument(parser)
    parser.set_defaults(
        rules=None, **dict.fromkeys(_rows_unsaid())
    )  # so that what was said can be told
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help=f"{', '.join(recipe.names())}, or a TOML file (small); docs/training.md has the keys",
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
        "--base",
        metavar="DIR|POLICY",
        help="folder of the model to train, or a policy to go on from: policy@2",
    )
    parser.add_argument("--full", action="store_true", help="train all weights, no LoRA adapter")
    parser.add_argument(
        "--name",
        default="",
        help="family of the policy that comes out (policy, or that of --base POLICY)",
    )
    parser.add_argument(
        "--accelerate",
        metavar="FILE",
        help=f"several processes: {', '.join(launch.named())}, or a file of accelerate",
    )
    parser.add_argument("--gpus", type=whole(0, 1024), metavar="N", help="GPUs of this machine")
    parser.add_argument(
        "--share-gpus",
        action=argparse.BooleanOptionalAction,
        help="use GPUs on which an engine runs",
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was cut short")
    parser.add_argument("--alone", action="store_true", help="beside the daemon, not as its child")
    parser.add_argument("--detach", action="store_true", help="return when it has been started")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Make or find the run, start it, follow it. Raises HoustonError."""
    if arguments.resume:
        _check_resumed(arguments)
    if (done := _waiting(arguments, loaded)) is not None:
        if arguments.name:
            done.ask(asking.renamed(loaded, done.asked, arguments.name))
        _take_in(loaded, done)
        return _say(arguments, loaded, done, "finished")
    there = holder(loaded.home) is not None
    alone = bool(arguments.alone) or not there
    beside = alone and there
    planned = _planned(arguments, loaded)
    gpus = _gpus(arguments, loaded, planned)
    sees = alone_gpus.seen(loaded, planned.run, gpus, planned.share_gpus) if alone else {}
    asked = planned if arguments.resume else _new(arguments, loaded)
    folder = run_folder.of(loaded.home, asked.run)
    folder.ask(msgspec.structs.replace(asked, beside=beside))
    if there:
        _bury(loaded, folder.path.name)
    progress.Writer(folder.path).set("queued")  # what an earlier try said is over
    if there:
        _tell(loaded, folder, gpus, alone)
    child = launch.start(folder.path, gpus, sees) if alone else None
    if beside:
        tell(loaded, folder.path.name, "running")
    out.note(f"{folder.path.name}: {folder.path}")
    if arguments.detach:
        return _say(arguments, loaded, folder, "running")
    state = following.own(child, folder) if child else following.of_daemon(loaded, folder)
    if beside and state == "failed":
        tell(loaded, folder.path.name, "failed", "its process was killed")  # where it could not
    return _say(arguments, loaded, folder, state)


def _waiting(arguments: argparse.Namespace, loaded: Loaded) -> RunFolder | None:
    """The run to go on with, where that has finished and no daemon has taken its policy."""
    run = arguments.resume
    if not run or not is_run(run) or _policy(loaded, run):
        return None
    folder = run_folder.of(loaded.home, run)
    now = progress.read(folder.path)
    return folder if now is not None and now.state == "finished" else None


def _take_in(loaded: Loaded, folder: RunFolder) -> None:
    """Have the daemon take down a run that has finished, and the policy that came of it."""
    run = folder.path.name
    if holder(loaded.home) is None:
        raise HoustonError(
            f"{run} has finished, and no daemon runs that could take its policy.",
            f"It lies in {folder.output}.",
            f"houston daemon start, then {folder.again}",
            ExitCode.DAEMON_NOT_RUNNING,
        )
    with Reader(loaded.home) as reader:
        known = reader.run(training_runs.one(run))
    if known is None or known.state in ("failed", "cancelled"):
        _tell(loaded, folder, 0, True)
    registered(loaded, folder)
    if known is None or known.alone or known.state != "finished":
        tell(loaded, run, "finished")


def _bury(loaded: Loaded, run: str) -> None:
    """Say that a run beside the daemon has failed whose trainer was killed with all who could have
    said so: nobody is at work in its folder (`asking.again`)."""
    with Reader(loaded.home) as reader:
        known = reader.run(training_runs.one(run))
    if known is not None and known.alone and known.state not in following.ENDED:
        tell(loaded, run, "failed", "its process was killed")


def _rows_unsaid() -> dict[str, Any]:
    """The flags of how rows are made, with what holds where nobody says."""
    plain = argparse.ArgumentParser(add_help=False)
    row_arguments(plain)
    return vars(plain.parse_args([]))


def _check_resumed(arguments: argparse.Namespace) -> None:
    """Raise HoustonError for what a run that goes on cannot have otherwise: it has its rows."""
    names = ["data", "held_out", "rules", *_rows_unsaid(), "recipe"]
    given = ["rollouts"] if selecting.selection(arguments).given else []
    given += [
        f"--{name.replace('_', '-')}"
        for name in names
        if getattr(arguments, name) not in (None, [])
    ]
    if given:
        raise HoustonError(
            f"A run that goes on has its data and recipe: --resume takes no {', '.join(given)}.",
            recipe.NOT_TRAINED,
            "Leave that out, or train a new run without --resume",
            ExitCode.USAGE,
        )


def _planned(arguments: argparse.Namespace, loaded: Loaded) -> Asked:
    """What is asked of a run that goes on, or of a new one as far as its words say; nothing is
    written yet."""
    settings = _settings(arguments)
    if arguments.resume:
        asked = asking.again(loaded, arguments.resume, settings, arguments.name)
    else:
        asked = Asked(run="", recipe=recipe.load(arguments.recipe or SMALL, settings))
    return _with_gpus(arguments, asked)


def _new(arguments: argparse.Namespace, loaded: Loaded) -> Asked:
    """Make the folder of a new run: what is asked of it, with all that was found for it."""
    secret_values.install(loaded.config)
    wanted = asking.Wanted(
        _rollouts(arguments, loaded),
        arguments.data,
        arguments.held_out,
        _row_options(arguments),
        arguments.recipe or SMALL,
        _settings(arguments),
        arguments.name,
        arguments.rules or "run",
    )
    made = asking.new(loaded, wanted)
    out.note(judged.told(run_folder.manifest(made.data)))
    return _with_gpus(arguments, made.asked)


def _settings(arguments: argparse.Namespace) -> list[str]:
    settings = list(arguments.settings)
    settings += [f"base={_base(arguments.base)}"] if arguments.base else []
    settings += ["full=true"] if arguments.full else []
    settings += [f"accelerate={arguments.accelerate}"] if arguments.accelerate else []
    return settings


def _row_options(arguments: argparse.Namespace) -> RowOptions:
    said = {name: getattr(arguments, name) for name in _rows_unsaid()}
    said = {name: value for name, value in said.items() if value is not None}
    return row_options(argparse.Namespace(**{**_rows_unsaid(), **said}))


def _base(named: str) -> str:
    return named if is_policy(named) else str(Path(named).absolute())


def _rollouts(arguments: argparse.Namespace, loaded: Loaded) -> list[str]:
    """Whole ids of the rollouts to train on; none where data are named."""
    selection = selecting.selection(arguments)
    if not selection.given:
        return []
    with Reader(loaded.home) as reader:
        return reader.run(chosen(selection, recipe.NOT_TRAINED))


def _with_gpus(arguments: argparse.Namespace, asked: Asked) -> Asked:
    """With those that are asked for: a run that goes on does so with the GPUs that it had."""
    said = {"gpus": arguments.gpus, "share_gpus": arguments.share_gpus}
    changed = {key: value for key, value in said.items() if value is not None}
    return msgspec.structs.replace(asked, **changed)


def _gpus(arguments: argparse.Namespace, loaded: Loaded, asked: Asked) -> int:
    """As many as were asked for; else one where this host has any.

    On the CPU none: a run may go on there that had some.
    """
    if arguments.gpus is None and asked.recipe.device == "cpu":
        return 0
    return min(1, loaded.gpus(LOCAL)) if asked.gpus is None else asked.gpus


def _tell(loaded: Loaded, folder: RunFolder, gpus: int, alone: bool) -> None:
    """Have the daemon queue it, or note that it runs alone."""
    from houston_shared.sending import send
    from houston_shared.wire_training import StartTraining

    asked = folder.asked
    message = StartTraining(
        request=secrets.token_hex(16),
        run=asked.run,
        alone=alone,
        name=asked.name,
        parent=asked.parent,
        base=asked.recipe.base,
        base_hash=asked.base_hash,
        rollouts=asked.rollouts,
        manifest=manifest_hash(folder.data),
        recipe=msgspec.to_builtins(asked.recipe),
        gpus=gpus,
        share_gpus=asked.share_gpus,
    )
    send(loaded.home, message, "It may have been queued.", f"houston train show {asked.run}")


def _say(arguments: argparse.Namespace, loaded: Loaded, folder: RunFolder, state: str) -> int:
    now, run = progress.read(folder.path), folder.path.name
    policy = _policy(loaded, run)
    if arguments.json:
        told = {"run": run, "state": state, "folder": str(folder.path), "policy": policy}
        told |= {"output": str(folder.output) if folder.output.is_dir() else None}
        out.json_line({**told, "result": folder.result})
    elif state == "finished" and policy:
        out.line(f"{run} became {policy}.")
        out.note(f"next: houston policy activate {policy}")
    elif state == "finished":
        out.line(f"{run}: no daemon runs, so it became no policy; it lies in {folder.output}.")
        out.note(f"next: houston daemon start, then {folder.again}")
    elif state in ("failed", "cancelled"):
        raise _ended(folder, state, now.message if now and now.state == state else "")
    else:
        out.line(run)
    return int(ExitCode.FAILED if state in ("failed", "cancelled") else ExitCode.DONE)


def _ended(folder: RunFolder, state: str, said: str) -> HoustonError:
    """What the trainer said of its end, with its own advice: the same again may be of no use."""
    what, _, advice = said.partition(" Next: ")
    cause = f"{folder.path.name} {'failed' if state == 'failed' else 'was ended'}."
    return HoustonError(cause, what, advice if said else folder.again)


def _policy(loaded: Loaded, run: str) -> str | None:
    """What came of it, as the home knows it."""
    if not loaded.home.database.exists():
        return None
    with Reader(loaded.home) as reader:
        one = reader.run(training_runs.one(run))
    return one.policy or None if one else None
