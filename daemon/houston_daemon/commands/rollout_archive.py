"""`houston rollout archive R`: write a rollout into a file, then take its texts out of the home.

An archive that was cut short is gone on with: its file is there, whole, before anything is erased.
`--read FILE` shows an archive's steps through `houston steps`, as they were shown before.
"""

import argparse
from pathlib import Path

from houston_daemon.commands import rollout_erase
from houston_daemon.recorder.upkeep import archive, archive_reading, erasure
from houston_daemon.recorder.upkeep.archive import Manifest
from houston_shared import command, out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.records import ENDED
from houston_shared.store.queries import archived, rollouts
from houston_shared.store.reader import Reader

STAYS = (
    "What stays in the home: the task with its text, names (of people, tools, sessions, files,"
    " engines), reasons of states, verdicts without their reasons, scores, counts and times."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--to`, `--yes`, `--json`; or `--read` and what `houston steps` takes."""
    parser.add_argument("rollout", metavar="R", nargs="?", help="rollout, which must have ended")
    parser.add_argument("--to", metavar="DIR", type=Path, help="folder of the file (archives/)")
    parser.add_argument(
        "--read", metavar="FILE", type=Path, help="show the steps of an archive, and nothing else"
    )
    first, newest = "with --read: first step", "with --read: only the last N"
    parser.add_argument("--from", dest="first", metavar="N", type=whole(1), help=first)
    parser.add_argument("-n", dest="newest", metavar="N", type=whole(1), help=newest)
    parser.add_argument("--full", action="store_true", help="with --read: leave nothing out")
    rollout_erase.common(parser)


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write, read back, erase; or only read. Raises HoustonError."""
    if bool(arguments.rollout) == bool(arguments.read):
        raise HoustonError(
            "Name a rollout, or an archive with --read FILE.",
            "Nothing was archived.",
            code=ExitCode.USAGE,
        )
    if arguments.read and arguments.to:
        raise HoustonError("--to goes with a rollout: reading writes no file.", code=ExitCode.USAGE)
    return _read(arguments) if arguments.read else _archive(arguments, loaded)


def _read(arguments: argparse.Namespace) -> int:
    """The steps of an archive, by the command that shows those of a home."""
    words = [f"--from={arguments.first}"] if arguments.first else []
    words += [f"-n{arguments.newest}"] if arguments.newest else []
    words += [f"--{flag}" for flag in ("full", "json") if getattr(arguments, flag)]
    with archive_reading.home_of(arguments.read) as (home, manifest):
        return command.main(["steps", manifest.rollout, *words, "--home", str(home.path)])


def _archive(arguments: argparse.Namespace, loaded: Loaded) -> int:
    with Reader(loaded.home) as reader:
        one = reader.run(rollouts.rollout(arguments.rollout))
        before = reader.run(archived.begun(one.id))
        whole = reader.run(archived.place(one.id))
    if one.state not in ENDED:
        raise HoustonError(
            f"{one.id} has not ended ({one.state}).",
            "Nothing was archived.",
            f"houston rollout cancel {one.id}",
        )
    if not before:
        rollout_erase.confirm(arguments, f"The texts of {one.id} would leave the home")
        path, manifest = archive.write(
            loaded.home, one.id, arguments.to.absolute() if arguments.to else None
        )
        parts = erasure.of_rollout(loaded.home, one.id)
    else:
        path, manifest = Path(before), _begun(Path(before), one.id)
        parts = erasure.still(loaded.home, one.id, manifest.last)
        if whole and not parts:
            raise HoustonError(
                f"{one.id} was archived before, into {before}.",
                next=f"houston rollout archive --read {before}",
            )
        parts = parts or [erasure.Part(one.id, [manifest.last])]  # the word that it is whole
        rollout_erase.confirm(arguments, f"The texts of {one.id} that {path} holds would follow")
    gone = erasure.erase(loaded.home, parts, reason="archived", archive=str(path))
    if arguments.json:
        out.json_line({"rollout": one.id, "archive": str(path), "events": manifest.events})
    else:
        out.line(f"{one.id}: {manifest.events} events are in {path}; their texts left the home.")
        out.note(STAYS)
    rollout_erase.say_rest(loaded.home, gone)
    return int(ExitCode.DONE)


def _begun(path: Path, rollout: str) -> Manifest:
    """The file of an earlier archive of this rollout; raises HoustonError when it is not sound."""
    if not path.is_file():
        raise HoustonError(
            f"{rollout} was archived before, into {path}, which is not there.",
            "Whether all its texts left the home was not looked at.",
            "Put that file back, then this again",
        )
    return archive.read(path)
