"""Purification: a failed call is corrected ahead, and the step is stored as if the correction had
come first (CLEANER §4, SAAR).

When a call fails, or an answer is not an action, the failure is not committed at once: up to K
corrections are sampled in a temporary context, which is the step's own with the failure added. The
first that succeeds makes a further attempt at the same step, which counts from then on. After K
failures, or as soon as a person speaks, the raw attempt stays. Every attempt is in the journal.
This needs an environment that can undo calls. `purified_answer` makes one answer of the two.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from houston_daemon.agent import sample_requests
from houston_daemon.agent.call_execution import CallExecutor
from houston_daemon.agent.purified_answer import build_purified_sample, choose_replacement
from houston_daemon.agent.recorder_client import GuidanceWaits
from houston_daemon.agent.resumed_context import with_ledger_ids
from houston_daemon.agent.rollout_budgets import RolloutBudgets, observation_tail
from houston_daemon.agent.sample_requests import (
    PolicySampler,
    SampleRequestBuilder,
    build_ledger_entry,
)
from houston_daemon.engines.engine_protocol import ContextOverflow
from houston_daemon.environments.environment_protocol import Environment, Undo
from houston_daemon.prompts.context_ledger import Context, PromptAnchor, link_prompt
from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.token_limits import MIN_ANSWER_TOKENS, TokenLimits
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.guidance_tag import disarm
from houston_shared.records import (
    EVALUATION_CALL,
    LOOKAHEAD_KEY,
    PURIFICATION_KEY,
    CallIntent,
    ObservationBody,
    SampleBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact
from houston_shared.task_tables import PurifySettings

log = logging.getLogger(__name__)
BEFORE_STEP = "before"
"""Saved state: the world before the calls of the step."""
AFTER_RAW = "raw"
"""Saved state: the world after the calls of the first attempt."""
Grammar = Callable[[], Mapping[str, object] | None]
"""Gives the JSON schema that answers follow, where they follow one."""
NO_UNDO = "calls of this environment cannot be taken back, so failed ones are not corrected ahead"
GUIDED = "a person has something to say"


@dataclass(slots=True)
class StepAttempt:
    """One attempt at a step that is not closed: its sample and the results of its calls."""

    step: int
    attempt: int
    seq: int
    """Journal sequence of its sample."""
    sample: SampleBody
    intents: Sequence[CallIntent] = ()
    results: list[ToolResult] = field(default_factory=list)
    not_purified: str = ""
    """Why it stays as it is although a call failed."""

    @property
    def failed(self) -> bool:
        """Whether it failed, and not because it was cut off."""
        if self.sample.finish_reason == "interrupted":
            return False
        wrong = [result for result in self.results if not result.success]
        cut_off = any(result.kind == "interrupted" for result in self.results)
        return bool(self.sample.malformed or wrong) and not cut_off

    @property
    def succeeded(self) -> bool:
        """Whether all calls succeeded."""
        calls = self.sample.calls
        ran = bool(calls) and len(self.results) >= len(calls)
        return ran and all(
            result.success and result.kind != "interrupted" for result in self.results
        )


def reopen_attempt(record: StepRecord) -> StepAttempt:
    """An attempt that the worker before this one left."""
    return StepAttempt(
        record.step,
        record.attempt,
        record.sample_seq,
        record.sample,
        record.intents,
        list(record.results),
    )


def is_purified_rollout(settings: PurifySettings, seed: int) -> bool:
    """Whether a rollout with this seed is one of those that are purified."""
    digest = hashlib.sha256(f"purify {seed}".encode()).digest()
    return settings.enabled and int.from_bytes(digest[:8], "big") < settings.share * 2**64


@dataclass(slots=True)
class StepPurifier:
    """Completes the steps of one rollout: runs their calls, and looks ahead where one fails."""

    settings: PurifySettings
    active: bool
    """Whether this rollout is one of those that are purified."""
    sampler: PolicySampler
    environment: Environment
    renderer: PromptRenderer
    limits: TokenLimits
    budgets: RolloutBudgets
    request_builder: SampleRequestBuilder
    executor: CallExecutor
    check: Callable[[AgentAction, int], AgentAction]
    """Says what the agent takes as a step (`AgentKind.check`)."""
    stored: list[StepAttempt] = field(default_factory=list)
    """Other attempts at the open step that the journal has already (after a restart)."""
    said_no_undo: bool = False
    """Whether people were told that nothing can be taken back here."""

    @property
    def _undo(self) -> Undo:
        return getattr(
            self.environment, "undo", "none"
        )  # a package's may be of before there was one

    async def decide(self, opened: StepAttempt, context: Context, grammar: Grammar) -> StepAttempt:
        """Run the calls of a step; return the attempt that counts. Raises WorkerExit.

        context: the step's own; its newest sample is that of `opened`.
        """
        stored, self.stored = self.stored, []
        if provenance := opened.sample.parameters.get(PURIFICATION_KEY):
            return await self._take_over(opened, _source_of(opened, provenance, stored))
        begun = bool(opened.intents or opened.results)
        if self.active and self._undo == "restore" and not begun:
            await self.environment.save_state(BEFORE_STEP)
        await self.executor.run_calls(
            opened.step, opened.sample.calls, opened.intents, opened.results
        )
        if not (self.active and opened.failed):
            return opened
        if reason := self._obstacle(opened):
            opened.not_purified = reason
            return opened
        return await self._look_ahead(opened, context, stored, grammar)

    def _obstacle(self, opened: StepAttempt) -> str:
        """Why a failed step is not corrected ahead; empty where it may be."""
        if self._undo == "none":
            was_said, self.said_no_undo = self.said_no_undo, True
            return "" if was_said else NO_UNDO
        scored = any(result.kind == EVALUATION_CALL and result.success for result in opened.results)
        return "a submission cannot be taken back" if scored else ""

    def _stop_reason(self) -> str:
        """Why no further correction is sampled."""
        if self.sampler.line.control.current.waiting.count:
            return GUIDED
        if self.budgets.is_cost_spent:
            return "the budget of cost is spent"
        return "the time budget is spent" if self.budgets.seconds_left <= 0 else ""

    async def _look_ahead(
        self,
        opened: StepAttempt,
        context: Context,
        stored: Sequence[StepAttempt],
        grammar: Grammar,
    ) -> StepAttempt:
        """Up to K corrections; the purified attempt, or the raw one."""
        if self._undo == "restore" and not stored:
            await self.environment.save_state(AFTER_RAW)
        ahead = LookaheadContext(context, opened, self.renderer, self.budgets)
        reason = f"{self.settings.retries} corrections failed"
        newest = opened
        for number in range(1, self.settings.retries + 1):
            candidate = stored[number - 1] if number <= len(stored) else None
            if candidate is None or not candidate.intents:
                await self.sampler.line.wait_at_safe_point()
                if why := self._stop_reason():
                    reason = why
                    break
            ahead.add(newest, candidate)
            candidate = candidate or await self._sample_correction(ahead, opened, number, grammar)
            if candidate is None:
                reason = "the engine's window has no room for a correction"
                break
            await self._run_correction(candidate)
            if candidate.succeeded:
                purified = await self._commit(opened, candidate, context)
                return purified or await self._keep_raw(opened, opened.not_purified)
            newest = candidate
        return await self._keep_raw(opened, reason)

    async def _keep_raw(self, opened: StepAttempt, reason: str) -> StepAttempt:
        await self._restore(AFTER_RAW)
        opened.not_purified = reason
        return opened

    async def _restore(self, name: str) -> None:
        point("worker.restore.before")
        if self._undo == "restore":
            await self.environment.restore_state(name)

    async def _sample_correction(
        self,
        ahead: "LookaheadContext",
        opened: StepAttempt,
        number: int,
        grammar: Grammar,
    ) -> StepAttempt | None:
        """(r', c') ~ π(· | h̃) (CLEANER, equation 8), stored; None where the window has no room."""
        context, step, attempt = ahead.context, opened.step, number + 1
        room = self.limits.answer_room(context.size, self.limits.answer)
        if room < MIN_ANSWER_TOKENS:
            return None
        prompt = context.prompt_ids
        request = self.request_builder.request(
            prompt,
            context.messages,
            step=step,
            attempt=attempt,
            max_tokens=room,
            role="lookahead",
            grammar=grammar(),
        )
        point("worker.lookahead.before")
        try:
            sampled = await self.sampler.sample(request)
        except ContextOverflow as problem:
            log.warning("no room for a correction: %s", problem)
            return None
        point("worker.lookahead.asked")
        tools = {tool.name: tool for tool in self.environment.tools}
        action = self.check(
            sample_requests.parse_action(sampled, step, self.renderer.dialect, tools), step
        )
        entry = build_ledger_entry(
            request,
            sampled,
            link_prompt(context.anchor, prompt, fresh=False, stripped=context.last_is_stripped),
            self.sampler.engine.name,
            thought=action.thought,
            calls=tuple(_named_call(call, step, attempt) for call in action.calls),
            malformed=action.malformed,
        )
        lookahead = {"number": number, "tail": ahead.tail}
        sample = replace(entry, parameters={**entry.parameters, LOOKAHEAD_KEY: lookahead})
        ack = await self.sampler.line.store(
            wire.StoreSample, step=step, attempt=attempt, part=f"lookahead.{number}", sample=sample
        )
        point("worker.lookahead.after")
        return StepAttempt(step, attempt, ack.seq, sample)

    async def _run_correction(self, candidate: StepAttempt) -> None:
        """Run the calls of a correction in the world as it was before the step."""
        calls = candidate.sample.calls
        fresh = not candidate.intents and len(candidate.results) < len(calls)
        if fresh:
            await self._restore(BEFORE_STEP)
        await self.executor.run_calls(
            candidate.step,
            calls,
            candidate.intents,
            candidate.results,
            candidate.attempt,
            counts=False,
        )

    async def _commit(
        self, opened: StepAttempt, candidate: StepAttempt, context: Context
    ) -> StepAttempt | None:
        """The purified attempt, stored; None, with the reason, where the raw one stays."""
        replacement = choose_replacement(
            opened.sample, opened.results, candidate.sample, self.settings.similarity
        )
        provenance = {"attempts": candidate.attempt, "from_attempt": candidate.attempt}
        tools = {tool.name: tool for tool in self.environment.tools}
        sample = build_purified_sample(
            opened.sample, candidate.sample, replacement, provenance, self.renderer, tools
        )
        attempt = candidate.attempt + 1
        point("worker.purified.before")
        try:
            ack = await self.sampler.line.store(
                wire.StoreSample, step=opened.step, attempt=attempt, part="sample", sample=sample
            )
        except GuidanceWaits:
            opened.not_purified = GUIDED
            return None
        point("worker.purified.after")
        context.anchor_sample(ack.seq, context.prompt_ids, sample.token_ids)
        purified = StepAttempt(opened.step, attempt, ack.seq, sample)
        return await self._take_over(purified, candidate)

    async def _take_over(self, purified: StepAttempt, source: StepAttempt) -> StepAttempt:
        """Store what the correction's calls gave as the purified attempt's: nothing runs again."""
        await self.executor.take_over(
            purified.step,
            purified.attempt,
            source.results,
            len(purified.intents),
            purified.results,
        )
        await self.executor.run_calls(  # a last evaluation that the loop added may be found again
            purified.step, (), purified.intents, purified.results, purified.attempt
        )
        return purified


def _source_of(
    purified: StepAttempt, provenance: Mapping[str, int], stored: Sequence[StepAttempt]
) -> StepAttempt:
    """The correction that a purified attempt took over. Raises HoustonError where it is gone."""
    source = next(
        (attempt for attempt in stored if attempt.attempt == provenance["from_attempt"]), None
    )
    if source is None and len(purified.results) < len(purified.sample.calls):
        raise HoustonError(
            f"The correction that step {purified.step} took over is no longer in the journal.",
            "The rollout cannot go on.",
            "houston verify",
        )
    return source or purified


def _named_call(call: ToolCall, step: int, attempt: int) -> ToolCall:
    """A call whose id no other attempt at the step has; an engine's own ids are so already."""
    number, _, index = call.id.partition(".")
    own = number == str(step) and index.isdigit()
    return replace(call, id=f"{step}.{index}.{attempt}") if own else call


