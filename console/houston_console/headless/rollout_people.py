"""`houston rollout people [R]`: what attention cost: who looked for how long, and words said."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, span
from houston_console.headless.spoken import duration
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import views
from houston_shared.store.plan import Plan
from houston_shared.store.queries import cost, rollouts
from houston_shared.store.queries.cost import Spent
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--task`, `--with-past`, `--json`."""
    options.rollout(parser, optional=True)
    parser.add_argument("--task", default="", metavar="NAME", help="only rollouts of this task")
    parser.add_argument(
        "--with-past",
        action="store_true",
        help="for branches, also what the past that they share cost",
    )
    options.as_json(parser, "one JSON line a rollout and person")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them, of one rollout or of all."""
    with Reader(loaded.home) as reader:
        found = reader.run(_read(arguments))
    lines = [(rollout, one) for rollout, spent in found.items() for one in spent]
    if arguments.json:
        for rollout, one in lines:
            out.json_line(views.spent(rollout, one))
    elif lines:
        _table(lines)
    else:
        out.note("Nobody has looked at it or spoken to it with a console yet.")
    return int(ExitCode.DONE)


def _read(arguments: argparse.Namespace) -> Plan[dict[str, list[Spent]]]:
    if arguments.rollout:
        ids = [(yield from rollouts.resolve(arguments.rollout))]
    else:
        ids = [one.id for one in (yield from rollouts.all_rollouts(arguments.task))]
    if not arguments.with_past:
        return (yield from cost.of(ids))
    found: dict[str, list[Spent]] = {}
    for id in ids:
        found[id] = yield from cost.with_past(id)
    return found


def _table(lines: list[tuple[str, Spent]]) -> None:
    titles = ("rollout", "person", "active#", "looked#", "visits#", "messages#", "words#")
    rows = [(rollout, one.name if one.verified else f"{one.name} (unverified)", one)
            for rollout, one in lines]  # fmt: skip
    Page().table(
        titles,
        [
            (
                span(rollout, "name"),
                span(who, "person"),
                span(duration(one.active_us / 1e6)),
                span(duration(one.looked_us / 1e6)),
                span(one.visits),
                span(one.messages),
                span(one.words),
            )
            for rollout, who, one in rows
        ],
    )
