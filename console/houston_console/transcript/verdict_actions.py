"""Verdicts of people: keep or mask steps, with reasons, undo, and the history of a step.

`VerdictSession` holds the chosen range, the sent verdicts and how to undo them. A verdict without
an answer is sent again under its own key. Verdicts do not wait for a daemon that is away: the
console says so, and the steps stay chosen.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import bindings_for
from houston_console.app.undo_offers import UndoableAction, UndoOffers
from houston_console.screens.base_screen import AskForLine, Pane, post_message_as
from houston_console.transcript.step_rendering import VERDICT_GLYPHS
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.dialogs import Dialog
from houston_console.widgets.line_view import FixedLines, set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import TextLine, line, span, text_block
from houston_shared.control_messages import GiveVerdicts, JudgedSteps, Judgement
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store import annotation_queries
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.times_and_counts import local_time, number_ranges, pluralize

ResultT = TypeVar("ResultT")

MAX_UNDO_VERDICTS = 100
"""Deeds that can be taken back."""
MAX_RANGES_PER_REQUEST = 500
"""Ranges that the daemon takes at once."""


class StepRange(NamedTuple):
    """Steps of one rollout, both ends included."""

    rollout: str
    first: int
    last: int

    only: tuple[int, ...] = ()
    """The only ones of them that are meant: those on the screen, where others are left out."""

    @property
    def text(self) -> str:
        """`step 7`, `steps 3 to 9`, or `4 steps between 3 and 9`."""
        if self.only and len(self.only) < self.last - self.first + 1:
            return f"{pluralize(len(self.only), 'step')} between {self.first} and {self.last}"
        if self.first == self.last:
            return f"step {self.first}"
        return f"steps {self.first} to {self.last}"


class VerdictRequest(NamedTuple):
    """What one message to the daemon says."""

    key: str
    steps: StepRange
    verdicts: tuple[JudgedSteps, ...]
    seen_seq: int


class AppliedVerdict(NamedTuple):
    """A verdict that the daemon took, and what stood before it."""

    steps: StepRange
    previous: tuple[JudgedSteps, ...]
    seq: int


@dataclass
class VerdictSession:
    """One person's judging at one console."""

    anchor: int = 0
    """Where the chosen range begins; 0 while none is chosen."""
    applied: list[AppliedVerdict] = field(default_factory=list)
    unanswered: VerdictRequest | None = None
    """Sent, and not answered: whether it counts is not known."""

    def chosen_steps(
        self,
        rollout: str,
        cursor: int,
        shown_steps: Collection[int] | None = None,
        extent: Callable[[int], tuple[int, int]] = lambda step: (step, step),
    ) -> StepRange | None:
        """The steps that a verdict would be on; None at the task, which is no step.

        shown_steps: the only ones on the screen; None for all. extent: first and last step of the
        line that a step is on, for equal failures share one.
        """
        if not cursor:
            return None
        low, high = sorted((self.anchor or cursor, cursor))
        first, last = extent(low)[0], extent(high)[1]
        if shown_steps is None:
            return StepRange(rollout, first, last)
        return StepRange(
            rollout, first, last, tuple(s for s in sorted(shown_steps) if first <= s <= last)
        )

    def reason_steps(
        self,
        rollout: str,
        cursor: int,
        shown_steps: Collection[int] | None = None,
        extent: Callable[[int], tuple[int, int]] = lambda step: (step, step),
    ) -> StepRange | None:
        """The steps that a reason would be for: the chosen, or those just judged at the cursor."""
        newest = self.applied[-1].steps if self.applied and not self.anchor else None
        if newest and newest.rollout == rollout and newest.first <= cursor <= newest.last:
            return newest
        return self.chosen_steps(rollout, cursor, shown_steps, extent)

    def request_for(
        self, steps: StepRange, verdicts: tuple[JudgedSteps, ...], seq: int
    ) -> VerdictRequest:
        """A message, or once more the one that was not answered when it says the same."""
        again = self.unanswered
        if again is not None and (again.steps, again.verdicts) == (steps, verdicts):
            return again
        return VerdictRequest(uuid.uuid4().hex, steps, verdicts, seq)

    def verdict_request(self, steps: StepRange, verdict: Judgement, seq: int) -> VerdictRequest:
        """Keep, mask or leave undecided; without a reason."""
        runs = number_ranges(steps.only) if steps.only else [(steps.first, steps.last)]
        verdicts = (JudgedSteps(first=first, last=last, verdict=verdict) for first, last in runs)
        return self.request_for(steps, tuple(verdicts), seq)

    def record_applied(
        self, request: VerdictRequest, before: tuple[JudgedSteps, ...], seq: int
    ) -> AppliedVerdict:
        """The daemon has it: the range is chosen no longer, and it can be taken back."""
        applied = AppliedVerdict(request.steps, before, seq)
        self.applied = [*self.applied, applied][-MAX_UNDO_VERDICTS:]
        self.anchor, self.unanswered = 0, None
        return applied

    def undo_request(self, applied: AppliedVerdict) -> VerdictRequest:
        """What brings back what stood before it."""
        return self.request_for(applied.steps, applied.previous, applied.seq)

    def newest_undo(self, rollout: str) -> tuple[AppliedVerdict, VerdictRequest] | None:
        """The newest verdict on this rollout, and what brings back what stood before it."""
        newest = next(
            (verdict for verdict in reversed(self.applied) if verdict.steps.rollout == rollout),
            None,
        )
        if newest is None:
            return None
        return newest, self.undo_request(newest)

    def record_undone(self, verdict_undone: AppliedVerdict) -> None:
        """Note that a verdict was taken back."""
        self.applied = [verdict for verdict in self.applied if verdict is not verdict_undone]
        self.unanswered = None


