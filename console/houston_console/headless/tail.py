"""`houston tail [R]`: what happens, a line an event; with -f as it is stored."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from houston_console.headless import entry, options
from houston_console.headless.entry import Entry
from houston_console.headless.following import Following
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.flags import whole
from houston_shared.records import ENDED
from houston_shared.store.plan import Plan
from houston_shared.store.queries import progress, rollouts
from houston_shared.store.reader import Reader

PAGE = 200
"""Events of one read."""
WIDTH = 300
"""Characters of an event's text on its line; --json has all of it."""
TONES = {"guidance": "person", "edit": "person", "withdraw": "person", "delivery": "person",
         "sample": "", "result": "dim", "observation": "dim", "state": "name"}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `-f`, `-n`, `--kind`, `--json`."""
    options.rollout(parser, optional=True)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on as events are stored, until R ends"
    )
    parser.add_argument(
        "-n", type=whole(), default=20, metavar="N", help="begin with the last N (20)"
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=entry.TOLD,
        metavar="KIND",
        help=f"only these (may be given again): {', '.join(entry.TOLD)}",
    )
    options.as_json(parser, "one JSON line an event")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print what is there, and with -f what comes, until the rollout ends or interrupted."""
    kinds = tuple(arguments.kind or entry.TOLD)
    page = Page()
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(arguments.rollout)) if arguments.rollout else ""
        if not arguments.follow:
            _show(page, arguments.json, reader.run(_newest(rollout, kinds, arguments.n))[0])
            return int(ExitCode.DONE)
        with Following(loaded.home, reader) as following:
            # Looked at before its events are: nothing that ended it is left out.
            ended = _ended(following, rollout)
            found, seq = following.read(lambda: _newest(rollout, kinds, arguments.n))
            _show(page, arguments.json, found)
            while not ended:
                following.wait()
                ended = _ended(following, rollout)
                seq = _catch_up(
                    following, rollout, kinds, seq, partial(_show, page, arguments.json)
                )
    out.note(f"{rollout} has ended.")
    return int(ExitCode.DONE)


def _ended(following: Following, rollout: str) -> bool:
    """Whether nothing comes any more; of all rollouts together something always may."""
    return bool(rollout) and following.read(lambda: rollouts.rollout(rollout)).state in ENDED


def _catch_up(
    following: Following,
    rollout: str,
    kinds: tuple[str, ...],
    after: int,
    show: Callable[[list[Entry]], None],
) -> int:
    """Show everything after a sequence, a page at a time; returns the newest."""
    while True:
        found, after = following.read(partial(_since, rollout, kinds, after))
        show(found)
        if len(found) < PAGE:
            return after


def _newest(rollout: str, kinds: tuple[str, ...], count: int) -> Plan[tuple[list[Entry], int]]:
    """The last events, and the sequence after which the next ones are."""
    last = yield from progress.last_seq()
    headers = yield from progress.newest(count, rollout, kinds)
    found = yield from _entries(headers[0].seq, last, rollout, kinds) if headers else _none()
    if rollout and len(headers) < count:
        found = (yield from _shared(rollout, kinds, count - len(headers))) + found
    return found, last


def _shared(rollout: str, kinds: tuple[str, ...], count: int) -> Plan[list[Entry]]:
    """The last events of the past that a branch shares, as those of the rollouts that have it."""
    found: list[Entry] = []
    one = yield from rollouts.rollout(rollout)
    while one.parent and count:
        origin = (yield from rollouts.spec(one)).origin
        if origin is None:
            break
        headers = yield from progress.until(origin.seq, one.parent, count, kinds)
        if headers:
            ends = (headers[0].seq, headers[-1].seq)
            found = (yield from _entries(*ends, one.parent, kinds)) + found
        count -= len(headers)
        one = yield from rollouts.rollout(one.parent)
    return found


def _since(rollout: str, kinds: tuple[str, ...], after: int) -> Plan[tuple[list[Entry], int]]:
    headers = yield from progress.since(after, rollout, PAGE, kinds)
    if not headers:
        return [], after
    last = headers[-1].seq
    return (yield from _entries(headers[0].seq, last, rollout, kinds)), last


def _entries(first: int, last: int, rollout: str, kinds: tuple[str, ...]) -> Plan[list[Entry]]:
    marks = ", ".join("?" * len(kinds))
    within = "AND rollout = ?" if rollout else ""
    return (
        yield from entry.entries(
            f"seq BETWEEN ? AND ? AND kind IN ({marks}) {within} ORDER BY seq",
            (first, last, *kinds, *([rollout] if rollout else [])),
        )
    )


def _none() -> Plan[list[Entry]]:
    yield from ()
    return []


def _show(page: Page, json: bool, found: list[Entry]) -> None:
    for one in found:
        if json:
            out.json_line(as_json(one))
        else:
            _line(page, one)
    page.flush()


def as_json(one: Entry) -> dict[str, Any]:
    """A line of `tail --json`."""
    event = one.event
    return {
        "seq": event.seq,
        "rollout": event.rollout,
        "step": event.step or None,
        "attempt": event.attempt,
        "kind": event.kind,
        "at": iso(event.at),
        "text": entry.said(one),
    }


def _line(page: Page, one: Entry) -> None:
    event, text = one.event, " ".join(entry.said(one).split())
    who = entry.who(one) if event.kind in ("guidance", "edit", "withdraw", "bookmark") else ""
    text = text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
    page.line(
        span(f"{local(event.at)} ", "dim"),
        span(f"{event.rollout} {event.step or '–'} ", "name"),
        span(f"{event.kind} ", "dim"),
        span(f"{who}: {text}" if who else text, TONES.get(event.kind, "")),
    )
