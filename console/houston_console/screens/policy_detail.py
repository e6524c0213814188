"""What is known of the policy or the training run at the cursor: facts to decide by, and curves.

Lines are those of `commands.policy_report`, in the colours of the screen. It reads nothing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from houston_console.commands.policy_report import (
    PolicyEvidence,
    ReportLine,
    ReportTone,
    no_curve_line,
    policy_report,
)
from houston_console.commands.training_run_commands import run_report
from houston_console.widgets.curve_chart import chart_grid
from houston_console.widgets.styled_text import TextLine, Tone, hanging_block, line, span
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.training_figures import Curve, RunFigures

NAME_CELLS = 9
"""Cells of the name of a fact."""
REPORT_TONES: dict[ReportTone, Tone] = {
    "text": "text",
    "good": "success",
    "bad": "error",
    "dim": "dim",
}


class PolicyDetail(NamedTuple):
    """A policy, and the run that made it where there is one."""

    evidence: PolicyEvidence
    run: TrainingRunRow | None


class RunDetail(NamedTuple):
    """A training run."""

    run: TrainingRunRow
    figures: RunFigures
    stands: str
    """How far it is, or how it ended."""


def policy_detail_lines(detail: PolicyDetail, width: int) -> list[TextLine]:
    """Everything that is known of a policy."""
    evidence = detail.evidence
    facts = [*policy_report(evidence)]
    if evidence.records.policy.kind != "base" and (
        missing := no_curve_line(detail.run, evidence.figures)
    ):
        facts.append(missing)
    title = evidence.records.policy.name
    return [line(span(f" {title}", "title")), *_rows(facts, evidence.figures.curves, width)]


def run_detail_lines(detail: RunDetail, width: int) -> list[TextLine]:
    """Everything that is known of a run."""
    facts = [ReportLine("stands", detail.stands), *run_report(detail.run, detail.figures)]
    return [line(span(f" {detail.run.id}", "title")), *_rows(facts, detail.figures.curves, width)]


def _rows(facts: Sequence[ReportLine], curves: Sequence[Curve], width: int) -> Iterator[TextLine]:
    for fact in facts:
        head = span(f" {fact.name:<{NAME_CELLS}} ", "key")
        yield from hanging_block(head, fact.text, width, REPORT_TONES[fact.tone])
    for row in chart_grid(curves, width - 2):
        yield line(" ", span(row.text, "text" if row.is_title else "tool"))