def verdict_messages(request: VerdictRequest) -> list[VerdictRequest]:
    """A request as what the daemon takes at once; each part under a key of its own."""
    parts = [
        request.verdicts[at : at + MAX_RANGES_PER_REQUEST]
        for at in range(0, len(request.verdicts), MAX_RANGES_PER_REQUEST)
    ]
    return [
        request._replace(key=f"{request.key}-{number}" if number else request.key, verdicts=part)
        for number, part in enumerate(parts)
    ]


def verdicts_within(verdicts: tuple[JudgedSteps, ...], steps: StepRange) -> tuple[JudgedSteps, ...]:
    """What stands on the steps that are meant, and on no others."""
    only = set(steps.only) or range(steps.first, steps.last + 1)
    return tuple(
        JudgedSteps(first=first, last=last, verdict=verdict.verdict, reason=verdict.reason)
        for verdict in verdicts
        for first, last in number_ranges(
            [s for s in range(verdict.first, verdict.last + 1) if s in only]
        )
    )


def with_reason(verdicts: tuple[JudgedSteps, ...], reason: str) -> tuple[JudgedSteps, ...]:
    """People's verdicts that stand, with another reason; what is undecided is left so."""
    return tuple(
        JudgedSteps(first=verdict.first, last=verdict.last, verdict=verdict.verdict, reason=reason)
        for verdict in verdicts
        if verdict.verdict != "undecided"
    )


def verdict_history_lines(
    history: Sequence[annotation_queries.VerdictHistoryEntry],
    verdicts: Sequence[SourceVerdict],
    width: int,
) -> list[TextLine]:
    """One paragraph a word that was said; what counts now comes last."""
    lines: list[TextLine] = []
    for row in history:
        glyph, tone = VERDICT_GLYPHS.get(row.verdict, ("–", "dim"))
        ends = f"step {row.first}" if row.first == row.last else f"steps {row.first}–{row.last}"
        author = row.by if row.verified else f"{row.by} (unverified)"
        when = span(f"  {author}, {local_time(row.at)}  ", "dim")
        head = line(span(f" {glyph} {row.verdict}", tone), when, span(ends, "number"))
        lines += [head, *(text_block(row.reason, width, "text", span("   ")) if row.reason else [])]
    if not lines:
        lines.append(line(span(" Nobody has judged it.", "dim")))
    words = [f"{verdict.source}: {verdict.verdict}" for verdict in verdicts]
    now = f"{words[0]} counts" if words else "undecided: no verdict is in force"
    outranked = f"; outranked: {', '.join(words[1:])}" if words[1:] else ""
    return [*lines, (), *text_block(f"now  {now}{outranked}", width, "strong", span(" "))]


