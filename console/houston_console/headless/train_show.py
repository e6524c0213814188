"""`houston train show RUN`: what was asked of a training run, how far it is, where it lies."""

import argparse

from houston_console.headless import options, policy_show, train_list
from houston_console.headless.page import Page, span
from houston_shared import out, training_progress
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.lock import holder
from houston_shared.store import policy_views
from houston_shared.store.queries import training_runs
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN`, `--json`."""
    parser.add_argument("run", metavar="RUN", help="its name, as `train list` says it")
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it."""
    with Reader(loaded.home) as reader:
        one = meant(reader, arguments.run)
        asked = reader.run(training_runs.asked(one))
    progress = training_progress.read(loaded.home, one.id)
    if arguments.json:
        out.json_line({**policy_views.run(one, progress), **policy_views.asked(asked)})
        return int(ExitCode.DONE)
    page = Page()
    there = holder(loaded.home) is not None
    page.line(span(one.id, "name"), f"  {one.kind}, {one.state}, queued {local(one.queued_at)}")
    facts = [("stands", train_list.stands(one, progress, there))]
    facts += [("became", one.policy)] if one.policy else []
    facts += [("begun", f"{one.starts} times")] if one.starts > 1 else []
    if asked is not None:
        facts += [("from", asked.parent or asked.base)]
        facts += [("rollouts", ", ".join(asked.rollouts))] if asked.rollouts else []
        facts += [("recipe", policy_show.pairs(asked.recipe))] if asked.recipe else []
    folder = training_progress.folder(loaded.home, one.id)
    for title, text in [*facts, ("files", f"{folder} (log.txt, output.txt)")]:
        page.line(span(f"  {title:<9} ", "dim"), span(text))
    return int(ExitCode.DONE)


def meant(reader: Reader, name: str) -> TrainingRun:
    """The run of that name. Raises HoustonError."""
    found = reader.run(training_runs.one(name))
    if found is None:
        raise HoustonError(f"There is no training run {name!r}.", next="houston train list")
    return found
