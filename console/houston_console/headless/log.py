"""`houston log`: the journal's headers; `--audit`: who did what (`audit`)."""

import argparse
from collections.abc import Iterator
from typing import Any

from houston_console.headless import audit, options
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.journal import Header
from houston_shared.store.queries import progress, rollouts
from houston_shared.store.reader import Reader

PAGE = 500
"""Events of one read: short transactions, whatever the length of the journal."""

NEWEST = 50
"""Lines for a person who names no number; a program that asks for JSON gets all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--audit`, `--rollout`, `--by`, `--since`, `-n`, `--json`."""
    parser.add_argument(
        "--audit",
        action="store_true",
        help="only what people and the daemon did, and who was refused what",
    )
    parser.add_argument("--by", default="", metavar="WHO", help="of the audit: a name or a uid")
    parser.add_argument(
        "--since",
        type=options.since,
        default=0,
        metavar="WHEN",
        help="of the audit: from this time on (2026-11-20T09:00, or 30m, 2h, 3d ago)",
    )
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
    if (arguments.by or arguments.since) and not arguments.audit:
        raise HoustonError(
            "--by and --since are of the audit.", next="houston log --audit", code=ExitCode.USAGE
        )
    page = Page()
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(arguments.rollout)) if arguments.rollout else ""
        newest = arguments.n or (None if arguments.json else NEWEST)
        shown = 0
        if arguments.audit:
            wanted = audit.Wanted(rollout, arguments.by, arguments.since, newest)
            for deed in audit.deeds(reader, wanted):
                shown += 1
                audit.show(page, deed, arguments.json)
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
