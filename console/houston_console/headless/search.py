"""`houston search QUERY`: find text in all rollouts, the newest first."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_shared import out
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.safe_text import safe_line
from houston_shared.store import search
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader
from houston_shared.store.search import Found, Hit


def arguments(parser: argparse.ArgumentParser) -> None:
    """`QUERY`, `--rollout`, `-n`, `--json`."""
    parser.add_argument(
        "query", nargs="+", metavar="QUERY", help='all words must be there; "a phrase", begin*'
    )
    parser.add_argument("--rollout", default="", metavar="R", help="only in this rollout")
    parser.add_argument("-n", type=options.positive, default=50, metavar="N", help="most hits (50)")
    options.as_json(parser, "one JSON line a hit")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print hits; what could not be looked at is said on stderr."""
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(arguments.rollout)) if arguments.rollout else ""
        found = reader.run(search.find(" ".join(arguments.query), rollout, arguments.n))
    page = Page()
    for hit in found.hits:
        if arguments.json:
            out.json_line(search.as_json(hit))
        else:
            page.line(*_line(hit))
    _notes(found)
    return int(ExitCode.DONE)


def _line(hit: Hit) -> tuple[Span, ...]:
    text, start, end = hit.snippet
    return (
        span(hit.rollout, "name"),
        span(f" {hit.step or '–'} {hit.kind} {local(hit.at)}  ", "dim"),
        Span(safe_line(text[:start])),
        Span(safe_line(text[start:end]), "match"),
        Span(safe_line(text[end:])),
    )


def _notes(found: Found) -> None:
    if not found.hits:
        out.note("Nothing was found.")
    if not found.complete:
        out.note(
            f"Without the index only the newest {search.SCAN_EVENTS} events with text were looked "
            "at; older ones may hold more."
            if not found.indexed
            else f"The index is {found.behind} events behind; not all of them were looked at."
        )
