"""The agent loop: sample, act, observe, hear guidance (APOLLO, Algorithm 1, part A); when it ends.

Each step is sample → calls → observation. Every part is acked before the next starts, so a new
worker can continue after any of them. A rollout ends by `finish` or a spent budget and is scored
one last time. This module orders the parts; each part's rules are in its own module.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from houston_daemon.agent import context_compression, purification, sample_requests
from houston_daemon.agent.agent_kind import AgentKind
from houston_daemon.agent.call_execution import CallExecutor
from houston_daemon.agent.context_compression import ContextForker
from houston_daemon.agent.purification import StepAttempt, StepPurifier
from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_budgets import RolloutBudgets, observation_tail
from houston_daemon.agent.sample_requests import PolicySampler, build_ledger_entry
from houston_daemon.agent.step_attention import StepAttention
from houston_daemon.agent.worker_control import INTERRUPTED_NOTE
from houston_daemon.engines.engine_protocol import ContextOverflow, EngineSample, SampleRequest
from houston_daemon.environments.environment_protocol import Closing, Environment, ToolSpec
from houston_daemon.environments.workstation_actions import SCORE_PRESERVING_ACTIONS
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.prompts.context_ledger import Context, link_prompt
from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.token_limits import BYTES_PER_TOKEN, MIN_ANSWER_TOKENS, TokenLimits
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.guidance_tag import disarm
from houston_shared.records import (
    EVALUATION_CALL,
    DeliveredGuidance,
    ObservationBody,
    SampleBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact
from houston_shared.store.outcome_queries import BUDGET_REASON

FINISHED_BY_AGENT = "finish"
_MAX_FINAL_EVALUATIONS = 3
"""Last evaluations of a rollout."""


def is_finish_accepted(results: Sequence[ToolResult]) -> bool:
    """Whether the agent's `finish`, or a call that ends its world, was accepted in this step."""
    return any(
        result.success and (result.kind == "finish" or result.fields.get("finished") is True)
        for result in results
    )


def ending_reason(
    observation: ObservationBody,
    results: Sequence[ToolResult],
    guidance: Sequence[DeliveredGuidance],
    step: int,
    budgets: RolloutBudgets,
) -> str:
    """Why the rollout is over after a closed step; empty when it continues.

    A person's message in the last observation is heard: the agent continues after its `finish`,
    unless its steps are spent.
    """
    if not observation.finished:
        return ""
    if step >= budgets.budget.steps:
        return FINISHED_BY_AGENT if is_finish_accepted(results) else f"{BUDGET_REASON}steps"
    if is_finish_accepted(results):
        return "" if guidance else FINISHED_BY_AGENT
    return f"{BUDGET_REASON}{'cost' if budgets.is_cost_spent else 'active_seconds'}"


def may_run_final_evaluation(last: Sequence[ToolResult]) -> bool:
    """Whether the last evaluation may run. last: those that the loop added to the ending step.

    An evaluation that a restart or a machine broke off gave no score and used no submission, so
    another one follows: days of work should not stay without a score. The number of tries is
    limited, in case something breaks off every one of them.
    """
    broken_off = all(result.kind == "interrupted" and not result.success for result in last)
    return len(last) < _MAX_FINAL_EVALUATIONS and broken_off


class UnscoredChanges:
    """Whether the newest state of the workspace has no score yet."""

    def __init__(self) -> None:
        # Submissions of before this context: what changed since is not known, so score again.
        self.is_unscored = True

    def note_step(self, results: Sequence[ToolResult], changed: bool) -> None:
        """Take note of a step. changed: whether files changed in it."""
        scored = [i for i, result in enumerate(results) if _is_scored_evaluation(result)]
        after = results[scored[-1] + 1 :] if scored else results
        if scored:
            self.is_unscored = False
        if changed and any(result.call.name not in SCORE_PRESERVING_ACTIONS for result in after):
            self.is_unscored = True

    def note_record(self, record: StepRecord) -> None:
        """Take note of a step of the journal."""
        if record.observation is not None:
            observation = record.observation
            self.note_step(record.results, bool(observation.files or observation.more_files))

    def wants_score(self, results: Sequence[ToolResult], budgets: RolloutBudgets) -> bool:
        """Whether a last evaluation should run after `results` of the ending step."""
        if not budgets.evaluations_left:
            return False
        for result in reversed(results):
            if _is_scored_evaluation(result):
                return False
            if result.call.name not in SCORE_PRESERVING_ACTIONS:
                return True
        return self.is_unscored


def _is_scored_evaluation(result: ToolResult) -> bool:
    return result.kind == EVALUATION_CALL and result.fields.get("state", "scored") == "scored"


log = logging.getLogger(__name__)


