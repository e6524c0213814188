"""Records as lines of spans: what `steps`, `tail`, `guidance` and the lists show to people."""

from datetime import timedelta
from typing import Any

from houston_console.headless.page import Page, Span, span
from houston_shared.clock import local
from houston_shared.records import Call, FileChange, Guidance, StepRecord
from houston_shared.store import views
from houston_shared.store.queries.rollouts import Rollout

OBSERVATION_LINES = 12
"""Lines of an observation that `steps` shows without --full."""
_ARGUMENT = 60
"""Characters of an argument's value on a call's line."""
STATE_TONES = {"running": "good", "finished": "good", "failed": "bad", "cancelled": "dim"}


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    return str(timedelta(seconds=int(seconds)))


def score(value: float | None) -> str:
    """A score from 0 to 100, or a dash."""
    return "–" if value is None else f"{value:g}"


def standing(one: Rollout) -> Span:
    """A rollout's state, who owns its pause, and whether it runs without a sandbox."""
    said = one.state
    if one.paused_by:
        said += f" by {one.paused_by}"
    if one.reason:
        said += f" ({one.reason})"
    if one.sandbox == "none":
        said += " [no sandbox]"
    return span(said, STATE_TONES.get(one.state, ""))


def call(one: Call, limit: int = _ARGUMENT) -> str:
    """A call on one line; long values are cut."""
    words = [f"{name}={_value(value, limit)}" for name, value in one.arguments.items()]
    return " ".join([one.name, *words])


def _value(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def file(one: FileChange) -> str:
    """A changed file on one line."""
    note = f" ({one.note})" if one.note else ""
    return f"{one.kind} {one.path} +{one.added} −{one.removed}{note}"


def step(page: Page, one: StepRecord, verdict: str | None, full: bool) -> None:
    """A whole step; `full` leaves nothing out."""
    sample = one.sample
    title = f"step {one.step}" + (f" attempt {one.attempt}" if one.attempt > 1 else "")
    facts = [local_of(one.at), duration(one.active_seconds), sample.policy, sample.drift]
    page.line(span(title, "name"), span("  " + " · ".join(filter(None, facts)), "dim"))
    page.block(sample.thought, "  ", limit=0 if full else OBSERVATION_LINES)
    for each in sample.calls:
        page.line("  → ", span(call(each, 10**6 if full else _ARGUMENT), "call"))
    if sample.malformed:
        page.line("  ", span(f"no action: {sample.malformed}", "bad"))
    page.block(views.seen(one), "    ", "dim", 0 if full else OBSERVATION_LINES)
    for said in one.guidance:
        page.line("  ", span(f"{said.author} said: {said.text}", "person"))
    closed = one.observation
    for changed in closed.files if closed else ():
        page.line("  ", span(file(changed)))
    if closed and closed.more_files:
        page.line(f"  … {closed.more_files} more files")
    if closed and closed.attention:
        page.line("  ", span(f"attention: {', '.join(closed.attention)}", "bad"))
    if verdict:
        page.line("  ", span(f"verdict: {verdict}"))


def local_of(iso: str) -> str:
    """A stored time (ISO 8601, UTC) in local time with its offset."""
    from datetime import datetime

    stamp = datetime.fromisoformat(iso)
    return local(int(stamp.timestamp() * 1_000_000))


def guidance(page: Page, one: Guidance) -> None:
    """One piece of guidance and where it stands."""
    state = f"delivered at step {one.step}" if one.state == "delivered" else one.state
    who = one.author if one.verified else f"{one.author} (unverified)"
    facts = [local_of(one.queued_at), who, one.mode, state]
    if one.revision > 1:
        facts.append(f"revision {one.revision}")
    page.line(span(one.id, "name"), span("  " + " · ".join(facts), "dim"))
    page.block(one.text, "  ", "person")
