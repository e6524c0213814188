"""`houston rollout list`: all rollouts, who needs a person most first."""

import argparse
from itertools import groupby
from typing import get_args

from houston_console.headless import options, rollout_table, standing_now
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.need import Need, ordered
from houston_shared.person import myself
from houston_shared.records import RolloutState
from houston_shared.store import last_known, views
from houston_shared.store.queries import archived, home
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--task`, `--state`, `--by-task`, `--json`."""
    parser.add_argument("--task", default="", metavar="NAME", help="only rollouts of this task")
    states = get_args(RolloutState)
    parser.add_argument("--state", default="", choices=states, help="only rollouts in this state")
    parser.add_argument(
        "--by-task", action="store_true", help="task by task, that with the most need first"
    )
    options.as_json(parser, "one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them."""
    me = myself(loaded.config.console.name)
    plan = home.standings(me, 0, arguments.task, arguments.state, bodies=arguments.json)
    with Reader(loaded.home) as reader:
        stands = reader.run(plan)
        archives = reader.run(archived.all_places()) if stands else {}
        stood = last_known.as_of(reader)
    found = ordered(standing_now.as_it_is(stands, loaded.home), now_us())
    if arguments.by_task:
        found = _by_task(found)
    if arguments.json:
        for one in found:
            id = one.standing.rollout.id
            archive = {"archive": archives[id]} if id in archives else {}
            as_of = {"as_of": stood and iso(stood)}
            out.json_line(
                {**views.rollout(one.standing.rollout), **views.need(one), **archive, **as_of}
            )
    elif found:
        page = Page()
        tables = groupby(found, _task) if arguments.by_task else [("", iter(found))]
        for number, (task, needs) in enumerate(tables):
            if task:
                page.line("\n" if number else "", span(task, "name"))
            rollout_table.show(page, list(needs), archives, by_task=bool(task))
        if stood:
            out.note(last_known.sentence(stood))
    elif arguments.task or arguments.state:
        out.note("There is no such rollout.\n  next: houston rollout list")
    else:
        out.note("No rollout was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)


def _task(one: Need) -> str:
    return one.standing.rollout.task


def _by_task(found: list[Need]) -> list[Need]:
    """Tasks in the order of their neediest rollout; within one as before."""
    first = {task: number for number, task in reversed(list(enumerate(map(_task, found))))}
    return sorted(found, key=lambda one: first[_task(one)])
