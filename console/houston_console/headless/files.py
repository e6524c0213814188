"""`houston files R [PATH]`: what a rollout changed, or every change of one file with its diff.

R@STEP shows what one step changed; `--searches` what the agent searched, on the web or in files.
"""

import argparse
from collections.abc import Iterable

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_shared import out, permalink
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.plan import END
from houston_shared.store.queries import archived, file_history, rollouts
from houston_shared.store.queries.file_history import FileRow, Made, StepChange
from houston_shared.store.queries.world import Search
from houston_shared.store.reader import Reader

PAGE = 40
"""Diffs of one read: short transactions, whatever the length of the history."""
_TONES = {"+": "good", "-": "bad", "@": "dim"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `PATH`, `--searches`, `--json`."""
    options.place(parser, "STEP")
    parser.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="every change of this file"
    )
    parser.add_argument("--searches", action="store_true", help="what the agent searched")
    options.as_json(parser, "one JSON line a file, a change or a search")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print them: files and changes the newest first."""
    place = permalink.split(arguments.rollout)
    if arguments.searches and arguments.path:
        raise HoustonError("--searches has no file.", code=ExitCode.USAGE)
    with Reader(loaded.home) as reader:
        row = reader.run(rollouts.rollout(place.rollout))
        one = row.id
        if place.first > row.steps:
            raise options.not_there(row, place)
        if told := reader.run(archived.sentence(one)):
            out.note(told)
        if arguments.searches:
            _searches(reader.run(file_history.searches(one)), place, arguments.json)
        elif arguments.path or place.first:
            first, last = place.first or 1, place.last or END
            made = reader.run(file_history.history(one, arguments.path, first, last))
            for at in range(0, len(made), PAGE):
                part = made[at : at + PAGE]
                _diffs(part, reader.run(file_history.diffs(part)), arguments.json)
            if not made:
                out.note(f"Nothing of that was changed; all files: houston files {one}")
        else:
            _files(reader.run(file_history.files(one)), arguments.json)
    return int(ExitCode.DONE)


def _files(found: Iterable[FileRow], as_json: bool) -> None:
    rows = list(found)
    if as_json:
        for one in rows:
            out.json_line({name: getattr(one, name) for name in one.__struct_fields__})
        return
    Page().table(
        ("FILE", "CHANGES#", "ADDED#", "REMOVED#", "LAST STEP#"),
        [
            (
                span(one.path, "name"),
                span(one.changes),
                span(f"+{one.added}", "good"),
                span(f"-{one.removed}", "bad"),
                span(one.last_step),
            )
            for one in rows
        ],
    )
    if not rows:
        out.note("No step has changed a file.")
    elif len(rows) == file_history.FILES:
        out.note(f"These are the {file_history.FILES} files that were changed last.")


def _diffs(made: Iterable[Made], changes: Iterable[StepChange], as_json: bool) -> None:
    page = Page()
    for one, change in zip(made, changes, strict=True):
        if as_json:
            out.json_line(file_history.as_json(change, one))
            continue
        page.line(*_head(one))
        for text in change.change.diff.splitlines():
            page.line("  ", span(text, _TONES.get(text[:1], "")))
        if change.change.note or not change.change.diff:
            page.line("  ", span(change.change.note or "no text to compare", "dim"))


def _head(one: Made) -> tuple[Span, ...]:
    return (
        span(f"step {one.step} ", "name"),
        span(one.path),
        span(
            f"  {one.kind} +{one.added} -{one.removed}  agent {one.tools}  {local(one.at)}", "dim"
        ),
    )


def _searches(found: Iterable[Search], place: permalink.Place, as_json: bool) -> None:
    page = Page()
    for one in found:
        if place.first and not place.first <= one.step <= place.last:
            continue
        if as_json:
            fields = ("step", "kind", "query", "results")
            out.json_line({name: getattr(one, name) for name in fields})
        else:
            page.line(
                span(f"step {one.step} ", "name"),
                span(f"{one.kind} ", "call"),
                span(one.query),
                span(f"  {one.results} found", "dim"),
            )
