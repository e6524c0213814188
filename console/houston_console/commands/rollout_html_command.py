"""`houston rollout html`: one rollout as a page that a browser opens and that needs nothing else.

It reads the journal as `steps` does, a few steps at a time, and puts the page together beside its
place. What the page looks like is the package `rollout_page`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from houston_console.commands import command_options, step_commands
from houston_console.commands.rollout_page.page_elements import (
    element,
    markup,
    page_end,
    page_start,
)
from houston_console.commands.rollout_page.rollout_header import (
    StepGlance,
    header_element,
    toolbar_element,
)
from houston_console.commands.rollout_page.step_elements import StepView, step_element
from houston_shared import atomic_file, command_arguments, command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError, unwritable_as_error
from houston_shared.records import ENDED_STATES, Guidance
from houston_shared.store import (
    annotation_queries,
    removed_data_queries,
    rollout_queries,
    workspace_queries,
)
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import local_time, now_us, pluralize


class _RolloutFacts(NamedTuple):
    """What is read once."""

    row: RolloutRow
    instructions: str
    guidance: list[Guidance]
    scores: dict[int, float]
    """By step."""
    bookmarks: dict[int, list[tuple[str, str]]]
    """By step: author and note."""
    archived: str


def add_rollout_html_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--out`, `--force`, `--json`."""
    command_options.add_place_argument(parser, "STEP-STEP")
    parser.add_argument(
        "--out", metavar="FILE", help="output file (ROLLOUT.html in this folder); - for stdout"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    command_options.add_json_option(parser, "the file and its size as one JSON object")


def run_rollout_html(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write the page."""
    secret_redaction.install_secrets(loaded.config)
    place = command_arguments.parse_permalink(arguments.rollout)
    if arguments.out not in (None, "-"):
        _check_place(Path(arguments.out), arguments.force)  # before a long rollout is read
    with Reader(loaded.home) as reader:
        facts = reader.run(_read_facts(place.rollout))
        first, last = place.first or 1, place.last or facts.row.steps
        if place.first > facts.row.steps:
            raise command_options.missing_steps_text(facts.row, place)
        page, steps = _page_text(reader, facts, first, last)
    if arguments.out == "-":
        with command_output.guard_stdout():
            sys.stdout.write(page)
        return int(ExitCode.DONE)
    file = Path(arguments.out or f"{facts.row.id}.html")
    data = page.encode()
    _write_page(file, data, arguments.force)
    if arguments.json:
        result = {"rollout": facts.row.id, "file": str(file.absolute()), "bytes": len(data)}
        command_output.print_json_line(result | {"steps": steps})
    else:
        size = f"{len(data) / 1e6:.1f} MB" if len(data) >= 1e5 else f"{len(data) / 1e3:.0f} KB"
        command_output.print_line(f"{file}: {pluralize(steps, 'step')}, {size}")
    return int(ExitCode.DONE)


def _read_facts(name: str) -> ReadPlan[_RolloutFacts]:
    row = yield from rollout_queries.find_rollout(name)
    spec = yield from rollout_queries.read_spec_if_kept(row)
    evaluations = yield from workspace_queries.list_evaluations(row.id)
    bookmarks: dict[int, list[tuple[str, str]]] = {}
    for mark in (yield from annotation_queries.list_bookmarks(row.id)):
        bookmarks.setdefault(mark.step, []).append((mark.author, mark.note))
    return _RolloutFacts(
        row=row,
        instructions=spec.task.instructions if spec else "",
        guidance=(yield from annotation_queries.list_guidance(row.id)),
        scores={each.step: each.score for each in evaluations if each.score is not None},
        bookmarks=bookmarks,
        archived=(yield from removed_data_queries.describe_archived(row.id)),
    )


def _page_text(reader: Reader, facts: _RolloutFacts, first: int, last: int) -> tuple[str, int]:
    """The whole page, and how many steps are in it."""
    glances: list[StepGlance] = []
    articles: list[str] = []
    for view in _read_views(reader, facts, first, last):
        glances.append(StepGlance.of(view))
        articles.append(markup(step_element(view)))
    row = facts.row
    header = header_element(
        row, facts.instructions, glances, facts.guidance, _what_is_missing(facts, first, last)
    )
    parts = [
        page_start(f"{row.task} · {row.id}"),
        markup(header),
        markup(toolbar_element(glances)),
        "<main>\n" + "\n".join(articles) + "\n</main>\n",
        markup(element("footer", f"houston rollout html {row.id}, {local_time(now_us())}")),
        page_end(),
    ]
    return "\n".join(parts), len(articles)


def _read_views(reader: Reader, facts: _RolloutFacts, first: int, last: int) -> Iterator[StepView]:
    """Closed steps with what stands beside them, in order."""
    rollout = facts.row.id
    while first <= last:
        end = min(last, first + step_commands.STEPS_PER_READ - 1)
        plan = step_commands.read_closed_steps(rollout, first, end)
        records, _, rewards, _ = reader.run(plan)
        verdicts = reader.run(annotation_queries.read_verdicts_with_reasons(rollout, first, end))
        for record in records:
            yield StepView(
                record,
                verdicts.get(record.step, ()),
                rewards.get((record.step, record.attempt)),
                facts.scores.get(record.step),
                facts.bookmarks.get(record.step, ()),
            )
        first = end + 1


def _what_is_missing(facts: _RolloutFacts, first: int, last: int) -> str:
    """Why the page is not the whole rollout; empty where it is."""
    row = facts.row
    notes = [facts.archived] if facts.archived else []
    if first > 1 or last < row.steps:
        notes.append(f"Steps {first} to {last} of {row.steps}.")
    if row.state not in ENDED_STATES:
        notes.append(f"The rollout has not ended: this is its state at {local_time(now_us())}.")
    return " ".join(notes)


def _check_place(file: Path, force: bool) -> None:
    """Raise HoustonError where something lies that is not to be replaced."""
    if file.exists() and not file.is_file():
        raise UsageError(
            f"{file} is there, and no file.", "Nothing was written.", "Name another --out FILE."
        )
    if file.exists() and not force:
        raise HoustonError(
            f"{file} already exists.",
            "Nothing was written.",
            "Name another --out, or replace it: --force",
        )


def _write_page(file: Path, data: bytes, force: bool) -> None:
    _check_place(file, force)
    with unwritable_as_error(file, "Nothing was written.", "Name another --out FILE."):
        atomic_file.write_atomically(file, data, durable=False)
