"""`houston log`: the journal's headers; `--audit`: who did what."""

import argparse
from collections import deque
from collections.abc import Iterator
from typing import Any

from houston_console.headless import entry, options
from houston_console.headless.entry import Entry
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store.journal import Header
from houston_shared.store.plan import Plan
from houston_shared.store.queries import progress, rollouts
from houston_shared.store.reader import Reader

PAGE = 500
"""Events of one read: short transactions, whatever the length of the journal."""

NEWEST = 50
"""Lines for a person who names no number; a program that asks for JSON gets all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--audit`, `--rollout`, `-n`, `--json`."""
    parser.add_argument("--audit", action="store_true", help="only what people and the daemon did")
    parser.add_argument("--rollout", default="", metavar="R", help="only of this rollout")
    parser.add_argument(
        "-n",
        type=options.positive,
        metavar="N",
        help=f"only the last N (as text {NEWEST}; --json: all)",
    )
    options.as_json(parser, "one JSON line an event")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print them, oldest first."""
    page = Page()
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(arguments.rollout)) if arguments.rollout else ""
        newest = arguments.n or (None if arguments.json else NEWEST)
        shown = 0
        if arguments.audit:
            for deed in deeds(reader, rollout, newest):
                shown += 1
                _deed(page, deed, arguments.json)
        else:
            for header in headers(reader, rollout, newest):
                shown += 1
                _header(page, header, arguments.json)
    if arguments.n is None and shown == newest:
        page.flush()
        out.note(f"These are the newest {NEWEST}; -n N shows the newest N.")
    return int(ExitCode.DONE)


def headers(reader: Reader, rollout: str, newest: int | None) -> Iterator[Header]:
    """All headers, or the newest, oldest first; read a page at a time."""
    after = 0
    if newest:
        found = reader.run(progress.newest(newest, rollout))
        after = found[0].seq - 1 if found else 0
    while found := reader.run(progress.since(after, rollout, PAGE)):
        yield from found
        after = found[-1].seq


def deeds(reader: Reader, rollout: str, newest: int | None) -> Iterator[Entry]:
    """What people and the daemon did, oldest first."""
    kept: deque[Entry] = deque(maxlen=newest)
    after = 0
    while found := reader.run(_bodies(after, rollout)):
        for one in found:
            if not entry.deed(one):
                continue
            if newest:
                kept.append(one)
            else:
                yield one
        after = found[-1].event.seq
    yield from kept


def _bodies(after: int, rollout: str) -> Plan[list[Entry]]:
    marks = ", ".join("?" * len(entry.DEEDS))
    within = "AND rollout = ?" if rollout else ""
    parameters = (after, *entry.DEEDS, *([rollout] if rollout else []), PAGE)
    condition = f"seq > ? AND kind IN ({marks}) {within} ORDER BY seq LIMIT ?"
    return (yield from entry.entries(condition, parameters))


def _header(page: Page, one: Header, json: bool) -> None:
    if json:
        fields: dict[str, Any] = {name: getattr(one, name) for name in one.__struct_fields__}
        out.json_line({**fields, "at": iso(one.at), "erased": bool(one.erased)})
        return
    place = f"{one.rollout or '–'} {one.step or '–'}"
    part = one.part or "–"
    page.line(
        span(f"{one.seq} ", "dim"),
        span(f"{local(one.at)} "),
        span(f"{place} ", "name"),
        span(f"{one.kind} {part}{' attempt ' + str(one.attempt) if one.attempt > 1 else ''}"),
        span(" erased" if one.erased else "", "bad"),
    )


def _deed(page: Page, one: Entry, json: bool) -> None:
    event, who, verified = one.event, entry.who(one), entry.verified(one)
    if json:
        line: dict[str, Any] = {"seq": event.seq, "at": iso(event.at), "who": who}
        line |= {"verified": verified, "did": event.kind, "rollout": event.rollout}
        out.json_line({**line, "step": event.step or None, "text": entry.said(one)})
        return
    page.line(
        span(f"{local(event.at)} ", "dim"),
        span(f"{who}{'' if verified else ' (unverified)'} ", "person"),
        span(f"{event.kind} "),
        span(f"{event.rollout or '–'}{f' {event.step}' if event.step else ''} ", "name"),
        span(entry.said(one)),
    )
