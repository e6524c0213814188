"""The screen of policies and training runs: what was trained, and giving it to an engine."""

import uuid
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.asking import Question
from houston_console.app.dialogs import Confirm
from houston_console.app.drawing.frame import title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import UNREAD, Line
from houston_console.app.keys import Area, bindings
from houston_console.app.link import Link
from houston_console.app.policies.lines import Row, rows
from houston_console.app.policies.plans import Known, known, progress
from houston_console.app.screen import HoustonScreen
from houston_console.app.state import ConsoleState
from houston_shared.errors import HoustonError
from houston_shared.policy_names import BASE
from houston_shared.store.async_reader import AsyncReader
from houston_shared.wire_training import ActivatePolicy, CancelTraining

LOOK_SECONDS = 2.0
"""How often the folders of running trainers are looked at."""
ENGINE = "engine"


class PolicyLines(LineView):
    """A line a policy or run, under their headings."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rows: list[Row] = []
        self.empty = UNREAD

    def line_count(self) -> int:
        """As many as there are."""
        return len(self.rows)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self.rows[number].line

    def selectable(self, number: int) -> bool:
        """Headings are passed over."""
        return bool(self.rows[number].policy or self.rows[number].run)

    @property
    def here(self) -> Row:
        """What the cursor stands on."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else Row(())

    def take(self, found: list[Row]) -> None:
        """Show others; the cursor stays with what it stood on."""
        if found == self.rows:
            return
        before, first = self.here, not self.rows
        self.rows = found
        self.show()
        same = (n for n, one in enumerate(found) if one[1:] == before[1:] and any(one[1:]))
        usable = (n for n in range(len(found)) if self.selectable(n))
        at = next(usable, 0) if first else next(same, None)
        if at is not None:
            self.keep_line(at)
            self.put_cursor(at)


class PoliciesScreen(HoustonScreen):
    """Policies above, training runs below."""

    BINDINGS = bindings("policies")

    def __init__(
        self, state: ConsoleState, reader: AsyncReader, link: Link, home: str, engine: str
    ) -> None:
        """reader: one that no key waits for. engine: the one that is meant where nobody says."""
        super().__init__(state, home)
        self.text = PolicyLines(id="policy-lines")
        self._reader, self._link, self._engine = reader, link, engine
        self._known: Known | None = None

    def body(self) -> ComposeResult:
        """One list."""
        with Vertical(id="policies"):
            yield self.text

    def on_mount(self) -> None:
        """Read; running trainers say something new without a commit."""
        title(self.query_one("#policies"), "Policies and training")
        self.hints.area("policies")
        self.set_focus(self.text)
        self.set_interval(LOOK_SECONDS, self._again)
        self._again()

    @property
    def area(self) -> Area:
        """One place."""
        return "policies"

    async def caught_up(self, changed: bool) -> None:
        """Something was committed: read again, a moment later."""
        self._again()

    def _again(self) -> None:
        self.later(self._read, "policies")

    async def _read(self) -> None:
        try:
            self._known = await self._reader.run(known())
        except HoustonError as problem:
            self.told(problem)
            return
        read = progress(self._link.home, self._known.runs)
        self.text.take(rows(self._known, read, self.text.room))

    # --- what is asked of the daemon ---------------------------------------------------------

    def action_activate(self) -> None:
        """Have new rollouts sample with the policy at the cursor; asks for which engine."""
        policy = self.text.here.policy
        if not policy:
            self.tell("Go to a policy first.", "warning")
            return
        text = (
            f"New rollouts will sample with {policy}, once the engine has answered with it. "
            "Those that run keep theirs."
        )
        self.app.push_screen(
            Question(f"Activate {policy}", text, {ENGINE: self._engine}),
            lambda said: None if said is None else self._activate(said[0].strip(), policy),
        )

    def action_rollback(self) -> None:
        """Take the newest activation of an engine back; asks for which."""
        text = "New rollouts will sample with what they sampled with before."
        self.app.push_screen(
            Question("Roll back", text, {ENGINE: self._engine}),
            lambda said: None if said is None else self._activate(said[0].strip(), None),
        )

    def _activate(self, engine: str, policy: str | None) -> None:
        message = ActivatePolicy(
            request=uuid.uuid4().hex,
            engine=engine,
            policy="" if policy in (None, BASE) else str(policy),
            rollback=policy is None,
            claimed=self._link.claimed,
        )
        self._send(message, f"{engine} is being given {policy or 'what it had before'}.")

    def action_cancel(self) -> None:
        """End the training run at the cursor; asks first."""
        run = self.text.here.run
        if not run:
            self.tell("Go to a training run first.", "warning")
            return
        message = CancelTraining(run=run, claimed=self._link.claimed)
        self.app.push_screen(
            Confirm(f"End training {run}? Its checkpoints stay."),
            lambda yes: self._send(message, f"{run} is to end.") if yes else None,
        )

    def _send(self, message: ActivatePolicy | CancelTraining, done: str) -> None:
        self.run_worker(self._ask(message, done), group="asking")

    async def _ask(self, message: ActivatePolicy | CancelTraining, done: str) -> None:
        try:
            await self._link.ask(message)
        except HoustonError as problem:
            self.told(problem)
        else:
            self.tell(done, "success")
            self._again()

    def action_back(self) -> None:
        """To where one came from."""
        self.leave()
