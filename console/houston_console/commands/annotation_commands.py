"""`houston bookmark` and `houston verdict`: mark steps for everybody; keep or mask them for
training.

Without a verdict it shows what every source said of the steps, and what counts. Masks take effect
when rows are exported, in the daemon's `training`.
"""

import argparse
import uuid
from collections.abc import Sequence
from typing import Any

from houston_console.commands import command_options, daemon_requests
from houston_console.commands.output_page import OutputPage, span
from houston_shared import command_arguments, command_output, verdict_precedence
from houston_shared.command_arguments import StepReference
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import MAX_JUDGED_STEPS, GiveVerdicts, JudgedSteps, Judgement
from houston_shared.errors import ExitCode, UsageError
from houston_shared.store import annotation_queries, event_text, rollout_queries
from houston_shared.store.annotation_queries import BookmarkRow, SourceVerdict, VerdictHistoryEntry
from houston_shared.store.journal_events import OPEN_END, ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import iso_time, local_time, pluralize
from houston_shared.wire import BookmarkStep


def add_bookmark_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, `--note`, `--remove`, `--as`, `--json`."""
    command_options.add_place_argument(parser)
    command_options.add_step_argument(parser, "the step to mark")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--note", default="", metavar="TEXT", help="why; everybody can read it")
    change.add_argument("--remove", action="store_true", help="remove your own mark")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON line per bookmark")


def run_bookmark(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Set or remove a bookmark, or list bookmarks."""
    name, step = command_arguments.parse_step_reference(arguments.rollout, arguments.step)
    if not step and (arguments.note or arguments.remove):
        raise UsageError("Name a step.", "", "houston bookmark R@STEP")
    reader = Reader(loaded.home)
    rollout = daemon_requests.resolve_rollout(reader, name).id
    if step:
        _send_bookmark(arguments, loaded, rollout, step)
    bookmarks = reader.run(annotation_queries.list_bookmarks(rollout))
    reader.close()
    bookmarks = [bookmark for bookmark in bookmarks if step in (0, bookmark.step)]
    if arguments.json:
        for bookmark in bookmarks:
            line = {"rollout": bookmark.rollout, "step": bookmark.step, "author": bookmark.author}
            more = {"note": bookmark.note, "at": iso_time(bookmark.at)}
            command_output.print_json_line({**line, **more})
    elif step:
        answer = "your mark is removed" if arguments.remove else "marked"
        command_output.print_line(f"{command_arguments.format_permalink(rollout, step)}: {answer}.")
    else:
        _print_bookmarks(rollout, bookmarks)
    return int(ExitCode.DONE)


def _send_bookmark(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, rollout: str, step: int
) -> None:
    message = BookmarkStep(
        rollout=rollout,
        step=step,
        note=arguments.note,
        remove=arguments.remove,
        claimed=daemon_requests.claimed_name(arguments, loaded),
    )
    look = f"houston bookmark {rollout}"
    daemon_requests.send_request(loaded, message, "The bookmark may have been kept.", look)


def _print_bookmarks(rollout: str, bookmarks: list[BookmarkRow]) -> None:
    page = OutputPage()
    for bookmark in bookmarks:
        page.line(
            span(f"{command_arguments.format_permalink(rollout, bookmark.step)} ", "name"),
            span(f"{local_time(bookmark.at)} {bookmark.author}", "dim"),
            span(f"  {bookmark.note}" if bookmark.note else ""),
        )
    if not bookmarks:
        next = f"houston bookmark {rollout}@STEP --note TEXT"
        command_output.print_note(f"No step of {rollout} is marked.\n  next: {next}")


VERDICT_TONES = {"keep": "good", "mask": "bad"}
_VERDICT_WORDS = {"keep": "kept", "mask": "masked"}


