"""A step as lines of spans: what `steps` shows to people."""

from typing import Any

from houston_console.headless.page import Page, span
from houston_console.headless.spoken import duration, local_of
from houston_shared.records import Call, FileChange, StepRecord
from houston_shared.store import step_view
from houston_shared.store.queries import aside

OBSERVATION_LINES = 12
"""Lines of a thought or an observation that are shown without --full."""
AGENT, PERSON = "  │ ", "  ┃ "
"""Bars before what an agent or its tools wrote and before a person's words: no text can fake one,
because every line of it stands behind its own."""
_ARGUMENT = 60
"""Characters of an argument's value on a call's line."""


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


def show(page: Page, one: StepRecord, verdict: str | None, full: bool) -> None:
    """A whole step; `full` leaves nothing out."""
    sample = one.sample
    title = f"step {one.step}" + (f" attempt {one.attempt}" if one.attempt > 1 else "")
    facts = [local_of(one.at), duration(one.active_seconds), sample.policy, sample.drift]
    page.line(span(title, "name"), span("  " + " · ".join(filter(None, facts)), "dim"))
    page.block(sample.thought, AGENT, limit=0 if full else OBSERVATION_LINES)
    for each in sample.calls:
        page.line("  → ", span(call(each, 10**6 if full else _ARGUMENT), "call"))
    if sample.malformed:
        page.line("  ", span(f"no action: {sample.malformed}", "bad"))
    page.block(step_view.seen(one), f"  {AGENT}", "dim", 0 if full else OBSERVATION_LINES)
    for said in one.guidance:
        page.line(PERSON, span(f"{said.author} said: {said.text}", "person"))
    closed = one.observation
    for changed in closed.files if closed else ():
        page.line("  ", span(file(changed)))
    if closed and closed.more_files:
        page.line(f"  … {closed.more_files} more files")
    if closed and closed.attention:
        for name in closed.attention:
            why = f" ({closed.reasons[name]})" if closed.reasons.get(name) else ""
            page.line("  ", span(f"attention: {name}{why}", "bad"))
    for mark in one.aside:
        page.line("  ", span(aside.said(mark), "bad"))
    if verdict:
        page.line("  ", span(f"verdict: {verdict}"))
