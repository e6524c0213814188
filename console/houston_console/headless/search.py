"""`houston search QUERY`: find text in all rollouts, the newest first."""

import argparse
from collections.abc import Iterator

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_shared import out
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.safe_text import safe_line
from houston_shared.store.finding import looking
from houston_shared.store.finding.looking import Hit
from houston_shared.store.finding.query import WHATS, Mode, Query
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`QUERY`, `--literal`, `--regex`, `--rollout`, `--task`, `--in`, `-n`, `--json`."""
    parser.add_argument(
        "query", nargs="+", metavar="QUERY", help='all words must be there; "a phrase", begin*'
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--literal", action="store_true", help="QUERY is text as it stands, also within words"
    )
    mode.add_argument("--regex", action="store_true", help="QUERY is a regular expression")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--rollout", default="", metavar="R", help="only in this rollout")
    place.add_argument("--task", default="", metavar="NAME", help="only in rollouts of this task")
    parser.add_argument(
        "--in",
        dest="what",
        choices=WHATS,
        default="steps",
        help="steps: thoughts, calls, results, guidance (the default); diffs: changed files;"
        " searches: the agent's searches and pages; terminals: raw logs on this machine",
    )
    parser.add_argument("-n", type=options.positive, default=50, metavar="N", help="most hits (50)")
    options.as_json(parser, "one JSON line a hit")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print hits as they are found; what could not be looked at is said on stderr."""
    notes: list[str] = []
    with Reader(loaded.home) as reader:
        query = _query(arguments, reader)
        page, found = Page(), 0
        for hit in _hits(reader, query, notes):
            if arguments.json:
                out.json_line(looking.as_json(hit))
            else:
                page.line(*_line(hit))
            found += 1
            if found == arguments.n:
                break
    if not found:
        out.note("Nothing was found.")
    for note in notes:
        out.note(note)
    return int(ExitCode.DONE)


def _query(arguments: argparse.Namespace, reader: Reader) -> Query:
    mode: Mode = "literal" if arguments.literal else "regex" if arguments.regex else "words"
    text = " ".join(arguments.query)
    if arguments.rollout:
        rollout = reader.run(rollouts.resolve(arguments.rollout))
        return Query(text, mode, "rollout", arguments.what, rollout=rollout)
    if arguments.task:
        return Query(text, mode, "task", arguments.what, task=arguments.task)
    return Query(text, mode, "all", arguments.what)


def _hits(reader: Reader, query: Query, notes: list[str]) -> Iterator[Hit]:
    for progress in looking.search(reader, query):
        yield from progress.hits
        notes += progress.notes


def _line(hit: Hit) -> tuple[Span, ...]:
    text, start, end = hit.snippet, hit.start, hit.end
    place = f"{hit.rollout}@{hit.step}" if hit.step else hit.rollout
    when = f" {local(hit.at)}" if hit.at else ""
    return (
        span(place, "name"),
        span(f" {hit.name}{when}  ", "dim"),
        Span(safe_line(text[:start])),
        Span(safe_line(text[start:end]), "match"),
        Span(safe_line(text[end:])),
    )