def verdict_json(
    rollout: str,
    step: int,
    verdicts: Sequence[SourceVerdict],
    history: Sequence[VerdictHistoryEntry],
) -> dict[str, Any]:
    """One step: the verdict that counts, all that stand, and all that was said of it."""
    current = verdicts[0] if verdicts else None
    return {
        "rollout": rollout,
        "step": step,
        "verdict": current.verdict if current else None,
        "source": current.source if current else None,
        "by": current.by if current else None,
        "reason": current.reason if current else "",
        "at": iso_time(current.at) if current else None,
        "sources": [_verdict_source_json(verdict) for verdict in verdicts],
        "history": [
            {
                "verdict": entry.verdict,
                "source": entry.source,
                "by": entry.by,
                "verified": entry.verified,
                "reason": entry.reason,
                "at": iso_time(entry.at),
            }
            for entry in history
            if entry.first <= step <= entry.last
        ],
    }


def print_verdicts(
    page: OutputPage,
    place: StepReference,
    verdicts: dict[int, list[SourceVerdict]],
    history: Sequence[VerdictHistoryEntry],
    closed: int,
) -> None:
    """What stands of the steps of a place, with reasons; and what was said, oldest first.

    closed: steps of the rollout that are over, judged or not.
    """
    if not history and not verdicts and not place.first:
        next = f"houston verdict {place.rollout} STEP keep|mask"
        command_output.print_note(f"No step of {place.rollout} was judged.\n  next: {next}")
        return
    for entry in history:
        author = entry.by if entry.verified else f"{entry.by} (unverified)"
        page.line(
            span(f"{local_time(entry.at)} {author} ({entry.source})  ", "dim"),
            span(f"{event_text.format_step_range(entry.first, entry.last)} ", "name"),
            span(entry.verdict, VERDICT_TONES.get(entry.verdict, "dim")),
            span(f": {entry.reason}" if entry.reason else ""),
        )
    if place.first:
        _print_current_verdicts(page, place, verdicts)
        return
    masked = sum(sources[0].verdict == "mask" for sources in verdicts.values())
    unjudged = closed - len(verdicts)
    alone = f"; {pluralize(unjudged, 'step')} nobody judged" if unjudged > 0 else ""
    page.line(span(f"now {len(verdicts) - masked} kept, {masked} masked{alone}", "dim"))


def _print_current_verdicts(
    page: OutputPage, place: StepReference, verdicts: dict[int, list[SourceVerdict]]
) -> None:
    """By step, what counts and what it outranks; of a range only steps that were judged."""
    several = place.last > place.first
    for step in sorted(verdicts) if several else [place.first]:
        sources = verdicts.get(step, [])
        verdict_word = _VERDICT_WORDS[sources[0].verdict] if sources else "kept"
        by = f"by {sources[0].source}" if sources else "it was not judged"
        tone = VERDICT_TONES[sources[0].verdict] if sources else "dim"
        page.line(span(f"step {step} ", "name"), span(f"is {verdict_word}", tone), span(f": {by}"))
        for rank, verdict in enumerate(sources):
            _print_verdict_source(page, verdict, counts=rank == 0)


def _print_verdict_source(page: OutputPage, verdict: SourceVerdict, counts: bool) -> None:
    rules = verdict_precedence.split_rule_reasons(verdict.reason)
    reason_text = f": {verdict.reason}" if verdict.reason and not rules else ""
    outranked = "" if counts else " (does not count)"
    page.line(
        span(f"  {verdict.source:<6}"),
        span(verdict.verdict, VERDICT_TONES[verdict.verdict] if counts else "dim"),
        span(f" by {verdict.by}{reason_text}{outranked}"),
        span(f"  {local_time(verdict.at)}", "dim"),
    )
    for rule in rules:
        page.line(span(f"         {rule.rule}@{rule.version}", "name"), span(f": {rule.reason}"))


def _verdict_source_json(verdict: SourceVerdict) -> dict[str, Any]:
    rules = (
        verdict_precedence.split_rule_reasons(verdict.reason) if verdict.source == "rule" else []
    )
    return {
        "source": verdict.source,
        "verdict": verdict.verdict,
        "by": verdict.by,
        "reason": verdict.reason,
        "at": iso_time(verdict.at),
        "rules": [rule._asdict() for rule in rules],
    }


