"""`houston tail [R]`: what happens, a line an event; with -f as it is stored."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from houston_console.headless import entry, options, tail_reading
from houston_console.headless.entry import Entry
from houston_console.headless.following import Following
from houston_console.headless.page import Page, span
from houston_console.headless.tail_reading import Wanted
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.flags import whole
from houston_shared.records import ENDED
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader

WIDTH = 300
"""Characters of an event's text on its line; --json has all of it."""
PEOPLE = ("guidance", "edit", "withdraw", "reorder", "bookmark", "verdict", "claim")
"""Kinds whose line begins with who did it."""
TONES = {"guidance": "person", "edit": "person", "withdraw": "person", "delivery": "person",
         "sample": "", "result": "dim", "observation": "dim", "state": "name"}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `-f`, `-n`, `--rollout`, `--task`, `--kind`, `--errors`, `--json`."""
    options.rollout(parser, optional=True)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on as events are stored, until R ends"
    )
    parser.add_argument(
        "-n", type=whole(), default=20, metavar="N", help="begin with the last N (20)"
    )
    parser.add_argument(
        "--rollout",
        dest="more",
        action="append",
        default=[],
        metavar="R",
        help="only of this rollout (may be given again)",
    )
    parser.add_argument(
        "--task", default="", metavar="NAME", help="only of this task's rollouts, later ones too"
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=entry.TOLD,
        metavar="KIND",
        help=f"only these (may be given again): {', '.join(entry.TOLD)}",
    )
    parser.add_argument(
        "--errors",
        action="store_true",
        help="only what went wrong: failed calls, no action, signals, failures, forced pauses",
    )
    options.as_json(parser, "one JSON line an event")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print what is there, and with -f what comes, until the rollouts end or interrupted."""
    page = Page()
    with Reader(loaded.home) as reader:
        wanted = _wanted(arguments, reader)
        if not arguments.follow:
            _show(page, arguments.json, reader.run(tail_reading.newest(wanted, arguments.n))[0])
            return int(ExitCode.DONE)
        with Following(loaded.home, reader) as following:
            # Looked at before its events are: nothing that ended it is left out.
            ended = _ended(following, wanted)
            found, seq = following.read(lambda: tail_reading.newest(wanted, arguments.n))
            _show(page, arguments.json, found)
            while not ended:
                following.wait()
                ended = _ended(following, wanted)
                seq = _catch_up(following, wanted, seq, partial(_show, page, arguments.json))
    many = len(wanted.rollouts) > 1
    out.note(f"{', '.join(wanted.rollouts)} {'have' if many else 'has'} ended.")
    return int(ExitCode.DONE)


def _wanted(arguments: argparse.Namespace, reader: Reader) -> Wanted:
    names = [name for name in (arguments.rollout, *arguments.more) if name]
    ids = dict.fromkeys(reader.run(rollouts.resolve(name)) for name in names)
    if arguments.task and not reader.run(rollouts.all_rollouts(arguments.task)):
        out.note(f"No rollout of a task {arguments.task!r} was started yet.")
    kinds = tuple(dict.fromkeys(arguments.kind or entry.TOLD))
    return Wanted(tuple(ids), arguments.task, kinds, arguments.errors)


def _ended(following: Following, wanted: Wanted) -> bool:
    """Whether nothing comes any more; of all rollouts together, or a task, something always may."""
    ids = wanted.rollouts
    return (
        bool(ids)
        and not wanted.task
        and all(following.read(partial(rollouts.rollout, id)).state in ENDED for id in ids)
    )


def _catch_up(
    following: Following, wanted: Wanted, after: int, show: Callable[[list[Entry]], None]
) -> int:
    """Show everything behind a sequence, a page at a time; returns the newest."""
    while True:
        found, after, more = following.read(partial(tail_reading.since, wanted, after))
        show(found)
        if not more:
            return after


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
    who = entry.who(one) if event.kind in PEOPLE else ""
    text = text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
    page.line(
        span(f"{local(event.at)} ", "dim"),
        span(f"{event.rollout or '–'} {event.step or '–'} ", "name"),
        span(f"{event.kind} ", "dim"),
        span(f"{who}: {text}" if who else text, TONES.get(event.kind, "")),
    )
