"""The keys that judge: around the transcript, so that they act on the step at its cursor.

Verdicts do not wait for a daemon that is away, as guidance does: what was not taken is said, and
the steps stay chosen.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from textual.containers import Vertical

from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.judging.bench import Bench, Deed, Done, Range, messages, reasoned, within
from houston_console.app.judging.history import Said, history_lines
from houston_console.app.keys import bindings
from houston_console.app.link import Link
from houston_console.app.messages import AskLine, Told, guarded, say
from houston_console.app.source import RolloutSource
from houston_console.app.transcript.transcript import Transcript
from houston_console.app.undoing import Act, Undoing
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.queries import verdicts
from houston_shared.wire_people import GiveVerdicts, JudgedSteps, Judgement

AWAY = "The daemon is away, and verdicts do not wait: {steps} stay as they were. Judge again then."
DID: dict[Judgement, str] = {
    "keep": "Kept {steps}.",
    "mask": "Masked {steps}.",
    "undecided": "Your verdict on {steps} is taken back.",
}


class Judging(ErrorBoundary, Vertical):
    """Around the transcript."""

    BINDINGS = bindings("judging")

    def __init__(
        self,
        transcript: Transcript,
        link: Link,
        undoing: Undoing,
        source: Callable[[], RolloutSource | None],
        **arguments: Any,
    ) -> None:
        """source: the rollout that is open."""
        super().__init__(**arguments)
        self.bench = Bench()
        self._transcript = transcript
        self._link, self._undoing = link, undoing
        self._source = source
        self._turn = asyncio.Lock()

    def turn(self) -> None:
        """Another rollout was opened: nothing of it is chosen."""
        self._choose(0)

    # --- what is chosen ----------------------------------------------------------------------

    def action_choose(self) -> None:
        """Begin a range at the cursor, or end it."""
        self._choose(0 if self.bench.anchor else self._transcript.cursor)

    def unchoose(self) -> bool:
        """Choose nothing; whether something was chosen."""
        chosen = bool(self.bench.anchor)
        self._choose(0)
        return chosen

    def _choose(self, anchor: int) -> None:
        self.bench.anchor = anchor
        self._transcript.choose(anchor)

    def _chosen(
        self, pick: Callable[[str, int, Collection[int] | None], Range | None]
    ) -> Range | None:
        source, folds = self._source(), self._transcript.folds
        found = pick(source.rollout, self._transcript.cursor, folds.those) if source else None
        if source and found is None:
            say(self, Told("The task is no step: only steps are judged."))
        return found

    # --- verdicts ----------------------------------------------------------------------------

    def action_judge(self, verdict: Judgement) -> None:
        """Keep, mask or leave undecided what is chosen, or the step at the cursor."""
        source, steps = self._source(), self._chosen(self.bench.chosen)
        if source is not None and steps is not None:
            deed = self.bench.verdict(steps, verdict, source.seq)
            self._do(source, deed, DID[verdict])

    def _do(self, source: RolloutSource, deed: Deed, words: str) -> None:
        """Say it, and offer to undo it; those before it are the bench's to undo."""
        self._undoing.do(
            f"Judging {deed.steps.words} …", self._give(source, deed, words), "verdict"
        )

    async def _give(self, source: RolloutSource, deed: Deed, words: str) -> Act | None:
        """None without a daemon, which is said. Raises HoustonError."""
        steps = deed.steps
        async with self._turn:
            before = await self._stands(source, steps)
            seq = await self._send(deed)
            if seq is None:
                return None
            done = self.bench.taken(deed, before, seq)
            self._transcript.choose(0)
            await self._show(source, steps)

        async def back() -> str:
            async with self._turn:
                return await self._undo(source, done, self.bench.back(done))

        more = " R adds a reason." if "taken back" not in words else ""
        return Act(words.format(steps=steps.words) + more, back, f"houston verdict {steps.rollout}")

    async def _stands(self, source: RolloutSource, steps: Range) -> tuple[JudgedSteps, ...]:
        """What people's verdicts on these steps are now. Raises HoustonError."""
        found = await source.read(verdicts.runs(steps.rollout, steps.first, steps.last))
        return within(found, steps)

    async def _send(self, deed: Deed) -> int | None:
        """The event that says it now; None without a daemon. Raises HoustonError."""
        if self._link.state == "down":
            say(self, Told(AWAY.format(steps=deed.steps.words)))
            return None
        seq = 0
        for part in messages(deed):
            message = GiveVerdicts(
                request=part.request,
                rollout=deed.steps.rollout,
                steps=part.given,
                seen=deed.seen,
                claimed=self._link.claimed,
            )
            try:
                seq = getattr(await self._link.ask(message), "seq", seq)
            except HoustonError as problem:
                if problem.code == ExitCode.BUSY:
                    self.bench.doubtful = deed
                raise
        return seq

    async def _show(self, source: RolloutSource, steps: Range) -> None:
        """Read them again at once; steps that a branch shares bring no event of the branch."""
        if source is self._source():
            touched = list(range(steps.first, steps.last + 1))
            await self._transcript.grew(touched, self._transcript.steps)

    def action_undo(self) -> None:
        """Bring back what stood before the newest verdict that was given here."""
        source = self._source()
        if source is None:
            return
        found = self.bench.undo(source.rollout)
        if found is None:
            say(self, Told("Nothing to take back: no verdict was given at this console."))
            return
        self._later(self._undo_older(source, *found))

    async def _undo_older(self, source: RolloutSource, done: Done, deed: Deed) -> None:
        if words := await self._undo(source, done, deed):
            say(self, Told(words, good=True))

    async def _undo(self, source: RolloutSource, done: Done, deed: Deed) -> str:
        """What to say; nothing without a daemon, which is said. Raises HoustonError."""
        if await self._send(deed) is None:
            return ""
        self.bench.undone(done)
        await self._show(source, deed.steps)
        return f"{deed.steps.words.capitalize()}: as it was before."

    # --- reasons and history -----------------------------------------------------------------

    def action_reason(self) -> None:
        """Ask why, for the verdict that stands; what was said last may be changed."""
        source, steps = self._source(), self._chosen(self.bench.meant)
        if source is not None and steps is not None:
            self._later(self._ask_why(source, steps))

    async def _ask_why(self, source: RolloutSource, steps: Range) -> None:
        stands = await self._stands(source, steps)
        said = [one for one in stands if one.verdict != "undecided"]
        if not said:
            words = f"Nobody has judged {steps.words}: K keeps, M masks, then R adds a reason."
            say(self, Told(words))
            return
        what = " and ".join(sorted({one.verdict for one in said}))

        async def answer(text: str) -> None:
            deed = self.bench.deed(steps, reasoned(stands, text), source.seq)
            self._do(source, deed, "Noted why for {steps}.")

        say(self, AskLine(f"why {what} {steps.words}", answer, said[0].reason))

    def action_history(self) -> None:
        """Everything that was said of the step at the cursor."""
        source, step = self._source(), self._transcript.cursor
        if source is not None and step:
            self._later(self._history(source, step))

    async def _history(self, source: RolloutSource, step: int) -> None:
        said = await source.read(verdicts.history(source.rollout, step, step))
        found = (await source.read(verdicts.standing(source.rollout, step, step))).get(step, [])
        self.app.push_screen(
            Said(f"What was said of step {step}", lambda width: history_lines(said, found, width))
        )

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """One deed after the other, and no key waits for any."""
        self.run_worker(self._in_turn(work), group="judging")

    async def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._turn:
            await guarded(self, work)
