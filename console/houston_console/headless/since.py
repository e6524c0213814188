"""`houston since R`: what happened since you were here; the next time begins where this ends."""

import argparse
from typing import Any

from houston_console.headless import asking, options
from houston_console.headless.page import Page, Span, span
from houston_console.headless.spoken import duration, score
from houston_shared import out, permalink
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.person import Person, myself
from houston_shared.store.plan import Plan
from houston_shared.store.queries import looking, rollouts, since
from houston_shared.store.queries.actions import Acted
from houston_shared.store.queries.looking import Seen
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.since import Happening, Heard, Since
from houston_shared.store.reader import Reader
from houston_shared.wire import Present

EVENTS = 40
"""Happenings that are listed for people unless asked for all: the newest."""
TONES = {"error": "bad", "attention": "bad", "guidance": "person", "evaluation": "name"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--peek`, `--full`, `--as`, `--json`."""
    options.rollout(parser)
    parser.add_argument(
        "--peek", action="store_true", help="look without being counted as having been here"
    )
    parser.add_argument("--full", action="store_true", help="leave nothing out")
    options.speaker(parser)
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it, then say to the daemon that this person was here."""
    claimed = asking.speaker(arguments, loaded)
    with Reader(loaded.home) as reader:
        one, before, found = reader.run(_read(arguments.rollout, myself(claimed)))
    if arguments.json:
        out.json_line(as_json(before, found))
    else:
        _show(Page(), one, before, found, arguments.full)
    out.flush()
    if not arguments.peek:
        _was_here(loaded.home, one, claimed)
    return int(ExitCode.DONE)


def _read(name: str, person: Person) -> Plan[tuple[Rollout, Seen | None, Since]]:
    one = yield from rollouts.rollout(name)
    before = yield from looking.last_seen(one.id, person)
    return one, before, (yield from since.happened(one.id, before.seq if before else 0))


def _was_here(home: Home, one: Rollout, claimed: str) -> None:
    """So that the next time begins here. Reading goes on without a daemon, and so does this."""
    from houston_shared.control_client import ControlClient  # zmq: 40 ms, after all is shown

    try:
        with ControlClient(home) as client:
            client.ask(Present(rollout=one.id, step=one.steps, active=True, claimed=claimed))
            client.ask(Present(claimed=claimed))
    except HoustonError as problem:
        out.note(f"It is not noted that you were here: {problem.cause}")


def as_json(before: Seen | None, found: Since) -> dict[str, Any]:
    """The JSON of `since`; `last_seen` is null for who was never here."""
    seen = {"seq": before.seq, "step": before.step, "at": iso(before.at)} if before else None
    return {
        "rollout": found.rollout,
        "last_seen": seen,
        "seq": found.seq,
        "steps": {"first": found.first, "last": found.last, "count": found.steps},
        "errors": found.errors,
        "active_seconds": found.active_us / 1_000_000,
        "best_before": found.best_before,
        "evaluations": [
            {"step": one.step, "score": one.score, "state": one.state, "at": iso(one.at)}
            for one in found.evaluations
        ],
        "guidance": [_heard(one) for one in found.guidance],
        "files": [
            {name: getattr(one, name) for name in ("path", "times", "added", "removed", "step")}
            for one in found.files
        ],
        "more_files": found.more_files,
        "events": [_event(one) for one in found.events],
    }


def _heard(one: Heard) -> dict[str, Any]:
    return {
        "id": one.id,
        "author": one.author,
        "text": one.text,
        "step": one.step,
        "at": iso(one.at),
        "followed": _followed(one.followed),
    }


def _followed(one: Acted | None) -> dict[str, Any] | None:
    return {"step": one.step, "text": one.text} if one else None


def _event(one: Happening) -> dict[str, Any]:
    line = {"seq": one.seq, "step": one.step or None, "at": iso(one.at)}
    return {**line, "kind": one.kind, "text": one.text}


def _show(page: Page, one: Rollout, before: Seen | None, found: Since, full: bool) -> None:
    when = f"since {local(before.at)}" if before else "you were never here: from its beginning"
    page.line(span(one.id, "name"), span(f"  {when}"))
    if not found.steps and not found.events:
        page.line("  nothing happened")
        return
    facts = f"{found.steps} steps"
    if found.steps:
        facts += f" ({found.first} to {found.last}) in {duration(found.active_us / 1e6)}"
    page.line(f"  {facts}; {found.errors} with errors{_scores(found)}")
    for heard in found.guidance:
        _show_heard(page, one.id, heard)
    if found.files:
        named = ", ".join(
            f"{file.path} ({file.times}×, +{file.added} −{file.removed})" for file in found.files
        )
        more = f" and {found.more_files} more" if found.more_files else ""
        page.line("  ", span("files ", "dim"), span(f"{named}{more}"))
    events = found.events if full else found.events[-EVENTS:]
    if len(events) < len(found.events):
        page.line(span(f"  … {len(found.events) - len(events)} earlier (--full)", "dim"))
    for event in events:
        page.line(*_line(one.id, event))


def _scores(found: Since) -> str:
    """How the best score moved; empty where nothing was scored meanwhile."""
    new = [one.score for one in found.evaluations if one.score is not None]
    if not new:
        return ""
    best = max([*new, *([] if found.best_before is None else [found.best_before])])
    return f"; best score {score(found.best_before)} → {score(best)}, last {score(new[-1])}"


def _show_heard(page: Page, rollout: str, heard: Heard) -> None:
    where = permalink.made(rollout, heard.step)
    page.line("  ", span(f"{heard.author} was heard at {where}: {heard.text}", "person"))
    if heard.followed:
        page.line("    ", span(f"step {heard.followed.step}: {heard.followed.text}"))


def _line(rollout: str, one: Happening) -> list[Span | str]:
    where = permalink.made(rollout, one.step) if one.step else rollout
    return [
        "  ",
        span(f"{local(one.at)} ", "dim"),
        span(f"{where} ", "name"),
        span(f"{one.kind} ", "dim"),
        span(one.text, TONES.get(one.kind, "")),
    ]