class LookaheadContext:
    """h̃: the context of a step and its failed attempts (CLEANER, equation 7)."""

    def __init__(
        self,
        context: Context,
        opened: StepAttempt,
        renderer: PromptRenderer,
        budgets: RolloutBudgets,
    ) -> None:
        self.context = Context(context.head, context.head_ids, context.head_size, PromptAnchor())
        for entry in context.entries:
            self.context.add(entry)
        self._renderer, self._budgets, self._step = renderer, budgets, opened.step
        self.tail = ""
        """The end of the newest observation in it."""

    def add(self, failed: StepAttempt, after: StepAttempt | None) -> None:
        """Add a failed attempt with its observation. after: the correction that was sampled after
        it already; its prompt gives the observation's ids."""
        sample = failed.sample
        notes = (malformed_note(sample, self._renderer),) if sample.malformed else ()
        lookahead = after.sample.parameters.get(LOOKAHEAD_KEY, {}) if after else {}
        tail = lookahead.get("tail") or redact(observation_tail(self._step, self._budgets, notes))
        self.tail = tail
        self.context.anchor_sample(failed.seq, self.context.prompt_ids, sample.token_ids)
        observed = ObservationBody(tail=tail)
        entry = self._renderer.render_step(self._step, sample, failed.results, observed, ())
        self.context.add(with_ledger_ids(entry, sample, after.sample if after else None))


def malformed_note(sample: SampleBody, renderer: PromptRenderer) -> str:
    """The note to a model whose answer was not an action."""
    note = f"No action was taken: {sample.malformed}. {renderer.answer_hint}"
    return f"[{disarm(note).text}]"
