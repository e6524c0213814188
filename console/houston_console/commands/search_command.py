"""`houston search QUERY`: find text in all rollouts, the newest first.

Prints hits as they are found. The search itself is in houston_shared.
"""

import argparse
from collections.abc import Iterator

from houston_console.commands import command_options
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_shared import command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode
from houston_shared.safe_text import safe_line
from houston_shared.store import journal_search, rollout_queries
from houston_shared.store.journal_search import SearchHit
from houston_shared.store.search_matching import SEARCH_TARGETS, SearchMode, SearchQuery
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import local_time


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """`QUERY`, `--literal`, `--regex`, `--rollout`, `--task`, `--in`, `-n`, `--json`."""
    parser.add_argument(
        "query", nargs="+", metavar="QUERY", help='all words must occur; "a phrase", prefix*'
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--literal", action="store_true", help="QUERY is literal text, also within words"
    )
    mode.add_argument("--regex", action="store_true", help="QUERY is a regular expression")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--rollout", default="", metavar="R", help="only in this rollout")
    place.add_argument("--task", default="", metavar="TASK", help="only in rollouts of this task")
    parser.add_argument(
        "--in",
        dest="what",
        choices=SEARCH_TARGETS,
        default="steps",
        help="steps: thoughts, calls, results, guidance (the default); diffs: changed files;"
        " searches: the agent's searches and pages; terminals: raw logs on this machine",
    )
    parser.add_argument(
        "-n", type=command_options.positive_int, default=50, metavar="N", help="at most N hits (50)"
    )
    command_options.add_json_option(parser, "one JSON line per hit")


def run_search(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print hits as they are found; what could not be looked at is said on stderr."""
    if arguments.what == "terminals":  # their logs are on disk as they were printed
        secret_redaction.install_secrets(loaded.config)
    notes: list[str] = []
    with Reader(loaded.home) as reader:
        query = _build_query(arguments, reader)
        page, count = OutputPage(), 0
        for hit in _search_hits(reader, query, notes):
            if arguments.json:
                command_output.print_json_line(journal_search.search_hit_json(hit))
            else:
                page.line(*_hit_line(hit))
            count += 1
            if count == arguments.n:
                break
    if not count:
        command_output.print_note("Nothing was found.")
    for note in notes:
        command_output.print_note(note)
    return int(ExitCode.DONE)


def _build_query(arguments: argparse.Namespace, reader: Reader) -> SearchQuery:
    mode: SearchMode = "literal" if arguments.literal else "regex" if arguments.regex else "words"
    text = " ".join(arguments.query)
    if arguments.rollout:
        rollout = reader.run(rollout_queries.resolve_rollout_id(arguments.rollout))
        return SearchQuery(text, mode, "rollout", arguments.what, rollout=rollout)
    if arguments.task:
        return SearchQuery(text, mode, "task", arguments.what, task=arguments.task)
    return SearchQuery(text, mode, "all", arguments.what)


def _search_hits(reader: Reader, query: SearchQuery, notes: list[str]) -> Iterator[SearchHit]:
    for progress in journal_search.search_home(reader, query):
        yield from progress.hits
        notes += progress.notes


def _hit_line(hit: SearchHit) -> tuple[OutputSpan, ...]:
    text, start, end = hit.snippet, hit.start, hit.end
    place = f"{hit.rollout}@{hit.step}" if hit.step else hit.rollout
    when = f" {local_time(hit.at)}" if hit.at else ""
    return (
        span(place, "name"),
        span(f" {hit.name}{when}  ", "dim"),
        OutputSpan(safe_line(text[:start])),
        OutputSpan(safe_line(text[start:end]), "match"),
        OutputSpan(safe_line(text[end:])),
    )