VERDICT_ARGUMENTS: dict[str, Judgement] = {
    "keep": "keep",
    "mask": "mask",
    "clear": "undecided",
    "undecided": "undecided",
}

_VERDICT_ANSWERS = {"undecided": "taken back; the verdicts of judge and rules count again"}


def add_verdict_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, a verdict, `--reason`, `--as`, `--json`."""
    command_options.add_place_argument(parser, "STEP, R@STEP-STEP")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[STEP | STEP-STEP] [keep | mask | clear]",
        help="steps and their verdict; clear takes your verdict back: the judge's or the rule's"
        " counts again. Without a verdict: all earlier verdicts, and why a step is kept or masked,"
        " by each source in order of precedence",
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON line per step that has or had a verdict")


def run_verdict(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Give a verdict, or show verdicts."""
    place, verdict = _parse_request(arguments)
    reader = Reader(loaded.home)
    row = daemon_requests.resolve_rollout(reader, place.rollout)
    rollout = row.id
    place = place._replace(rollout=rollout)
    if place.first > row.steps and not verdict:
        raise command_options.missing_steps_text(row, place)
    if verdict:
        newest = reader.run(rollout_queries.newest_seq(rollout))
        _send_verdict(arguments, loaded, place, verdict, newest)
    verdicts, history = reader.run(_read_verdicts(place))
    reader.close()
    if arguments.json:
        for step in sorted({*verdicts, *_judged_steps(history, place)}):
            line = verdict_json(rollout, step, verdicts.get(step, []), history)
            command_output.print_json_line(line)
    elif verdict:
        steps = event_text.format_step_range(place.first, place.last)
        command_output.print_line(f"{rollout} {steps}: {_VERDICT_ANSWERS.get(verdict, verdict)}.")
    else:
        print_verdicts(OutputPage(), place, verdicts, history, row.steps)
    return int(ExitCode.DONE)


def _parse_request(arguments: argparse.Namespace) -> tuple[StepReference, Judgement | None]:
    """Which steps, and what is said of them; raises HoustonError (2)."""
    place = command_arguments.parse_permalink(arguments.rollout)
    words = list(arguments.words)
    verdict = VERDICT_ARGUMENTS[words.pop()] if words and words[-1] in VERDICT_ARGUMENTS else None
    if words and not place.first:
        place = StepReference(place.rollout, *command_arguments.parse_step_range(words.pop(0)))
    if words or (verdict and not place.first) or (arguments.reason and not verdict):
        raise UsageError(
            f"{words[0]!r} is no verdict." if words else "Name steps and a verdict.",
            "Nothing was changed.",
            "houston verdict R STEP keep|mask|clear",
        )
    return place, verdict


def _send_verdict(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    place: StepReference,
    verdict: Judgement,
    newest: int,
) -> None:
    for first in range(place.first, place.last + 1, MAX_JUDGED_STEPS):
        last = min(place.last, first + MAX_JUDGED_STEPS - 1)
        steps = JudgedSteps(first=first, last=last, verdict=verdict, reason=arguments.reason)
        message = GiveVerdicts(
            request=uuid.uuid4().hex,
            rollout=place.rollout,
            steps=(steps,),
            seen=newest,
            claimed=daemon_requests.claimed_name(arguments, loaded),
        )
        look = f"houston verdict {place.rollout}"
        daemon_requests.send_request(loaded, message, "The verdict may have been kept.", look)


def _read_verdicts(
    place: StepReference,
) -> ReadPlan[tuple[dict[int, list[SourceVerdict]], list[VerdictHistoryEntry]]]:
    ends = (place.first or 1, place.last or OPEN_END)
    verdicts = yield from annotation_queries.read_verdicts_with_reasons(place.rollout, *ends)
    return verdicts, (yield from annotation_queries.read_verdict_history(place.rollout, *ends))


def _judged_steps(history: Sequence[VerdictHistoryEntry], place: StepReference) -> set[int]:
    """Steps of a range of which something was said; a word on many steps is many."""
    steps, last = set[int](), place.last or OPEN_END
    for entry in history:
        steps.update(range(max(entry.first, place.first), min(entry.last, last) + 1))
    return steps
