"""`houston rollout erase`: take a step, or a text wherever it stands, out of the home for good."""

import argparse
import sys
from pathlib import Path

from houston_daemon.recorder.upkeep import erasure, remainder
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.home import Home
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--step`, `--text`, `--reason`, `--yes`, `--json`."""
    parser.add_argument(
        "rollout", metavar="R", nargs="?", help="rollout, or R@STEP; with --text alone: all"
    )
    parser.add_argument("--step", type=whole(1), metavar="N", help="everything of this step")
    parser.add_argument(
        "--text", metavar="STRING", help="this text wherever it stands; - reads it from stdin"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    common(parser)


def common(parser: argparse.ArgumentParser) -> None:
    """Flags of commands that erase."""
    parser.add_argument("--yes", action="store_true", help="do it; it cannot be taken back")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Erase; raises HoustonError."""
    text = _text(arguments)
    arguments.rollout, arguments.step = permalink.one(arguments.rollout or "", arguments.step)
    if bool(text) == bool(arguments.step) or (arguments.step and not arguments.rollout):
        raise HoustonError(
            "Name a step (R --step N) or a text (--text STRING).",
            "Nothing was erased.",
            code=ExitCode.USAGE,
        )
    rollout = ""
    if arguments.rollout:
        with Reader(loaded.home) as reader:
            rollout = reader.run(rollouts.resolve(arguments.rollout))
    if text:
        _telling(arguments.reason, text)
        parts = erasure.holding(loaded.home, text, rollout)
    else:
        parts = erasure.of_step(loaded.home, rollout, arguments.step)
        if not parts:
            raise HoustonError(
                f"{rollout} has no step {arguments.step}.",
                "Nothing was erased.",
                f"houston steps {rollout}",
            )
    count = sum(len(part.seqs) for part in parts)
    owners = sorted({part.rollout for part in parts})
    if count:
        where = ", ".join(one or "the daemon" for one in owners)
        confirm(arguments, f"{count} events of {where} would be erased")
    gone = erasure.erase(loaded.home, parts, text=text, reason=arguments.reason)
    others = sorted({part.rollout for part in erasure.holding(loaded.home, text)} if text else ())
    if arguments.json:
        also = {"also": others} if others else {}
        out.json_line({"events": count, "rollouts": owners, "gone": gone, **also})
    else:
        out.line(f"{count} events were erased." if count else "Nothing holds it.")
    if others:
        say_others(others)
    rest = say_rest(loaded.home, gone, "" if others else text)
    return int(ExitCode.FAILED if others or rest else ExitCode.DONE)


def confirm(arguments: argparse.Namespace, what: str) -> None:
    """Nothing is erased without `--yes`; raises HoustonError."""
    if not arguments.yes:
        raise HoustonError(
            f"{what}, for good.",
            "Nothing was erased.",
            "the same command with --yes",
            ExitCode.USAGE,
        )


def say_others(owners: list[str]) -> None:
    """Whose events hold the text all the same, on stderr."""
    named = ", ".join(one or "the daemon (a task, or a reason)" for one in owners)
    out.note(f"{named} has it, too. next: the same without a rollout takes it out everywhere")


def say_rest(home: Home, gone: bool, text: str = "") -> bool:
    """Where it may still be, on stderr; whether files of the database still have it."""
    files: list[Path] = []
    if not gone:
        out.note("A reader holds the WAL open, which still has it. next: houston daemon restart")
    elif text and (files := erasure.left(home, text)):
        names = ", ".join(map(str, files))
        out.note(f"Old pages of {names} still have it. next: houston daemon stop, then this again")
    for path in erasure.copies(home):
        out.note(f"{path} was made before and may still have it; remove it when it must not.")
    return not gone or bool(files)


def _telling(reason: str, text: str) -> None:
    """A reason that holds the text would keep it in the journal; raises HoustonError."""
    if remainder.holds(reason.encode(), text):
        raise HoustonError(
            "The reason holds the text that is to go: it would stay in the journal.",
            "Nothing was erased.",
            "the same command with another --reason",
            ExitCode.USAGE,
        )


def _text(arguments: argparse.Namespace) -> str:
    if arguments.text == "-":
        return sys.stdin.read().strip("\r\n")
    return arguments.text or ""
