"""The screen of policies and training runs: what was trained, how it did, what engines sample with.

Next to the list it shows what is known of the line at the cursor, updated while its run continues.
It sends requests to the daemon: activate a policy, roll back, cancel a training run. Progress and
figures are read from the folders of trainers, on another thread. It trains nothing.
"""

import asyncio
import uuid
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.commands import policy_report
from houston_console.commands.training_run_commands import run_progress_text
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.policy_detail import (
    PolicyDetail,
    RunDetail,
    policy_detail_lines,
    run_detail_lines,
)
from houston_console.screens.policy_list import (
    PoliciesSnapshot,
    PolicyList,
    PolicyListRow,
    policy_rows,
    read_policies_snapshot,
    read_run_progress,
    solved_cells,
)
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_console.widgets.line_view import FixedLines, set_frame_title
from houston_console.widgets.list_filter import FilterPrompt
from houston_console.widgets.styled_text import TextLine, line, span
from houston_shared import kept_suite_runs, policy_and_run_files
from houston_shared.control_messages import ActivatePolicy, CancelTraining
from houston_shared.errors import HoustonError
from houston_shared.kept_suite_runs import KeptRun
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.training_figures import read_run_figures

PROGRESS_POLL_SECONDS = 2.0
"""How often the folders of running trainers are looked at."""
ENGINE_PROMPT = "engine"
BESIDE_MIN_COLUMNS = 180
"""Columns from which what is known stands beside the list, and not below it."""


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
        self.detail = FixedLines(id="policy-detail")
        self._reader, self._link, self._engine = reader, link, engine
        self._snapshot: PoliciesSnapshot | None = None
        self._kept_runs: list[KeptRun] = []
        self._solved: dict[str, str] = {}
        self._unfolded: set[str] = set()
        self._known: PolicyDetail | RunDetail | None = None
        """What is known of the line at the cursor, once it was read."""

    def compose_body(self) -> ComposeResult:
        """Compose the frame, its list, and what is known of one line."""
        with Container(id="policies"):
            with Vertical(id="policy-column"):
                yield self.text
            yield self.detail

    def on_mount(self) -> None:
        """Read; running trainers say something new without a commit."""
        set_frame_title(self.query_one("#policies"), "Policies and training")
        self.hints.show_area("policies")
        self.set_focus(self.text)
        self.set_interval(PROGRESS_POLL_SECONDS, self._poll)
        self._refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Beside each other where there is room."""
        self.set_class(event.size.width >= BESIDE_MIN_COLUMNS, "-beside")
        self.call_after_refresh(self._show_rows)

    async def refresh_from_state(self, changed: bool) -> None:
        """Something was committed: read again, a moment later."""
        self._refresh()

    def _refresh(self) -> None:
        self.run_latest(self._read, "policies")

    async def _read(self) -> None:
        try:
            snapshot = await self._reader.run(read_policies_snapshot())
        except HoustonError as problem:
            self.show_error(problem)
            return
        self._kept_runs, self._solved = await asyncio.to_thread(self._read_suites, snapshot)
        self._snapshot = snapshot
        self._show_rows()
        await self._read_detail()

    def _read_suites(self, snapshot: PoliciesSnapshot) -> tuple[list[KeptRun], dict[str, str]]:
        kept_runs = kept_suite_runs.list_kept_runs(self._link.home)
        return kept_runs, solved_cells(snapshot.policies, kept_runs)

    def _poll(self) -> None:
        """Where a run goes on, its folder says more."""
        if self._snapshot and any(run.state == "running" for run in self._snapshot.runs):
            self._show_rows()
            self.run_latest(self._read_detail, "detail")

    def _show_rows(self) -> None:
        if self._snapshot is not None:
            progress = read_run_progress(self._link.home, self._snapshot.runs)
            width = self.text.line_cells
            self.text.show_rows(
                policy_rows(self._snapshot, progress, width, self._solved, self._unfolded)
            )

    def on_descendant_focus(self) -> None:
        """While a filter is written, letters are no keys."""
        self.show_undo_offers()
        typing = isinstance(self.focused, FilterPrompt)
        self.hints.show_area("words" if typing else "policies")

    async def action_filter(self) -> None:
        """Type words; only policies and runs that hold them all stay."""
        await self.text.action_filter()

    # --- what is known of one ----------------------------------------------------------------

    def on_policy_list_moved(self) -> None:
        """What is known follows the cursor."""
        self.run_latest(self._read_detail, "detail")

    async def _read_detail(self) -> None:
        row, snapshot = self.text.row_at_cursor, self._snapshot
        if snapshot is None:
            return
        runs = {run.id: run for run in snapshot.runs}
        try:
            if row.policy:
                self._known = await self._read_policy(row.policy, snapshot, runs)
            elif row.run in runs:
                self._known = await asyncio.to_thread(self._read_run, runs[row.run])
            else:
                self._known = None
        except HoustonError as problem:
            self.show_error(problem)
            return
        self.detail.show_lines(partial(self._detail_lines, self._known))

    async def _read_policy(
        self, name: str, snapshot: PoliciesSnapshot, runs: dict[str, TrainingRunRow]
    ) -> PolicyDetail | None:
        policy = next((each for each in snapshot.policies if each.name == name), None)
        if policy is None:
            return None
        plan = policy_report.read_policy_records(policy, snapshot.policies)
        records = await self._reader.run(plan)
        evidence = await asyncio.to_thread(
            policy_report.gather_evidence, self._link.home, records, self._kept_runs
        )
        return PolicyDetail(evidence, runs.get(policy_report.run_of_policy(records)))

    def _read_run(self, run: TrainingRunRow) -> RunDetail:
        home = self._link.home
        progress = policy_and_run_files.read_training_progress(home, run.id)
        figures = read_run_figures(policy_and_run_files.training_run_folder(home, run.id))
        return RunDetail(run, figures, run_progress_text(run, progress, self.state.link != "down"))

    def _detail_lines(self, known: PolicyDetail | RunDetail | None, width: int) -> list[TextLine]:
        if isinstance(known, PolicyDetail):
            return policy_detail_lines(known, width)
        if isinstance(known, RunDetail):
            return run_detail_lines(known, width)
        fold = self.text.row_at_cursor.fold
        return [line(span(" enter lists them, or folds them again", "dim"))] if fold else []

    # --- what is asked of the daemon ---------------------------------------------------------

    def action_activate(self) -> None:
        """Have new rollouts sample with the policy at the cursor; asks for which engine."""
        row = self.text.row_at_cursor
        policy = row.policy
        if row.fold:
            self._toggle_fold(row)
            return
        if not policy:
            self.show_message("Go to a policy first.", "warning")
            return
        text = (
            f"New rollouts will sample with {policy}, once the engine has answered with it. "
            f"Those that run keep theirs.{self._evidence_text(policy)}"
        )
        self.app.push_screen(
            QuestionDialog(f"Activate {policy}", text, {ENGINE_PROMPT: self._engine}),
            lambda typed: None if typed is None else self._activate(typed[0].strip(), policy),
        )

    def _toggle_fold(self, row: PolicyListRow) -> None:
        self._unfolded ^= {row.fold}
        self._show_rows()

    def _evidence_text(self, policy: str) -> str:
        """What speaks for a policy, and against it; empty until it was read."""
        detail = self._known
        if not isinstance(detail, PolicyDetail) or detail.evidence.records.policy.name != policy:
            return ""
        facts = policy_report.activation_lines(detail.evidence)
        return "".join(
            f"\n{fact.name}: {fact.text}" if fact.name else f"\n{fact.text}" for fact in facts
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
            ConfirmDialog(
                f"End training {run}? Its checkpoints stay; rollouts that it started go on."
            ),
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
