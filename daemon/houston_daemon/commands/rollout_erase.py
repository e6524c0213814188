"""`houston rollout erase`: take a step, or a text wherever it stands, out of the home for good."""

import argparse
import sys

from houston_daemon.recorder.upkeep import erasure
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.home import Home
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--step`, `--text`, `--reason`, `--yes`, `--json`."""
    parser.add_argument("rollout", metavar="R", nargs="?", help="rollout; with --text alone: all")
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
        parts = erasure.holding(loaded.home, text, rollout)
    else:
        parts = erasure.of_step(loaded.home, rollout, arguments.step)
    count = sum(len(part.seqs) for part in parts)
    owners = sorted({part.rollout for part in parts})
    if count:
        where = ", ".join(one or "the daemon" for one in owners)
        confirm(arguments, f"{count} events of {where} would be erased")
    gone = erasure.erase(loaded.home, parts, text=text, reason=arguments.reason)
    if arguments.json:
        out.json_line({"events": count, "rollouts": owners, "gone": gone})
    else:
        out.line(f"{count} events were erased." if count else "Nothing holds it.")
    say_rest(loaded.home, gone, text)
    return int(ExitCode.DONE)


def confirm(arguments: argparse.Namespace, what: str) -> None:
    """Nothing is erased without `--yes`; raises HoustonError."""
    if not arguments.yes:
        raise HoustonError(
            f"{what}, for good.",
            "Nothing was erased.",
            "the same command with --yes",
            ExitCode.USAGE,
        )


def say_rest(home: Home, gone: bool, text: str = "") -> None:
    """Where it may still be, on stderr."""
    if not gone:
        out.note("A reader holds the WAL open, which still has it. next: houston daemon restart")
    elif text and (files := erasure.left(home, text)):
        names = ", ".join(map(str, files))
        out.note(f"Old pages of {names} still have it. next: houston daemon stop, then this again")
    for path in erasure.copies(home):
        out.note(f"{path} was made before and may still have it; remove it when it must not.")


def _text(arguments: argparse.Namespace) -> str:
    if arguments.text == "-":
        return sys.stdin.read().strip("\r\n")
    return arguments.text or ""
