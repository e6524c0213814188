"""Drafts of guidance that a critic wrote: asking for one, and how it stands above the composer.

The critic is asked by `houston critique R --draft`, in a process of its own, which may take as long
as a model does; what it wrote comes with the journal. What a person makes of it is the pane's.
"""

import asyncio
import os
import sys

import msgspec

from houston_console.widgets.styled_text import (
    TextLine,
    fit_text,
    justify_line,
    line,
    span,
    text_block,
)
from houston_shared import command_output
from houston_shared.home import Home
from houston_shared.store import rollout_queries
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.journal_events import ReadPlan
from houston_shared.task import parse_task_record

MAX_DRAFT_LINES = 3
"""Lines of a draft's text that are shown; the composer shows the rest."""
DRAFT_KEYS = "= say  * edit  _ no"
ASKING_TEXT = "The critic reads what was done so far …"
DRAFTED_TEXT = "The critic has drafted something: = says it."
AUTOPILOT_TEXT = " autopilot: a critic speaks by itself "
NOTHING_TO_CHANGE = "The critic would change nothing."


async def ask_critic(home: Home, rollout: str, configuration: str) -> str:
    """Have a draft written and stored; why there is none, empty when there is one.

    configuration: its file, which names the critic; empty where there is none.
    """
    words = [sys.executable, "-m", "houston_shared.command", "critique", rollout]
    environment = {**os.environ, "HOUSTON_HOME": str(home.path)}
    if configuration:
        environment["HOUSTON_CONFIG"] = configuration
    child = await asyncio.create_subprocess_exec(
        *words,
        "--draft",
        "--json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        out, error = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        raise
    try:
        critiques = msgspec.json.decode(out)["critiques"]
    except msgspec.DecodeError:
        error_text = command_output.read_error(error.decode(errors="replace"))
        return error_text or "The critic ended without an answer."
    if any(critique["text"] for critique in critiques):
        return ""
    problems = [critique["problem"] for critique in critiques if critique["problem"]]
    return f"The critic gave no draft: {problems[0]}." if problems else NOTHING_TO_CHANGE


def is_on_autopilot(rollout: str) -> ReadPlan[bool]:
    """Whether the task of a rollout (a whole id) lets a critic speak without a person."""
    row = yield from rollout_queries.find_rollout(rollout)
    spec = yield from rollout_queries.read_spec_if_kept(row)
    return spec is not None and parse_task_record(spec.task).autopilot


def draft_lines(draft: CriticDraft, width: int) -> list[TextLine]:
    """Who drafted it and which keys decide, what would be said, and why."""
    who = line(span(f" {draft.critic}", "key"), span(f", step {draft.step}", "dim"))
    lines = [justify_line(who, line(span(f" {DRAFT_KEYS} ", "key")), width)]
    text = text_block(draft.text, width - 1, "guidance_text", span(" "))
    if len(text) > MAX_DRAFT_LINES:
        more = span(f" … {len(text) - MAX_DRAFT_LINES + 1} more lines", "dim")
        text = [*text[: MAX_DRAFT_LINES - 1], line(more)]
    lines += text
    if draft.reason:
        lines.append(line(span(fit_text(f" why: {draft.reason}", width), "faint")))
    return lines
