"""`houston rollout list`: all rollouts, the newest first."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import get_args

import msgspec

from houston_console.headless import full_disk, gpu_waits, options
from houston_console.headless.page import GAP, Page, Span, span
from houston_console.headless.spoken import cut, duration, score, standing
from houston_shared import out
from houston_shared.clock import iso
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.records import RolloutState
from houston_shared.store import last_known, views
from houston_shared.store.queries import archived, attention, rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

REASON = 60
"""Characters of a reason where there is no terminal whose width would decide; --json has all."""
DOING = 40
"""Characters of what the worker does now, and of the signals of the last steps."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--task`, `--state`, `--json`."""
    parser.add_argument("--task", default="", metavar="NAME", help="only rollouts of this task")
    states = get_args(RolloutState)
    parser.add_argument("--state", default="", choices=states, help="only rollouts in this state")
    options.as_json(parser, "one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them."""
    with Reader(loaded.home) as reader:
        found = reader.run(rollouts.all_rollouts(arguments.task, arguments.state))
        archives = reader.run(archived.all_places()) if found else {}
        marked = reader.run(attention.recent(states=attention.ALIVE, reasons=arguments.json))
        stood = last_known.as_of(reader)
    found = gpu_waits.as_it_is(full_disk.as_it_is(found, loaded.home), loaded.home)
    if arguments.json:
        for one in found:
            archive = {"archive": archives[one.id]} if one.id in archives else {}
            needs = views.attention(attention.need(marked.get(one.id, [])))
            as_of = {"as_of": stood and iso(stood)}
            out.json_line({**views.rollout(one), **needs, **archive, **as_of})
    elif found:
        scores = ("best#", "last#")
        titles = ("rollout", "task", "steps#", *scores, "active#", "attention", "doing", "state")
        page = Page()
        rows = [_row(one, marked.get(one.id, [])) for one in found]
        room = _room(page, titles, rows)
        states = [_state(one, room, one.id in archives) for one in found]
        page.table(titles, [(*row, state) for row, state in zip(rows, states, strict=True)])
        if stood:
            out.note(last_known.sentence(stood))
    elif arguments.task or arguments.state:
        out.note("There is no such rollout.\n  next: houston rollout list")
    else:
        out.note("No rollout was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)


def _row(one: Rollout, marked: list[attention.Marked]) -> tuple[Span, ...]:
    return (
        span(one.id, "name"),
        span(
            f"{one.task} (branch of {one.parent} at {one.parent_step})" if one.parent else one.task
        ),
        span(one.steps),
        span(score(one.best_score)),
        span(score(one.last_score)),
        span(duration(one.active_us / 1_000_000)),
        span(cut(", ".join(attention.need(marked)), DOING), "bad"),
        span("" if rollouts.stands(one) else cut(one.activity, DOING)),
    )


def _state(one: Rollout, room: int | None, archived: bool) -> Span:
    """How it stands; on a terminal all of it fits the line, elsewhere the reason is short."""
    if room is None:
        one = msgspec.structs.replace(one, reason=cut(one.reason, REASON))
    return standing(one, room, archived)


def _room(page: Page, titles: Sequence[str], rows: list[tuple[Span, ...]]) -> int | None:
    """Characters that a terminal has left for the last column; None where there is none."""
    if not sys.stdout.isatty():
        return None
    taken = sum(width + GAP for width in page.widths(titles[:-1], rows))
    return shutil.get_terminal_size().columns - taken
