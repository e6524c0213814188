"""`houston rollout list`: all rollouts, the newest first."""

import argparse
from typing import get_args

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_console.headless.spoken import duration, score, standing
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.records import RolloutState
from houston_shared.store import views
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader


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
    if arguments.json:
        for one in found:
            out.json_line(views.rollout(one))
    elif found:
        titles = ("rollout", "task", "steps#", "best#", "active#", "doing", "state")
        Page().table(titles, [_row(one) for one in found])
    elif arguments.task or arguments.state:
        out.note("There is no such rollout.\n  next: houston rollout list")
    else:
        out.note("No rollout was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)


def _row(one: Rollout) -> tuple[Span, ...]:
    return (
        span(one.id, "name"),
        span(one.task),
        span(one.steps),
        span(score(one.best_score)),
        span(duration(one.active_us / 1_000_000)),
        span(one.activity),
        standing(one),
    )
