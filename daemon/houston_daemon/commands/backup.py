"""`houston backup`: a checked copy of the home while the daemon runs; `--list`, `--restore`."""

import argparse
from pathlib import Path

from houston_daemon.recorder.upkeep import backup, backups, places
from houston_daemon.recorder.upkeep.backup import Manifest
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.home import Home


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--to`, `--list`, `--restore`, `--periodic`, `--json`."""
    parser.add_argument("--to", metavar="DIR", type=Path, help="make it in this folder")
    parser.add_argument("--list", action="store_true", help="show the backups that there are")
    parser.add_argument(
        "--restore",
        metavar="NAME|DIR",
        type=Path,
        help="make the home, which must be empty, out of this one",
    )
    parser.add_argument(
        "--periodic",
        action="store_true",
        help="one of a series: of these the newest `[backup] keep` stay",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a backup")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Make, list or restore; raises HoustonError."""
    if arguments.list:
        _list(arguments, loaded.home)
    elif arguments.restore:
        _restore(arguments, loaded.home)
    else:
        _make(arguments, loaded)
    return int(ExitCode.DONE)


def _list(arguments: argparse.Namespace, home: Home) -> None:
    folder = arguments.to or home.backups
    backups.look(folder)
    found = backup.listed(home, arguments.to)
    if not found and not arguments.json:
        out.note("There is no backup. next: houston backup")
    for path in places.left(folder, backup.UNFINISHED):
        out.note(f"{path} was cut short; the next backup there removes it.")
    for name in backup.rotten(folder):
        out.note(_rotten(folder / name))
    for one in found:
        _say(one, arguments.json, _row(one))


def _restore(arguments: argparse.Namespace, home: Home) -> None:
    one, paused = backup.restore(backups.one(home, arguments.restore), home)
    said = f"{home.path} is as it was at {one.at}, to event {one.seq}."
    _say(one, arguments.json, f"{said} next: houston daemon start --home {home.path}")
    if paused:
        out.note(
            f"{', '.join(paused)}: paused by restore, because {one.home} may still run them; cancel"
            f" them there first. next: houston rollout resume R --home {home.path}"
        )
        out.note("What each one lacks on this machine: houston rollout list")


def _make(arguments: argparse.Namespace, loaded: Loaded) -> None:
    parent = arguments.to.absolute() if arguments.to else loaded.home.backups
    made = backup.make(loaded.home, parent, arguments.periodic)
    place = parent / made.name
    _say(made, arguments.json, f"{place}: event {made.seq}, {made.bytes / 1e6:.1f} MB, checked.")
    if not arguments.periodic:
        return
    pruned = backup.prune(parent, made, loaded.config.backup.keep)
    for name in pruned.removed:
        out.note(f"removed the old backup {name}")
    for name in pruned.rotten:
        out.note(_rotten(parent / name))


def _rotten(folder: Path) -> str:
    return f"{folder} is no backup any more: its files have changed since it was made. Remove it."


def _say(one: Manifest, as_json: bool, text: str) -> None:
    if as_json:
        out.json_line(one)
    else:
        out.line(text)


def _row(one: Manifest) -> str:
    kind = "periodic" if one.periodic else "by hand"
    return f"{one.name}  {one.at}  event {one.seq}  {one.bytes / 1e6:.1f} MB  {kind}"
