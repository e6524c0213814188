"""The screen of policies and training runs: what was trained, how far, what engines sample with.

Activates a policy, rolls back, and cancels a training run by requests to the daemon. Progress is
read from the folders of running trainers. It trains nothing.
"""

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.screens.base_screen import HoustonScreen
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_console.widgets.line_view import ItemList, set_frame_title
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, Tone, fit_text, line, span
from houston_shared import policy_and_run_files
from houston_shared.control_messages import ActivatePolicy, CancelTraining
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import BASE_MODEL, TrainingProgress
from houston_shared.store import policy_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.policy_queries import ActivationRow, PolicyRow, TrainingRunRow
from houston_shared.times_and_counts import local_time

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
    )


def read_run_progress(home: Home, runs: list[TrainingRunRow]) -> dict[str, TrainingProgress]:
    """How far runs have come that go on, as their folders say it; who may not look sees none."""
    return {
        run.id: progress
        for run in runs
        if run.state == "running"
        and (progress := policy_and_run_files.read_training_progress(home, run.id))
    }


PROGRESS_BAR_CELLS = 16
"""Cells of a bar of progress."""
POLICY_NAME_CELLS = 16
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


def policy_rows(
    snapshot: PoliciesSnapshot, progress: Mapping[str, TrainingProgress], width: int
) -> list[PolicyListRow]:
    """Policies, the newest first, then training runs; what is wrong stands where it belongs."""
    rows = [PolicyListRow(line(span(" Policies", "title")))]
    rows += [
        PolicyListRow(_policy_line(policy, snapshot, width), policy=policy.name)
        for policy in snapshot.policies[::-1]
    ]
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


def _policy_line(policy: PolicyRow, snapshot: PoliciesSnapshot, width: int) -> TextLine:
    engines = sorted(
        engine for engine, name in snapshot.active_by_engine.items() if name == policy.name
    )
    own = "" if policy.kind == "base" else policy.name
    using = len(snapshot.engines_by_policy.get(own, ()))
    tokens = snapshot.tokens_by_policy.get(own, 0)
    facts = [policy.kind, f"from {policy.parent}" if policy.parent else "the base model"]
    facts += [f"{using} rollouts"] if using else []
    facts += [f"{tokens:,} tokens"] if tokens else []
    facts += [f"since {local_time(policy.created_at)}"]
    mark = span(" ● " if engines else "   ", "success")
    active = f"active on {', '.join(engines)}  " if engines else ""
    room = width - 3 - POLICY_NAME_CELLS - 1 - len(active)
    return line(
        mark,
        span(fit_text(policy.name, POLICY_NAME_CELLS), "key" if engines else "text"),
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
    head = f"{run.id}  {run.kind}, {run.state}  "
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


PROGRESS_POLL_SECONDS = 2.0
"""How often the folders of running trainers are looked at."""
ENGINE_PROMPT = "engine"


class PolicyList(ItemList[PolicyListRow]):
    """A line a policy or run, under their headings."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.empty = LOADING_LINE

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return self.items[number].line

    def selectable(self, number: int) -> bool:
        """All lines but headings."""
        return bool(self.items[number].policy or self.items[number].run)

    @property
    def row_at_cursor(self) -> PolicyListRow:
        """The row with the cursor."""
        return self.under_cursor or PolicyListRow(())

    def show_rows(self, rows: list[PolicyListRow]) -> None:
        """Show others; the cursor stays with what it stood on."""
        if rows == self.items:
            return
        before, first = self.row_at_cursor, not self.items
        self.items = rows
        self.show()
        same = (n for n, row in enumerate(rows) if row[1:] == before[1:] and any(row[1:]))
        usable = (n for n in range(len(rows)) if self.selectable(n))
        at = next(usable, 0) if first else next(same, None)
        if at is not None:
            self.keep_cursor_line(at)
            self.set_cursor(at)


class PoliciesScreen(HoustonScreen):
    """Policies above, training runs below."""

    BINDINGS = bindings_for("policies")
    area: Area = "policies"

    def __init__(
        self, state: ConsoleState, reader: AsyncReader, link: DaemonLink, home: str, engine: str
    ) -> None:
        """reader: one that no key waits for. engine: the one that is meant where nobody says."""
        super().__init__(state, home)
        self.text = PolicyList(id="policy-lines")
        self._reader, self._link, self._engine = reader, link, engine
        self._snapshot: PoliciesSnapshot | None = None

    def compose_body(self) -> ComposeResult:
        """Compose the frame and its list."""
        with Vertical(id="policies"):
            yield self.text

    def on_mount(self) -> None:
        """Read; running trainers say something new without a commit."""
        set_frame_title(self.query_one("#policies"), "Policies and training")
        self.hints.show_area("policies")
        self.set_focus(self.text)
        self.set_interval(PROGRESS_POLL_SECONDS, self._refresh)
        self._refresh()

    async def refresh_from_state(self, changed: bool) -> None:
        """Something was committed: read again, a moment later."""
        self._refresh()

    def _refresh(self) -> None:
        self.run_latest(self._read, "policies")

    async def _read(self) -> None:
        try:
            self._snapshot = await self._reader.run(read_policies_snapshot())
        except HoustonError as problem:
            self.show_error(problem)
            return
        progress = read_run_progress(self._link.home, self._snapshot.runs)
        self.text.show_rows(policy_rows(self._snapshot, progress, self.text.line_cells))

    # --- what is asked of the daemon ---------------------------------------------------------

    def action_activate(self) -> None:
        """Have new rollouts sample with the policy at the cursor; asks for which engine."""
        policy = self.text.row_at_cursor.policy
        if not policy:
            self.show_message("Go to a policy first.", "warning")
            return
        text = (
            f"New rollouts will sample with {policy}, once the engine has answered with it. "
            "Those that run keep theirs."
        )
        self.app.push_screen(
            QuestionDialog(f"Activate {policy}", text, {ENGINE_PROMPT: self._engine}),
            lambda typed: None if typed is None else self._activate(typed[0].strip(), policy),
        )

    def action_rollback(self) -> None:
        """Take the newest activation of an engine back; asks for which."""
        text = "New rollouts will sample with what they sampled with before."
        self.app.push_screen(
            QuestionDialog("Roll back", text, {ENGINE_PROMPT: self._engine}),
            lambda typed: None if typed is None else self._activate(typed[0].strip(), None),
        )

    def _activate(self, engine: str, policy: str | None) -> None:
        message = ActivatePolicy(
            request=uuid.uuid4().hex,
            engine=engine,
            policy="" if policy in (None, BASE_MODEL) else str(policy),
            rollback=policy is None,
            claimed=self._link.claimed,
        )
        self._send(message, f"{engine} is being given {policy or 'what it had before'}.")

    def action_cancel(self) -> None:
        """End the training run at the cursor; asks first."""
        run = self.text.row_at_cursor.run
        if not run:
            self.show_message("Go to a training run first.", "warning")
            return
        message = CancelTraining(run=run, claimed=self._link.claimed)
        self.app.push_screen(
            ConfirmDialog(f"End training {run}? Its checkpoints stay."),
            lambda yes: self._send(message, f"{run} is to end.") if yes else None,
        )

    def _send(self, message: ActivatePolicy | CancelTraining, notice: str) -> None:
        self.run_worker(self._send_and_report(message, notice), group="asking")

    async def _send_and_report(self, message: ActivatePolicy | CancelTraining, notice: str) -> None:
        try:
            await self._link.ask(message)
        except HoustonError as problem:
            self.show_error(problem)
        else:
            self.show_message(notice, "success")
            self._refresh()