class VerdictHistoryDialog(Dialog[None]):
    """All that was said of a step."""

    BINDINGS = [("escape,q,enter,H", "close", "close")]

    def __init__(self, heading: str, make: Callable[[int], list[TextLine]]) -> None:
        """make: the lines for a width."""
        super().__init__()
        self._heading = heading
        self._make_lines = make
        self._text = FixedLines()

    def compose(self) -> ComposeResult:
        """Compose the text."""
        with Vertical(id="said") as box:
            set_frame_title(box, self._heading)
            set_frame_subtitle(box, line("esc close"))
            yield self._text

    def on_resize(self) -> None:
        """Wrap again for the new width."""
        self.call_after_refresh(self._show_end)

    def _show_end(self) -> None:
        self._text.show_lines(self._make_lines)
        self._text.jump(self._text.line_count())


DAEMON_AWAY_TEXT = (
    "The daemon is down, and verdicts do not wait: {steps} stay as they were. Judge again later."
)
VERDICT_NOTICES: dict[Judgement, str] = {
    "keep": "Kept {steps}.",
    "mask": "Masked {steps}.",
    "undecided": "Your verdict on {steps} is taken back.",
}


class VerdictActions(Pane):
    """The keys for verdicts, around the transcript."""

    BINDINGS = bindings_for("judging")

    def __init__(
        self,
        transcript: Transcript,
        link: DaemonLink,
        undo_offers: UndoOffers,
        source: Callable[[], RolloutSource | None],
        **arguments: Any,
    ) -> None:
        """source: the rollout that is open."""
        super().__init__(**arguments)
        self.session = VerdictSession()
        self._transcript = transcript
        self._link, self._undoing = link, undo_offers
        self._source = source
        self._lock = asyncio.Lock()

    def clear_choice(self) -> None:
        """Another rollout was opened: nothing of it is chosen."""
        self._choose(0)

    # --- what is chosen ----------------------------------------------------------------------

    def action_choose(self) -> None:
        """Begin a range at the cursor, or end it."""
        self._choose(0 if self.session.anchor else self._transcript.cursor)

    def clear_selection(self) -> bool:
        """Choose nothing; whether something was chosen."""
        chosen = bool(self.session.anchor)
        self._choose(0)
        return chosen

    def _choose(self, anchor: int) -> None:
        self.session.anchor = anchor
        self._transcript.choose(anchor)

    def _pick_range(self, pick: Callable[..., StepRange | None]) -> StepRange | None:
        source, folds = self._source(), self._transcript.folds
        steps = (
            pick(source.rollout, self._transcript.cursor, folds.shown_rows, folds.extent)
            if source
            else None
        )
        if source and steps is None:
            self.show_notice("The task is not a step: only steps are judged.")
        return steps

    # --- verdicts ----------------------------------------------------------------------------

    def action_judge(self, verdict: Judgement) -> None:
        """Keep, mask or leave undecided what is chosen, or the step at the cursor."""
        source, steps = self._source(), self._pick_range(self.session.chosen_steps)
        if source is not None and steps is not None:
            request = self.session.verdict_request(steps, verdict, source.seq)
            self._start(source, request, VERDICT_NOTICES[verdict])

    def _start(self, source: RolloutSource, request: VerdictRequest, words: str) -> None:
        """Say it, and offer to undo it; older ones are for `action_undo`."""
        self._undoing.do(
            f"Judging {request.steps.text} …", self._apply(source, request, words), "verdict"
        )

    async def _apply(
        self, source: RolloutSource, request: VerdictRequest, words: str
    ) -> UndoableAction | None:
        """None without a daemon, which is said. Raises HoustonError."""
        steps = request.steps
        async with self._lock:
            before = await self._read_standing(source, steps)
            seq = await self._send(request)
            if seq is None:
                return None
            applied = self.session.record_applied(request, before, seq)
            self._transcript.choose(0)
            await self._refresh_steps(source, steps)

        async def back() -> str:
            async with self._lock:
                return await self._undo(source, applied, self.session.undo_request(applied))

        more = " R adds a reason." if "taken back" not in words else ""
        return UndoableAction(
            words.format(steps=steps.text) + more, back, f"houston verdict {steps.rollout}"
        )

    async def _read_standing(
        self, source: RolloutSource, steps: StepRange
    ) -> tuple[JudgedSteps, ...]:
        """What people's verdicts on these steps are now. Raises HoustonError."""
        verdicts = await source.read(
            annotation_queries.read_human_verdict_ranges(steps.rollout, steps.first, steps.last)
        )
        return verdicts_within(verdicts, steps)

    async def _send(self, request: VerdictRequest) -> int | None:
        """The event that says it now; None without a daemon. Raises HoustonError."""
        if self._link.state == "down":
            self.show_notice(DAEMON_AWAY_TEXT.format(steps=request.steps.text))
            return None
        seq = 0
        for part in verdict_messages(request):
            message = GiveVerdicts(
                request=part.key,
                rollout=request.steps.rollout,
                steps=part.verdicts,
                seen=request.seen_seq,
                claimed=self._link.claimed,
            )
            try:
                seq = getattr(await self._link.ask(message), "seq", seq)
            except HoustonError as problem:
                if problem.code == ExitCode.BUSY:
                    self.session.unanswered = request
                raise
        return seq

    async def _refresh_steps(self, source: RolloutSource, steps: StepRange) -> None:
        """Read them again at once; steps that a branch shares bring no event of the branch."""
        if source is self._source():
            touched = list(range(steps.first, steps.last + 1))
            await self._transcript.refresh_steps(touched, self._transcript.steps)

    def action_undo(self) -> None:
        """Bring back what stood before the newest verdict that was given here."""
        source = self._source()
        if source is None:
            return
        undo = self.session.newest_undo(source.rollout)
        if undo is None:
            self.show_notice("Nothing to take back: no verdict was given at this console.")
            return
        self.run_reporting(self._run_exclusively(self._undo_older(source, *undo)), "judging")

    async def _undo_older(
        self, source: RolloutSource, old: AppliedVerdict, request: VerdictRequest
    ) -> None:
        if words := await self._undo(source, old, request):
            self.show_notice(words, good=True)

    async def _undo(
        self, source: RolloutSource, old: AppliedVerdict, request: VerdictRequest
    ) -> str:
        """What to say; nothing without a daemon, which is said. Raises HoustonError."""
        if await self._send(request) is None:
            return ""
        self.session.record_undone(old)
        await self._refresh_steps(source, request.steps)
        return f"{request.steps.text.capitalize()}: as it was before."

    # --- reasons and history -----------------------------------------------------------------

    def action_reason(self) -> None:
        """Ask why, for the verdict that stands; what was said last may be changed."""
        source, steps = self._source(), self._pick_range(self.session.reason_steps)
        if source is not None and steps is not None:
            work = self._run_exclusively(self._ask_why(source, steps))
            self.run_before_keys(work, "judging", asks_for_text=True)

    async def _ask_why(self, source: RolloutSource, steps: StepRange) -> bool:
        seen_seq = source.seq  # what is said while the reason is typed was not seen by who types it
        verdicts = await self._read_standing(source, steps)
        judged = [verdict for verdict in verdicts if verdict.verdict != "undecided"]
        if not judged:
            words = f"Nobody has judged {steps.text}: K keeps, M masks, then R adds a reason."
            self.show_notice(words)
            return False
        verdict_names = " and ".join(sorted({verdict.verdict for verdict in judged}))

        async def answer(text: str) -> None:
            request = self.session.request_for(steps, with_reason(verdicts, text), seen_seq)
            self._start(source, request, "Noted why for {steps}.")

        post_message_as(
            self, AskForLine(f"why {verdict_names} {steps.text}", answer, judged[0].reason)
        )
        return True

    def action_history(self) -> None:
        """Everything that was said of the step at the cursor."""
        source, step = self._source(), self._transcript.cursor
        if source is not None and step:
            self.run_before_keys(self._run_exclusively(self._history(source, step)), "judging")

    async def _history(self, source: RolloutSource, step: int) -> bool:
        history = await source.read(
            annotation_queries.read_verdict_history(source.rollout, step, step)
        )
        verdicts = (
            await source.read(
                annotation_queries.read_verdicts_with_reasons(source.rollout, step, step)
            )
        ).get(step, [])
        self.app.push_screen(
            VerdictHistoryDialog(
                f"What was said of step {step}",
                lambda width: verdict_history_lines(history, verdicts, width),
            )
        )
        return True

    async def _run_exclusively(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """One request after the other."""
        async with self._lock:
            return await work
