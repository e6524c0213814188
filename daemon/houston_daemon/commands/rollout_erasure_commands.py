"""`houston rollout erase` and `houston rollout archive`: remove texts from the home for good.

`erase` removes one step, or a text wherever it occurs. `archive` writes a whole rollout into a
file, reads it back, then erases its texts; an interrupted one is continued, and `--read` shows the
steps of an archive. Both ask for `--yes` and say on stderr where copies may remain. The package
`maintenance` erases the events.
"""

import argparse
import sys
from pathlib import Path

from houston_daemon.maintenance import archive_file, erased_body, event_erasure
from houston_daemon.maintenance.archive_file import ArchiveManifest
from houston_shared import command, command_arguments, command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, NotFound, UsageError
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES
from houston_shared.store import removed_data_queries, rollout_queries
from houston_shared.store.store_reader import Reader


def add_rollout_erase_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--text`, `--reason`, `--yes`, `--json`."""
    parser.add_argument(
        "rollout", metavar="R", nargs="?", help="rollout, or R@STEP; with only --text: all"
    )
    parser.add_argument(
        "--at", type=whole_number(1), metavar="STEP", help="everything of this step"
    )
    parser.add_argument(
        "--text", metavar="STRING", help="this text wherever it occurs; - reads it from stdin"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    _add_confirmation_arguments(parser)


def _add_confirmation_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of commands that erase."""
    parser.add_argument("--yes", action="store_true", help="do it; this cannot be undone")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_rollout_erase(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Erase; raises HoustonError."""
    text = _text_to_erase(arguments)
    parts = _select_events(arguments, loaded.home, text)
    count = sum(len(part.seqs) for part in parts)
    owners = sorted({part.rollout for part in parts})
    if count:
        where = ", ".join(owner or "the daemon" for owner in owners)
        _require_confirmation(arguments, f"{count} events of {where} would be erased")
    overwritten = event_erasure.erase_events(loaded.home, parts, text=text, reason=arguments.reason)
    rest = event_erasure.select_events_with_text(loaded.home, text) if text else []
    other_rollouts = sorted({part.rollout for part in rest})
    if arguments.json:
        also = {"also": other_rollouts} if other_rollouts else {}
        command_output.print_json_line(
            {"events": count, "rollouts": owners, "gone": overwritten, **also}
        )
    else:
        command_output.print_line(
            f"{count} events were erased." if count else "No event contains it."
        )
    if other_rollouts:
        _warn_other_owners(other_rollouts)
    files_left = _warn_remaining_copies(loaded.home, overwritten, "" if other_rollouts else text)
    return int(ExitCode.FAILED if other_rollouts or files_left else ExitCode.DONE)


def _select_events(
    arguments: argparse.Namespace, home: Home, text: str
) -> list[event_erasure.ErasureBatch]:
    """What is to go: a step, or whatever holds `text`. Raises HoustonError."""
    if arguments.rollout == "":  # a variable of a script that was never set
        raise UsageError(
            "An empty text names no rollout.", "Nothing was erased.", "leave R out to mean all"
        )
    name, step = command_arguments.parse_step_reference(arguments.rollout or "", arguments.at)
    if bool(text) == bool(step) or (step and not name):
        raise UsageError("Name a step (R@STEP) or a text (--text STRING).", "Nothing was erased.")
    rollout = ""
    if name:
        with Reader(home) as reader:
            rollout = reader.run(rollout_queries.resolve_rollout_id(name))
    if text:
        _check_reason(arguments.reason, text)
        return event_erasure.select_events_with_text(home, text, rollout)
    if parts := event_erasure.select_step_events(home, rollout, step):
        return parts
    raise NotFound(
        f"{rollout} has no step {step}.", "Nothing was erased.", f"houston steps {rollout}"
    )


def _require_confirmation(arguments: argparse.Namespace, operation: str) -> None:
    """Nothing is erased without `--yes`; raises HoustonError."""
    if not arguments.yes:
        raise UsageError(
            f"{operation}, for good.", "Nothing was erased.", "the same command with --yes"
        )


def _warn_other_owners(owners: list[str]) -> None:
    """Whose events hold the text all the same, on stderr."""
    names = ", ".join(owner or "the daemon (a task, or a reason)" for owner in owners)
    command_output.print_note(
        f"{names} {'contains' if len(owners) == 1 else 'contain'} it, too."
        " next: the same without a rollout erases it everywhere"
    )


def _warn_remaining_copies(home: Home, overwritten: bool, text: str = "") -> bool:
    """Where it may still be, on stderr; whether files of the database still have it."""
    files: list[Path] = []
    if not overwritten:
        command_output.print_note(
            "A reader keeps the WAL open, which still contains it. next: houston daemon restart"
        )
    elif text and (files := event_erasure.find_files_with_text(home, text)):
        names = ", ".join(map(str, files))
        command_output.print_note(
            f"Old pages of {names} still contain it. next: houston daemon stop, then this again"
        )
    for path in event_erasure.list_possible_copies(home, text):
        command_output.print_note(
            f"{path} is older and may still contain it; if it must not, remove it."
        )
    return not overwritten or bool(files)


def _check_reason(reason: str, text: str) -> None:
    """A reason that holds the text would keep it in the journal; raises HoustonError."""
    if erased_body.has_text(reason.encode(), text):
        raise UsageError(
            "The reason contains the text to erase: it would stay in the journal.",
            "Nothing was erased.",
            "the same command with another --reason",
        )


def _text_to_erase(arguments: argparse.Namespace) -> str:
    """What `--text` says; empty without it. Raises HoustonError where it says nothing."""
    if arguments.text is None:
        return ""
    text = sys.stdin.read().strip("\r\n") if arguments.text == "-" else str(arguments.text)
    if not text:  # a variable of a script that was never set
        raise UsageError(
            "--text is empty: it names nothing to erase.",
            "Nothing was erased.",
            "leave --text out to erase a step",
        )
    return text


RETENTION_NOTICE = (
    "What stays in the home: the task with its text, names (of people, tools, sessions, files,"
    " engines), reasons of states, verdicts without their reasons, scores, counts and times."
)


def add_rollout_archive_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--out`, `--yes`, `--json`; or `--read` and what `houston steps` takes."""
    parser.add_argument("rollout", metavar="R", nargs="?", help="rollout, which must have ended")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the file (archives/)")
    parser.add_argument(
        "--read", metavar="FILE", type=Path, help="show the steps of an archive, and nothing else"
    )
    first, newest = "with --read: first step", "with --read: only the last N"
    parser.add_argument("--from", dest="first", metavar="N", type=whole_number(1), help=first)
    parser.add_argument("-n", dest="newest", metavar="N", type=whole_number(1), help=newest)
    parser.add_argument("--full", action="store_true", help="with --read: leave nothing out")
    _add_confirmation_arguments(parser)


def run_rollout_archive(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write, read back, erase; or only read. Raises HoustonError."""
    if bool(arguments.rollout) == bool(arguments.read):
        raise UsageError("Name a rollout, or an archive with --read FILE.", "Nothing was archived.")
    if arguments.read and arguments.out:
        raise UsageError("--out goes with a rollout: reading writes no file.")
    return _read_archive(arguments) if arguments.read else _archive_rollout(arguments, loaded)


