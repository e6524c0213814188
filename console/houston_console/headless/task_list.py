"""`houston task list`: tasks of this home, from the database."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, span
from houston_console.headless.spoken import score
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import views
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    options.as_json(parser, "one JSON line a task")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them by name."""
    with Reader(loaded.home) as reader:
        found = reader.run(rollouts.tasks())
    if arguments.json:
        for one in found:
            out.json_line(views.task(one))
        return int(ExitCode.DONE)
    rows = [
        (span(one.name, "name"), span(one.rollouts), span(one.running), span(score(one.best_score)))
        for one in found
    ]
    if rows:
        Page().table(("task", "rollouts#", "going on#", "best#"), rows)
    else:
        out.note("No task was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)
