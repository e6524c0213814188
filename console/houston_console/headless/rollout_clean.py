"""`houston rollout clean R…`: free what ended rollouts keep on the host; the daemon does it."""

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from houston_console.headless import asking, options
from houston_console.headless.following import Following
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.lock import holder
from houston_shared.records import ENDED
from houston_shared.store.plan import Plan
from houston_shared.store.queries import cleaned, rollouts
from houston_shared.store.queries.cleaned import Cleaning
from houston_shared.store.reader import Reader
from houston_shared.wire_operators import CleanRollouts

WAIT_SECONDS = 600.0
"""How long this command waits; the daemon goes on."""
_LOOK_SECONDS = 2.0
"""How often is looked whether the daemon is still there."""
KEPT = (
    "The journal stays whole: steps, contexts, search. Files of 16 MB and more come back only where"
    " an evaluation kept a copy."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, `--ended-before`, `--snapshots`, `--as`, `--json`."""
    parser.add_argument("rollouts", metavar="R", nargs="*", help="rollouts, which must have ended")
    parser.add_argument(
        "--ended-before",
        type=options.since,
        metavar="TIME",
        help="all that ended before this time (7d, 12h, 2026-11-20T09:00) and were not freed yet",
    )
    parser.add_argument(
        "--snapshots",
        action="store_true",
        help="also the snapshots: no step's files can be brought back then",
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Ask for it, wait until it is done, and say how much was freed."""
    if bool(arguments.rollouts) == (arguments.ended_before is not None):
        raise HoustonError(
            "Name rollouts, or a time with --ended-before.",
            "Nothing was freed.",
            code=ExitCode.USAGE,
        )
    with Reader(loaded.home) as reader:
        wanted, done = _wanted(arguments, reader)
        for one in done:
            out.note(f"{one} was freed before: nothing is left to free.")
        if not wanted:
            out.note("There is nothing to free.")
            return int(ExitCode.DONE)
        message = CleanRollouts(
            rollouts=tuple(wanted),
            snapshots=arguments.snapshots,
            claimed=asking.speaker(arguments, loaded),
        )
        look = f"houston rollout show {wanted[0]}"
        seq = asking.ask(loaded, message, "It may have been freed.", look).seq
        found = _wait(loaded, reader, wanted, _Asked(seq, arguments.snapshots))
    _show(found, arguments.json)
    return int(ExitCode.DONE if all(one.whole for one in found.values()) else ExitCode.FAILED)


def _wanted(arguments: argparse.Namespace, reader: Reader) -> tuple[list[str], list[str]]:
    """Rollouts to free, and those named that were freed before."""
    if arguments.ended_before is not None:
        named = reader.run(cleaned.ended_before(arguments.ended_before))
    else:
        found = [asking.meant(reader, name) for name in dict.fromkeys(arguments.rollouts)]
        _refuse_running(found)
        named = [one.id for one in found]
    before = {one: reader.run(cleaned.of(one)) for one in dict.fromkeys(named)}
    done = [one for one, last in before.items() if last and _enough(last, arguments.snapshots)]
    wanted = [one for one in before if one not in done]
    return wanted, done if arguments.rollouts else []


def _refuse_running(found: Sequence[rollouts.Rollout]) -> None:
    """Said before anything is asked for; the daemon looks again."""
    for one in found:
        if one.state not in ENDED:
            raise HoustonError(
                f"{one.id} has not ended ({one.state}): it works with what would be freed.",
                "Nothing was freed.",
                f"houston rollout cancel {one.id} --wait",
            )


def _enough(last: Cleaning, snapshots: bool) -> bool:
    return last.whole and (last.body.snapshots or not snapshots)


class _Asked(NamedTuple):
    """What tells this command's own answer from one to somebody else who asked for less."""

    seq: int
    snapshots: bool


def _wait(loaded: Loaded, reader: Reader, wanted: list[str], asked: _Asked) -> dict[str, Cleaning]:
    """What was freed of each; raises HoustonError (75 when it takes too long)."""
    found: dict[str, Cleaning] = {}
    end = time.monotonic() + WAIT_SECONDS
    with Following(loaded.home, reader) as following:
        while True:
            for rollout in wanted:
                if rollout not in found:
                    last = following.read(lambda one=rollout: _answer(one, asked))  # type: ignore[misc]
                    found |= {rollout: last} if last else {}
            if len(found) == len(wanted):
                return {rollout: found[rollout] for rollout in wanted}
            following.wait(_LOOK_SECONDS)
            if holder(loaded.home) is None:
                raise DaemonNotRunning(
                    "The daemon ended before it had said what was freed.",
                    "Some of it may be.",
                    "houston daemon start, then the same command again",
                )
            if time.monotonic() > end:
                raise HoustonError(
                    f"{len(wanted) - len(found)} rollouts are still being freed.",
                    "The daemon goes on.",
                    "houston log --audit",
                    ExitCode.BUSY,
                )


def _answer(rollout: str, asked: _Asked) -> Plan[Cleaning | None]:
    last = yield from cleaned.of(rollout)
    if last is None or last.seq <= asked.seq:
        return None
    return last if _enough(last, asked.snapshots) or not last.whole else None


def _show(found: dict[str, Cleaning], json: bool) -> None:
    page = Page()
    for rollout, one in found.items():
        if json:
            body = one.body
            line = {"rollout": rollout, "bytes": body.bytes, "snapshots": body.snapshots}
            out.json_line({**line, "left": body.left})
        else:
            page.line(span(rollout, "name"), span(f": {cleaned.said(one)}"))
    if not json:
        total = sum(one.body.bytes for one in found.values())
        out.note(f"{cleaned.size(total)} in all. {KEPT}")
