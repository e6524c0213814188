"""`houston train list`: training runs, and how far they have come."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_console.headless.spoken import STATE_TONES, cut
from houston_shared import out, training_progress
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.lock import holder
from houston_shared.store import policy_views
from houston_shared.store.queries import training_runs
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.store.reader import Reader
from houston_shared.training_progress import Progress

REASON = 100
"""Characters of how it stands; --json has all."""

ENDED = ("finished", "failed", "cancelled")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    options.as_json(parser, "one JSON line a run")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them, the oldest first."""
    with Reader(loaded.home) as reader:
        found = reader.run(training_runs.every())
    runs = [(one, training_progress.read(loaded.home, one.id)) for one in found]
    if arguments.json:
        for one, progress in runs:
            out.json_line(policy_views.run(one, progress))
    elif runs:
        there = holder(loaded.home) is not None
        titles = ("run", "kind", "state", "became", "queued", "how it stands")
        Page().table(titles, [_row(*one, there) for one in runs])
    else:
        out.note("Nothing was trained in this home.\n  next: houston train sft --help")
    return int(ExitCode.DONE)


def stands(one: TrainingRun, progress: Progress | None, daemon: bool) -> str:
    """How a run stands, in words. daemon: whether one holds the home."""
    if one.state == "running" and not daemon and not one.alone:
        return "goes on from its last checkpoint when the daemon is back"
    if one.cancelling and one.state == "running":
        return f"is being cancelled by {one.cancelling.removeprefix('person:')}"
    if one.reason or one.state == "queued":
        return one.reason
    if progress is not None and one.state in ENDED and progress.state not in ENDED:
        return f"ended at step {progress.step:,} of {progress.steps:,}"
    return training_progress.words(progress)


def _row(one: TrainingRun, progress: Progress | None, daemon: bool) -> tuple[Span, ...]:
    alone = ", alone" if one.alone else ""
    return (
        span(one.id, "name"),
        span(one.kind),
        span(f"{one.state}{alone}", STATE_TONES.get(one.state, "")),
        span(one.policy or "–"),
        span(local(one.queued_at), "dim"),
        span(cut(stands(one, progress, daemon), REASON)),
    )
