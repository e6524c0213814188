"""`houston task list`: tasks of this home, from the database, or those that Houston brings."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, span
from houston_console.headless.spoken import score
from houston_shared import out, packaged
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import views
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader
from houston_shared.task import edited_since


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--packaged`, `--json`."""
    parser.add_argument(
        "--packaged", action="store_true", help="tasks that `houston task new --from` copies"
    )
    options.as_json(parser, "one JSON line a task")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them by name."""
    if arguments.packaged:
        return _packaged(arguments.json)
    with Reader(loaded.home) as reader:
        found = reader.run(rollouts.tasks())
        stands = [edited_since(reader.run(rollouts.task(one))) for one in found]
    if arguments.json:
        for one, now in zip(found, stands, strict=True):
            out.json_line(views.task(one, *now))
        return int(ExitCode.DONE)
    rows = [
        (
            span(one.name, "name"),
            span(one.rollouts),
            span(one.running),
            span(score(one.best_score)),
            span(f"broken: {problem}", "bad") if problem else span("changed" if edited else ""),
        )
        for one, (edited, problem) in zip(found, stands, strict=True)
    ]
    if rows:
        Page().table(("task", "rollouts#", "going on#", "best#", "file"), rows)
    else:
        out.note("No task was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)


def _packaged(json: bool) -> int:
    found = packaged.tasks()
    if json:
        for one in found:
            out.json_line(views.packaged(one))
        return int(ExitCode.DONE)
    rows = [
        (span(one.folder.name, "name"), span(one.task.domain), span(one.task.environment))
        for one in found
    ]
    Page().table(("task", "domain", "environment"), rows)
    out.note("next: houston task new NAME --from TASK")
    return int(ExitCode.DONE)