@dataclass(slots=True)
class AgentLoop:
    """Everything one rollout works with."""

    line: RecorderClient
    sampler: PolicySampler
    environment: Environment
    renderer: PromptRenderer
    limits: TokenLimits
    budgets: RolloutBudgets
    request_builder: sample_requests.SampleRequestBuilder
    executor: CallExecutor
    purifier: StepPurifier
    forker: ContextForker
    agent: AgentKind
    context: Context
    attention: StepAttention
    step: int
    """The step that is open or comes next."""
    open_step: StepAttempt | None = None
    last_closed: StepRecord | None = None
    """The newest step that was closed before this worker came."""
    summary_tries: tuple[wire.SideSample, ...] = ()
    """Tries at a summary before `step` that the journal has already."""
    unscored: UnscoredChanges = field(default_factory=UnscoredChanges)

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """Tools by name."""
        return {tool.name: tool for tool in self.environment.tools}

    def ended_reason(self) -> str:
        """Why the rollout was over already: its worker ended before it could report that."""
        if self.last_closed is None or self.last_closed.observation is None:
            return ""
        last = self.last_closed
        own = last.results[: len(last.sample.calls)]
        return ending_reason(
            self.last_closed.observation, own, last.guidance, last.step, self.budgets
        )

    async def run(self) -> str:
        """Run steps until the rollout is over; return why. Raises WorkerExit, and HoustonError when
        it cannot continue."""
        while True:
            await self.line.wait_at_safe_point()
            opened = self.open_step or await self._sample_step()
            self.open_step = None
            opened = await self.purifier.decide(opened, self.context, self._grammar)
            if over := await self._close(opened):
                return over
            self.step += 1

    async def _sample_step(self) -> StepAttempt:
        """Fork when the context is too long, then sample the next action; an agent that asks again
        for what is no action keeps its first answers beside the step."""
        await self._fork_when_too_long()
        for number in range(self.agent.attempts_made + 1, self.agent.max_attempts + 1):
            request, sampled = await self._sample_policy(number)
            self.summary_tries = ()
            sample = self._ledger_entry(request, sampled)
            again = bool(sample.malformed) and sample.finish_reason != "interrupted"
            if not again or number == self.agent.max_attempts:
                break
            await self.line.store(
                wire.StoreSample,
                step=self.step,
                attempt=1,
                part=f"{sample.role}.{number}",
                sample=sample,
            )
            point("worker.try.after")
        ack = await self.line.store(
            wire.StoreSample, step=self.step, attempt=1, part="sample", sample=sample
        )
        point("worker.sample.after")
        self.context.anchor_sample(ack.seq, self.context.prompt_ids, sample.token_ids)
        return StepAttempt(self.step, 1, ack.seq, sample)

    def _ledger_entry(self, request: SampleRequest, sampled: EngineSample) -> SampleBody:
        """A sample of the context as it stands, with the action that it is."""
        decided: AgentAction = self.agent.check(
            sample_requests.parse_action(sampled, self.step, self.renderer.dialect, self.tools),
            self.step,
        )
        link = link_prompt(
            self.context.anchor,
            self.context.prompt_ids,
            fresh=self.context.has_no_sample,
            stripped=self.context.last_is_stripped,
        )
        return build_ledger_entry(
            request,
            sampled,
            link,
            self.sampler.engine.name,
            thought=decided.thought,
            calls=decided.calls,
            malformed=decided.malformed,
        )

    async def _sample_policy(self, number: int) -> tuple[SampleRequest, EngineSample]:
        """The policy's sample, or that of the role in its place. A context that the engine calls
        too long is forked; one that cannot be made shorter pauses the rollout until the engine
        takes it. number: which answer for the step it is."""
        while True:
            request = self.request_builder.request(
                self.context.prompt_ids,
                self.context.messages,
                step=self.step,
                max_tokens=self._answer_room(),
                role=self.request_builder.role,
                grammar=self._grammar(),
                attempt=number,
            )
            point("worker.sample.before")
            try:
                sampled = await self.sampler.sample(request)
            except ContextOverflow as problem:
                log.warning("the context is forked: %s", problem)
                if not await self._force_fork():
                    await self.sampler.wait_for_longer_window(problem)
                continue
            point("worker.sample.asked")
            return request, sampled

    async def _force_fork(self) -> bool:
        """Fork a context to half its size or less, whatever its limit; False where nothing can be
        compressed, or a fork before this step has been made already.

        The limit of the next ones becomes what the engine still took, in our own count of tokens.
        """
        size = self.context.size
        cut = None
        if not self.context.has_no_sample:
            cut = context_compression.plan_fork(self.context, self.renderer, self.limits, size // 2)
        if cut is None:
            return False
        self.limits = replace(self.limits, context=min(self.limits.context, size * 4 // 5))
        self.context = await self.forker.fork(
            self.context, cut, self.step, self.summary_tries, self.budgets.visible_scores
        )
        return True

    def _grammar(self) -> Mapping[str, object] | None:
        if not self.request_builder.guided:
            return None
        tools = self.agent.allowed_tools(self.step)
        return self.renderer.dialect.grammar(tools, self.limits.answer)

    def _answer_room(self) -> int:
        room = self.limits.answer_room(self.context.size, self.limits.answer)
        if room < MIN_ANSWER_TOKENS:
            raise HoustonError(
                f"The context has {self.context.size} tokens and cannot be made shorter; "
                f"the engine's window has {self.limits.window}.",
                "The rollout cannot go on.",
            )
        return room

    async def _fork_when_too_long(self) -> None:
        limits, size = self.limits, self.context.size
        fits = size <= limits.fork_threshold(self.context.head_size)
        if self.context.has_no_sample or (
            fits and limits.answer_room(size, limits.answer) >= MIN_ANSWER_TOKENS
        ):
            return
        cut = context_compression.plan_fork(self.context, self.renderer, limits)
        if cut is None:
            return
        self.context = await self.forker.fork(
            self.context, cut, self.step, self.summary_tries, self.budgets.visible_scores
        )

    async def _close(self, opened: StepAttempt) -> str:
        """Store the observation, take what people said, grow the context; why it is over."""
        finished = await self._ends_now(opened)
        after = await self.agent.after_calls(opened, self.context, finished)
        notes = (*self._loop_notes(opened, finished), *after.notes)
        closing, unsnapped = await self._close_environment(opened.step)
        if unsnapped:
            notes += (f"[the snapshot of this step failed: {unsnapped}]",)
        notes += tuple(disarm(note).text for note in closing.notes)
        observation = ObservationBody(
            tail=redact(observation_tail(opened.step, self.budgets, notes)),
            snapshot=closing.snapshot,
            files=closing.files,
            more_files=closing.more_files,
            spans=closing.spans,
            snapshots=dict(closing.snapshots),
            finished=finished,
            guidance_bytes=self.limits.guidance * BYTES_PER_TOKEN,
            not_purified=opened.not_purified,
            verification=after.verification,
        )
        observation = self.attention.with_signals(
            opened.step, opened.sample, opened.results, observation, unsnapped
        )
        point("worker.observation.before")
        ack = await self.line.store(
            wire.StoreObservation,
            step=opened.step,
            attempt=opened.attempt,
            observation=observation,
        )
        point("worker.observation.after")
        self._append_entry(opened, observation, ack.guidance)
        own = opened.results[: len(opened.sample.calls)]
        return ending_reason(observation, own, ack.guidance, opened.step, self.budgets)

    async def _close_environment(self, step: int) -> tuple[Closing, str]:
        """What the step did to the world, and why there is no snapshot of it; empty where there
        is one. Raises NeedsPerson: then the step is closed when the rollout goes on."""
        closing, unsnapped = Closing(), ""
        try:
            point("worker.snapshot.before")
            closing = await self.environment.close_step(step)
        except NeedsPerson:
            raise
        except Exception as problem:  # the step stands without its snapshot
            log.exception("closing step %s", step)
            why = problem.cause if isinstance(problem, HoustonError) else type(problem).__name__
            unsnapped = disarm(why).text
        point("worker.snapshot.after")
        return closing, unsnapped

    async def _ends_now(self, opened: StepAttempt) -> bool:
        """Whether the rollout ends with this step; then its newest state is scored."""
        accepted = is_finish_accepted(opened.results)
        spent = self.budgets.spent_budget(opened.step)
        put_off = accepted and not spent and self.line.control.current.waiting.count > 0
        if put_off or not (accepted or spent):
            return False
        if not accepted and (call := self.agent.fallback_call(opened)):
            await self._run_own_call(opened, call, last=True)
        added = opened.results[len(opened.sample.calls) :]
        tried = [result for result in added if result.call.name == EVALUATION_CALL]
        if may_run_final_evaluation(tried) and self.unscored.wants_score(
            opened.results, self.budgets
        ):
            call = ToolCall(
                id=f"{opened.step}.{len(opened.results)}", name=EVALUATION_CALL, arguments={}
            )
            # After `finish` the agent goes on where a person speaks; after a budget nobody does.
            await self._run_own_call(opened, call, last=bool(spent))
        return True

    async def _run_own_call(self, opened: StepAttempt, call: ToolCall, last: bool) -> None:
        """Run a call that the loop itself adds to a step. last: see `CallExecutor.run_call`."""
        own = len(opened.results) + 1
        await self.executor.run_call(
            opened.step, call, own, opened.results, opened.attempt, last=last
        )

    def _loop_notes(self, opened: StepAttempt, finished: bool) -> tuple[str, ...]:
        """What the loop itself has to say about a step."""
        sample, notes = opened.sample, []
        if sample.finish_reason == "interrupted":
            notes.append(INTERRUPTED_NOTE)
        elif sample.malformed:
            notes.append(purification.malformed_note(sample, self.renderer))
        if is_finish_accepted(opened.results) and not finished:
            notes.append("[the end was put off: a person has something to say]")
        return tuple(notes)

    def _append_entry(
        self,
        opened: StepAttempt,
        observation: ObservationBody,
        guidance: tuple[DeliveredGuidance, ...],
    ) -> None:
        entry = self.renderer.render_step(
            opened.step, opened.sample, opened.results, observation, guidance
        )
        self.context.add(entry)
        self.agent.note_closed(opened, observation, guidance)
        self.attention.hear(guidance)
        self.unscored.note_step(opened.results, bool(observation.files or observation.more_files))
