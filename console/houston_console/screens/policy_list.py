"""The list of policies and training runs: what was trained, how it did, what engines sample with.

Policies stand above, the newest first, runs below. Reinforcement learning makes a version in every
update: those that nothing happened with are folded into one line. Pure but for the widget, which
keeps its cursor. What is known of one of them is `screens.policy_detail`'s.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from textual.message import Message

from houston_console.commands.policy_report import (
    find_ancestors,
    obedience_cell,
    outcome_cell,
    sampled_name,
)
from houston_console.screens.base_screen import post_message_as
from houston_console.screens.rollout_lists import format_moment
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import (
    LOADING_LINE,
    TextLine,
    Tone,
    fit_name,
    fit_text,
    line,
    line_text,
    span,
)
from houston_shared import policy_and_run_files
from houston_shared.home import Home
from houston_shared.kept_suite_runs import KeptRun, suite_outcomes
from houston_shared.policy_and_run_files import TrainingProgress
from houston_shared.store import policy_outcome_queries, policy_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.policy_outcome_queries import Obedience
from houston_shared.store.policy_queries import ActivationRow, PolicyRow, TrainingRunRow
from houston_shared.times_and_counts import now_us, pluralize

MAX_ACTIVATIONS = 50
"""Activations that are read: the last of each engine is among them, or it is long ago."""


class PoliciesSnapshot(NamedTuple):
    """Everything that the screen shows."""

    policies: list[PolicyRow]
    runs: list[TrainingRunRow]
    active_by_engine: dict[str, str]
    """Engine → the policy that its new rollouts sample with."""
    engines_by_policy: dict[str, list[str]]
    """Policy (empty: engines' own models) → engines, an entry for each rollout that goes on."""
    tokens_by_policy: dict[str, int]
    """Policy → tokens that were sampled with it."""
    activations: list[ActivationRow]
    obedience: dict[str, Obedience]
    """Policy, as it samples → guidance that was heard, and ignored."""


def read_policies_snapshot() -> ReadPlan[PoliciesSnapshot]:
    """What the database says."""
    engines: dict[str, list[str]] = {}
    for use in (yield from policy_queries.list_policy_uses()):
        engines.setdefault(use.policy, []).extend([use.engine] * len(use.rollouts))
    return PoliciesSnapshot(
        (yield from policy_queries.list_policies()),
        (yield from policy_queries.list_training_runs()),
        (yield from policy_queries.list_displayed_policies()),
        engines,
        (yield from policy_queries.count_sampled_tokens()),
        (yield from policy_queries.list_activations(newest=MAX_ACTIVATIONS)),
        (yield from policy_outcome_queries.count_followed_guidance()),
    )


def read_run_progress(home: Home, runs: list[TrainingRunRow]) -> dict[str, TrainingProgress]:
    """The progress of runs in state `running`, from their folders; none where this user may not
    read them."""
    return {
        run.id: progress
        for run in runs
        if run.state == "running"
        and (progress := policy_and_run_files.read_training_progress(home, run.id))
    }


PROGRESS_BAR_CELLS = 16
"""Cells of a bar of progress."""
POLICY_NAME_CELLS, NARROW_NAME_CELLS = 24, 16
"""Cells of a policy's name; fewer on a narrow screen."""
WIDE_COLUMNS = 96
"""Columns from which a name has all of its cells."""
RUN_STATE_GLYPHS: Mapping[str, tuple[str, Tone]] = {
    "queued": ("○", "dim"),
    "running": ("▶", "success"),
    "finished": ("✓", "success"),
    "failed": ("✗", "error"),
    "cancelled": ("–", "dim"),
}


class PolicyListRow(NamedTuple):
    """One line and what it is about."""

    line: TextLine
    policy: str = ""
    run: str = ""
    fold: str = ""
    """Key of the versions that it stands for; empty for all other lines."""


MIN_FOLDED_VERSIONS = 4
"""Versions that are folded at least: fewer stand one by one."""


class PolicyFold(NamedTuple):
    """Versions of one family with which nothing happened since an update made them."""

    key: str
    policies: tuple[PolicyRow, ...]
    """The newest first."""


def fold_versions(
    policies: Sequence[PolicyRow], kept: Collection[str]
) -> Iterator[PolicyRow | PolicyFold]:
    """Policies in the order of `policies`; versions of updates that are not `kept` are folded.

    The policy that a run ended with names that run, and is never folded; nor is a base.
    """

    def family_of(policy: PolicyRow) -> tuple[str, bool]:
        is_version = not policy.run and policy.kind != "base" and policy.name not in kept
        return policy.family, is_version

    for (family, is_version), versions in groupby(policies, family_of):
        members = tuple(versions)
        if is_version and len(members) >= MIN_FOLDED_VERSIONS:
            yield PolicyFold(f"{family}/{members[0].number}", members)
        else:
            yield from members


def solved_cells(policies: Sequence[PolicyRow], kept_runs: Sequence[KeptRun]) -> dict[str, str]:
    """By policy, what was solved of the suite on which it was evaluated last; some milliseconds.

    kept_runs: of suites.
    """
    cells: dict[str, str] = {}
    for policy in policies:
        ancestors = find_ancestors(policy, policies)
        outcomes = suite_outcomes(kept_runs, sampled_name(policy), ancestors)
        cells[policy.name] = outcome_cell(outcomes[-1] if outcomes else None)
    return cells


def policy_rows(
    snapshot: PoliciesSnapshot,
    progress: Mapping[str, TrainingProgress],
    width: int,
    solved: Mapping[str, str],
    unfolded: Collection[str] = (),
) -> list[PolicyListRow]:
    """Policies, the newest first, then training runs; what is wrong stands where it belongs.

    solved: by policy, as `solved_cells` gives it. unfolded: keys of folds whose versions are
    listed.
    """
    rows = [PolicyListRow(line(span(" Policies", "title")))]
    for part in fold_versions(snapshot.policies[::-1], _kept_policies(snapshot, solved)):
        if isinstance(part, PolicyFold):
            rows += _fold_rows(part, snapshot, solved, width, part.key in unfolded)
        else:
            policy_line = _policy_line(part, snapshot, solved, width)
            rows.append(PolicyListRow(policy_line, policy=part.name))
    if not snapshot.policies:
        rows.append(
            PolicyListRow(line(span("   Nothing was trained yet: houston train sft", "dim")))
        )
    for text, tone in _activation_rows(snapshot):
        rows.append(PolicyListRow(line(span(fit_text(f"   {text}", width).rstrip(), tone))))
    rows += [PolicyListRow(()), PolicyListRow(line(span(" Training", "title")))]
    rows += [
        PolicyListRow(_run_line(run, progress.get(run.id), width), run=run.id)
        for run in snapshot.runs[::-1]
    ]
    if not snapshot.runs:
        rows.append(PolicyListRow(line(span("   No run yet", "dim"))))
    return rows


NOT_EVALUATED = outcome_cell(None)


def _kept_policies(snapshot: PoliciesSnapshot, solved: Mapping[str, str]) -> set[str]:
    """Policies with which something happened: active, used, evaluated, spoken to, or the newest of
    their family."""
    newest = {policy.family: policy.name for policy in snapshot.policies}
    used = {
        *snapshot.active_by_engine.values(),
        *snapshot.engines_by_policy,
        *snapshot.obedience,
        *newest.values(),
        *(policy for policy, text in solved.items() if text != NOT_EVALUATED),
    }
    return {policy.name for policy in snapshot.policies if policy.name in used}


def _fold_rows(
    fold: PolicyFold,
    snapshot: PoliciesSnapshot,
    solved: Mapping[str, str],
    width: int,
    is_open: bool,
) -> list[PolicyListRow]:
    first, last = fold.policies[-1], fold.policies[0]
    mark = "▾" if is_open else "▸"
    words = f" {mark} {first.name} to {last.name}: {len(fold.policies)} versions, none evaluated"
    rows = [PolicyListRow(line(span(fit_text(words, width).rstrip(), "dim")), fold=fold.key)]
    if is_open:
        rows += [
            PolicyListRow(_policy_line(policy, snapshot, solved, width), policy=policy.name)
            for policy in fold.policies
        ]
    return rows


def _policy_line(
    policy: PolicyRow, snapshot: PoliciesSnapshot, solved: Mapping[str, str], width: int
) -> TextLine:
    engines = sorted(
        engine for engine, name in snapshot.active_by_engine.items() if name == policy.name
    )
    own = sampled_name(policy)
    using = len(snapshot.engines_by_policy.get(own, ()))
    tokens = snapshot.tokens_by_policy.get(own, 0)
    facts = [policy.kind, f"from {policy.parent}" if policy.parent else "the base model"]
    if policy.kind != "reward":
        evaluated = solved[policy.name]
        facts.append(evaluated if evaluated == NOT_EVALUATED else f"solved {evaluated}")
        obedience = snapshot.obedience.get(own, Obedience())
        facts += [f"obeys {obedience_cell(obedience)}"] if obedience.heard else []
    facts += [pluralize(using, "rollout")] if using else []
    facts += [f"{tokens:,} tokens"] if tokens else []
    facts += [f"since {format_moment(policy.created_at, now_us())}"]
    mark = span(" ● " if engines else "   ", "success")
    active = f"active on {', '.join(engines)}  " if engines else ""
    name_cells = POLICY_NAME_CELLS if width >= WIDE_COLUMNS else NARROW_NAME_CELLS
    room = width - 3 - name_cells - 1 - len(active)
    return line(
        mark,
        span(fit_name(policy.name, name_cells), "key" if engines else "text"),
        " ",
        span(active, "success"),
        span(fit_text(" · ".join(facts), max(0, room)).rstrip(), "dim"),
    )


def _activation_rows(snapshot: PoliciesSnapshot) -> list[tuple[str, Tone]]:
    """What is being tried, and how the newest of an engine failed."""
    rows: list[tuple[str, Tone]] = []
    newest = {activation.engine: activation for activation in snapshot.activations}
    for engine, last in sorted(newest.items()):
        policy_name = last.policy or "its own model"
        if last.state == "asked":
            rows.append((f"{engine} is being given {policy_name} …", "warning"))
        elif last.state == "failed":
            rows.append((f"{engine} was not given {policy_name}: {last.reason}", "error"))
    return rows


def _run_line(run: TrainingRunRow, progress: TrainingProgress | None, width: int) -> TextLine:
    glyph, tone = RUN_STATE_GLYPHS[run.state]
    text = run.reason
    if progress is not None and run.state == "running":
        text = (
            f"{progress_bar(progress)} {policy_and_run_files.describe_training_progress(progress)}"
        )
    if run.cancelling and run.state == "running":
        text = f"is being cancelled by {run.cancelling.removeprefix('person:')}"
    became = f"became {run.policy}  " if run.policy else ""
    head = f"{run.id}  {run.algorithm}, {run.state}  "
    room = width - 3 - len(head) - len(became)
    return line(
        span(f" {glyph} ", tone),
        span(head),
        span(became, "success"),
        span(fit_text(text, max(0, room)).rstrip(), "error" if run.state == "failed" else "dim"),
    )


def progress_bar(progress: TrainingProgress) -> str:
    """How much of its steps a run has made, as `[████░░░░]`."""
    share = progress.step / progress.steps if progress.steps else 0.0
    full = round(PROGRESS_BAR_CELLS * min(1.0, share))
    return f"[{'█' * full}{'░' * (PROGRESS_BAR_CELLS - full)}]"


class PolicyList(FilteredList[PolicyListRow]):
    """A line a policy or run, under their headings."""

    class Moved(Message):
        """The cursor is on another line."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.empty = LOADING_LINE

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return self.items[number].line

    def selectable(self, number: int) -> bool:
        """All lines but headings."""
        return not self.is_heading(self.items[number])

    def filter_text(self, item: PolicyListRow) -> str:
        """The line, and the whole names in it."""
        return f"{item.policy} {item.run} {line_text(item.line)}"

    def is_heading(self, item: PolicyListRow) -> bool:
        """What is about no policy and no run."""
        return not (item.policy or item.run or item.fold)

    def cursor_moved(self) -> None:
        """Tell the screen that the cursor moved."""
        post_message_as(self, self.Moved())

    @property
    def row_at_cursor(self) -> PolicyListRow:
        """The row with the cursor."""
        return self.under_cursor or PolicyListRow(())

    def show_rows(self, rows: list[PolicyListRow]) -> None:
        """Show others; the cursor stays with what it stood on."""
        if rows == self.all_items:
            return
        before, first = self.row_at_cursor, not self.items
        self.items = rows
        self.show()
        same = (n for n, row in enumerate(self.items) if row[1:] == before[1:] and any(row[1:]))
        usable = (n for n in range(len(self.items)) if self.selectable(n))
        at = next(usable, 0) if first else next(same, None)
        if at is not None:
            self.keep_cursor_line(at)
            self.set_cursor(at)