def _read_archive(arguments: argparse.Namespace) -> int:
    """The steps of an archive, by the command that shows those of a home."""
    words = [f"--from={arguments.first}"] if arguments.first else []
    words += [f"-n{arguments.newest}"] if arguments.newest else []
    words += [f"--{flag}" for flag in ("full", "json") if getattr(arguments, flag)]
    with archive_file.unpack_archive(arguments.read) as (home, manifest):
        with Reader(home) as reader:
            rollout = reader.run(rollout_queries.find_rollout(manifest.rollout))
        if rollout.parent_step:
            command_output.print_note(
                f"{rollout.id} is a branch: steps 1 to {rollout.parent_step} are those of"
                f" {rollout.parent}, in its home or its own archive."
            )
        return command.main(["steps", manifest.rollout, *words, "--home", str(home.path)])


def _archive_rollout(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollout_queries.find_rollout(arguments.rollout))
        earlier_file = reader.run(removed_data_queries.find_begun_archive_file(rollout.id))
        complete_file = reader.run(removed_data_queries.find_archive_file(rollout.id))
    if rollout.state not in ENDED_STATES:
        raise HoustonError(
            f"{rollout.id} has not ended ({rollout.state}).",
            "Nothing was archived.",
            f"houston rollout cancel {rollout.id}",
        )
    if not earlier_file:
        _require_confirmation(arguments, f"The texts of {rollout.id} would leave the home")
        path, manifest = archive_file.write_archive(
            loaded.home, rollout.id, arguments.out.absolute() if arguments.out else None
        )
        parts = event_erasure.select_unerased_events(loaded.home, rollout.id, manifest.last)
    else:
        path = Path(earlier_file)
        manifest, parts = _continue_archive(loaded.home, rollout.id, path, bool(complete_file))
        _require_confirmation(
            arguments, f"The texts of {rollout.id} that {path} holds would follow"
        )
    # Without parts only the word that it is whole is missing.
    parts = parts or [event_erasure.ErasureBatch(rollout.id, [manifest.last])]
    overwritten = event_erasure.erase_events(
        loaded.home, parts, reason="archived", archive=str(path)
    )
    if arguments.json:
        fields = {"rollout": rollout.id, "archive": str(path), "events": manifest.events}
        command_output.print_json_line(fields)
    else:
        command_output.print_line(
            f"{rollout.id}: {manifest.events} events are in {path}; their texts"
            " were removed from the home."
        )
        command_output.print_note(RETENTION_NOTICE)
    _warn_remaining_copies(loaded.home, overwritten)
    return int(ExitCode.DONE)


def _continue_archive(
    home: Home, rollout: str, path: Path, complete: bool
) -> tuple[ArchiveManifest, list[event_erasure.ErasureBatch]]:
    """What an earlier archive of this rollout holds, and what of that is still in the home.

    Raises HoustonError when the file is not sound, or nothing is left to do.
    """
    if not path.is_file():
        raise HoustonError(
            f"{rollout} was archived before, into {path}, which is not there.",
            "Whether all its texts left the home was not looked at.",
            "Put that file back, then repeat this command",
        )
    manifest = archive_file.check_archive(path)
    parts = event_erasure.select_unerased_events(home, rollout, manifest.last)
    if complete and not parts:
        raise HoustonError(
            f"{rollout} was archived before, into {path}.",
            next=f"houston rollout archive --read {path}",
        )
    return manifest, parts
