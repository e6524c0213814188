"""Policies and training runs as lines. Pure: from what was read to what is drawn."""

from collections.abc import Mapping
from typing import NamedTuple

from houston_console.app.drawing.lines import Line, Tone, fit, line, span
from houston_console.app.policies.plans import Known
from houston_shared import training_progress
from houston_shared.clock import local
from houston_shared.store.queries.policies import Policy
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.training_progress import Progress

BAR = 16
"""Cells of a bar of progress."""
NAME = 16
STATES: Mapping[str, tuple[str, Tone]] = {
    "queued": ("○", "dim"),
    "running": ("▶", "success"),
    "finished": ("✓", "success"),
    "failed": ("✗", "error"),
    "cancelled": ("–", "dim"),
}


class Row(NamedTuple):
    """One line and what it is about."""

    line: Line
    policy: str = ""
    run: str = ""


def rows(known: Known, progress: Mapping[str, Progress], width: int) -> list[Row]:
    """Policies, the newest first, then training runs; what is wrong stands where it belongs."""
    found = [Row(line(span(" Policies", "title")))]
    found += [Row(_policy(one, known, width), policy=one.name) for one in known.policies[::-1]]
    if not known.policies:
        found.append(Row(line(span("   Nothing was trained yet: houston train sft", "dim"))))
    for text, tone in _activations(known):
        found.append(Row(line(span(fit(f"   {text}", width).rstrip(), tone))))
    found += [Row(()), Row(line(span(" Training", "title")))]
    found += [Row(_run(one, progress.get(one.id), width), run=one.id) for one in known.runs[::-1]]
    if not known.runs:
        found.append(Row(line(span("   No run yet", "dim"))))
    return found


def _policy(one: Policy, known: Known, width: int) -> Line:
    engines = sorted(engine for engine, name in known.active.items() if name == one.name)
    own = "" if one.kind == "base" else one.name
    using, tokens = len(known.engines.get(own, ())), known.tokens.get(own, 0)
    facts = [one.kind, f"from {one.parent}" if one.parent else "the base model"]
    facts += [f"{using} rollouts"] if using else []
    facts += [f"{tokens:,} tokens"] if tokens else []
    facts += [f"since {local(one.created_at)}"]
    mark = span(" ● " if engines else "   ", "success")
    active = f"active on {', '.join(engines)}  " if engines else ""
    room = width - 3 - NAME - 1 - len(active)
    return line(
        mark,
        span(fit(one.name, NAME), "key" if engines else "text"),
        " ",
        span(active, "success"),
        span(fit(" · ".join(facts), max(0, room)).rstrip(), "dim"),
    )


def _activations(known: Known) -> list[tuple[str, Tone]]:
    """What is being tried, and how the newest of an engine failed."""
    found: list[tuple[str, Tone]] = []
    for engine in sorted({one.engine for one in known.newest}):
        last = [one for one in known.newest if one.engine == engine][-1]
        what = last.policy or "its own model"
        if last.state == "asked":
            found.append((f"{engine} is being given {what} …", "warning"))
        elif last.state == "failed":
            found.append((f"{engine} was not given {what}: {last.reason}", "error"))
    return found


def _run(one: TrainingRun, progress: Progress | None, width: int) -> Line:
    glyph, tone = STATES[one.state]
    said = one.reason
    if progress is not None and one.state == "running":
        said = f"{bar(progress)} {training_progress.words(progress)}"
    if one.cancelling and one.state == "running":
        said = f"is being cancelled by {one.cancelling.removeprefix('person:')}"
    became = f"became {one.policy}  " if one.policy else ""
    head = f"{one.id}  {one.kind}, {one.state}  "
    room = width - 3 - len(head) - len(became)
    return line(
        span(f" {glyph} ", tone),
        span(head),
        span(became, "success"),
        span(fit(said, max(0, room)).rstrip(), "error" if one.state == "failed" else "dim"),
    )


def bar(progress: Progress) -> str:
    """How much of its steps a run has made, as `[████░░░░]`."""
    share = progress.step / progress.steps if progress.steps else 0.0
    full = round(BAR * min(1.0, share))
    return f"[{'█' * full}{'░' * (BAR - full)}]"
