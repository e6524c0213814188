"""`houston since R`: what happened since this person last looked.

Shows it and then tells the daemon that they were here, so that the next time begins where this
one ends. The console's strip is `panes.since_visit_pane`.
"""

import argparse
from typing import Any

from houston_console.commands import command_options, daemon_requests
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.rollout_summary import format_score
from houston_shared import command_arguments, command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import changes_since_visit, presence_queries, rollout_queries
from houston_shared.store.changes_since_visit import ChangesSinceEvent, HeardGuidance, NotableEvent
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.last_actions import LastAction
from houston_shared.store.presence_queries import LastSeen, Person, current_person
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import format_clock, iso_time, local_time, pluralize
from houston_shared.wire import ReportPresence

MAX_LISTED_EVENTS = 40
"""Happenings that are listed for people unless asked for all: the newest."""
EVENT_KIND_TONES = {"error": "bad", "attention": "bad", "guidance": "person", "evaluation": "name"}


def add_since_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--peek`, `--full`, `--as`, `--json`."""
    command_options.add_rollout_argument(parser)
    parser.add_argument("--peek", action="store_true", help="look without recording your visit")
    parser.add_argument("--full", action="store_true", help="leave nothing out")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON object")


def run_since(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show it, then say to the daemon that this person was here."""
    claimed = daemon_requests.claimed_name(arguments, loaded)
    with Reader(loaded.home) as reader:
        plan = _read_changes(arguments.rollout, current_person(claimed))
        rollout, before, changes = reader.run(plan)
    if arguments.json:
        command_output.print_json_line(since_json(before, changes))
    else:
        _print_changes(OutputPage(), rollout, before, changes, arguments.full)
    command_output.flush_stdout()
    if not arguments.peek:
        _report_visit(loaded.home, rollout, claimed)
    return int(ExitCode.DONE)


def _read_changes(
    name: str, person: Person
) -> ReadPlan[tuple[RolloutRow, LastSeen | None, ChangesSinceEvent]]:
    rollout = yield from rollout_queries.find_rollout(name)
    before = yield from presence_queries.read_last_seen(rollout.id, person)
    after = before.seq if before else 0
    changes = yield from changes_since_visit.read_changes_since(rollout.id, after)
    return rollout, before, changes


def _report_visit(home: Home, rollout: RolloutRow, claimed: str) -> None:
    """So that the next time begins here. Reading goes on without a daemon, and so does this."""
    from houston_shared.control_client import ControlClient  # zmq: 40 ms, after all is shown

    try:
        with ControlClient(home) as client:
            client.ask(
                ReportPresence(rollout=rollout.id, step=rollout.steps, active=True, claimed=claimed)
            )
            client.ask(ReportPresence(claimed=claimed))
    except HoustonError as problem:
        command_output.print_note(f"Your visit was not recorded: {problem.cause}")


def since_json(before: LastSeen | None, changes: ChangesSinceEvent) -> dict[str, Any]:
    """The JSON of `since`; `last_seen` is null for who was never here."""
    last = {"seq": before.seq, "step": before.step, "at": iso_time(before.at)} if before else None
    return {
        "rollout": changes.rollout,
        "last_seen": last,
        "seq": changes.seq,
        "steps": {"first": changes.first, "last": changes.last, "count": changes.steps},
        "errors": changes.errors,
        "active_seconds": changes.active_us / 1_000_000,
        "best_before": changes.best_before,
        "evaluations": [
            {
                "step": evaluation.step,
                "score": evaluation.score,
                "state": evaluation.state,
                "at": iso_time(evaluation.at),
            }
            for evaluation in changes.evaluations
        ],
        "guidance": [_guidance_json(message) for message in changes.guidance],
        "files": [
            {name: getattr(file, name) for name in ("path", "times", "added", "removed", "step")}
            for file in changes.files
        ],
        "more_files": changes.more_files,
        "events": [_event_json(event) for event in changes.events],
    }


def _guidance_json(guidance: HeardGuidance) -> dict[str, Any]:
    return {
        "id": guidance.id,
        "author": guidance.author,
        "text": guidance.text,
        "step": guidance.step,
        "at": iso_time(guidance.at),
        "followed": _reaction_json(guidance.followed),
    }


def _reaction_json(action: LastAction | None) -> dict[str, Any] | None:
    return {"step": action.step, "text": action.text} if action else None


def _event_json(event: NotableEvent) -> dict[str, Any]:
    line = {"seq": event.seq, "step": event.step or None, "at": iso_time(event.at)}
    return {**line, "kind": event.kind, "text": event.text}


def _print_changes(
    page: OutputPage,
    rollout: RolloutRow,
    before: LastSeen | None,
    changes: ChangesSinceEvent,
    full: bool,
) -> None:
    when = (
        f"since {local_time(before.at)}"
        if before
        else "this is your first visit: from its beginning"
    )
    page.line(span(rollout.id, "name"), span(f"  {when}"))
    if not changes.steps and not changes.events:
        page.line("  nothing happened")
        return
    facts = pluralize(changes.steps, "step")
    if changes.steps:
        duration = format_clock(changes.active_us / 1e6)
        facts += f" ({changes.first} to {changes.last}) in {duration}"
    page.line(f"  {facts}; {changes.errors} with errors{_score_change_text(changes)}")
    for guidance in changes.guidance:
        _print_guidance_effects(page, rollout.id, guidance)
    if changes.files:
        named = ", ".join(
            f"{file.path} ({file.times}×, +{file.added} −{file.removed})" for file in changes.files
        )
        more = f" and {changes.more_files} more" if changes.more_files else ""
        page.line("  ", span("files ", "dim"), span(f"{named}{more}"))
    events = changes.events if full else changes.events[-MAX_LISTED_EVENTS:]
    if len(events) < len(changes.events):
        page.line(span(f"  … {len(changes.events) - len(events)} earlier (--full)", "dim"))
    for event in events:
        page.line(*_event_spans(rollout.id, event))


def _score_change_text(changes: ChangesSinceEvent) -> str:
    """How the best score moved; empty where nothing was scored meanwhile."""
    new = [evaluation.score for evaluation in changes.evaluations if evaluation.score is not None]
    if not new:
        return ""
    best = max([*new, *([] if changes.best_before is None else [changes.best_before])])
    return (
        f"; best score {format_score(changes.best_before)} → {format_score(best)},"
        f" last {format_score(new[-1])}"
    )


def _print_guidance_effects(page: OutputPage, rollout: str, guidance: HeardGuidance) -> None:
    where = command_arguments.format_permalink(rollout, guidance.step)
    page.line("  ", span(f"{guidance.author} was heard at {where}: {guidance.text}", "person"))
    if guidance.followed:
        page.line("    ", span(f"step {guidance.followed.step}: {guidance.followed.text}"))


def _event_spans(rollout: str, event: NotableEvent) -> list[OutputSpan | str]:
    where = command_arguments.format_permalink(rollout, event.step) if event.step else rollout
    return [
        "  ",
        span(f"{local_time(event.at)} ", "dim"),
        span(f"{where} ", "name"),
        span(f"{event.kind} ", "dim"),
        span(event.text, EVENT_KIND_TONES.get(event.kind, "")),
    ]
