"""The loop: sample, act, observe, hear (APOLLO, Algorithm 1, part A), until the rollout is over.

Each step is sample → calls → observation, every part acked before the next begins, so that a new
worker goes on after any of them. This module orders the parts; each part's rules are elsewhere.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from houston_daemon.dialects.protocol import Action
from houston_daemon.engines.protocol import ContextOverflow, Sampled, SampleRequest
from houston_daemon.environments.protocol import Closing, Environment, ToolSpec
from houston_daemon.rollout import ending, fork, policy
from houston_daemon.rollout.actions import EVALUATION, Actor
from houston_daemon.rollout.budgets import Budgets, tail
from houston_daemon.rollout.context import Context
from houston_daemon.rollout.forking import Forker
from houston_daemon.rollout.guidance import INTERRUPTED
from houston_daemon.rollout.ledger import link
from houston_daemon.rollout.limits import BYTES_PER_TOKEN, LEAST_ANSWER, Limits
from houston_daemon.rollout.line import Line
from houston_daemon.rollout.rendering import Renderer
from houston_daemon.rollout.sampling import Sampler, ledger_entry
from houston_daemon.rollout.watching import Watching
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.real_user import disarm
from houston_shared.records import (
    Call,
    Delivered,
    Intent,
    ObservationBody,
    Result,
    SampleBody,
    StepRecord,
)
from houston_shared.secret_values import redact

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenStep:
    """A step that was sampled and not closed."""

    step: int
    sample: SampleBody
    intents: tuple[Intent, ...] = ()
    results: list[Result] = field(default_factory=list)


@dataclass(slots=True)
class Rollout:
    """Everything one rollout works with."""

    line: Line
    sampler: Sampler
    environment: Environment
    renderer: Renderer
    limits: Limits
    budgets: Budgets
    asking: policy.Asking
    actor: Actor
    forker: Forker
    context: Context
    watching: Watching
    step: int
    """The step that is open or comes next."""
    open: OpenStep | None = None
    last: StepRecord | None = None
    """The newest step that was closed before this worker came."""
    tries: tuple[wire.SummaryTry, ...] = ()
    """Tries at a summary before `step` that the journal has already."""
    unscored: ending.Unscored = field(default_factory=ending.Unscored)

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """Tools by name."""
        return {tool.name: tool for tool in self.environment.tools}

    def was_over(self) -> str:
        """Why the rollout is over already: its worker ended between the last step and saying so."""
        if self.last is None or self.last.observation is None:
            return ""
        last = self.last
        return ending.ended(
            self.last.observation, last.results, last.guidance, last.step, self.budgets
        )

    async def run(self) -> str:
        """Steps until the rollout is over; why it is. Raises Leaving, and HoustonError when it
        cannot go on."""
        while True:
            await self.line.safe_point()
            opened = self.open or await self._decide()
            self.open = None
            await self.actor.run(opened.step, opened.sample.calls, opened.intents, opened.results)
            if over := await self._close(opened):
                return over
            self.step += 1

    async def _decide(self) -> OpenStep:
        """Fork when the context is too long, then sample the policy's next action."""
        await self._fit()
        request, sampled = await self._sampled()
        self.tries = ()
        prompt = self.context.prompt_ids
        decided: Action = policy.action(sampled, self.step, self.renderer.dialect, self.tools)
        how = link(
            self.context.anchor, prompt, fresh=self.context.fresh, stripped=self.context.stripped
        )
        sample = ledger_entry(
            request,
            sampled,
            how,
            self.sampler.engine.name,
            thought=decided.thought,
            calls=decided.calls,
            malformed=decided.malformed,
        )
        ack = await self.line.store(
            wire.StoreSample, step=self.step, attempt=1, part="sample", sample=sample
        )
        point("worker.sample.after")
        self.context.sampled(ack.seq, prompt, sample.token_ids)
        return OpenStep(self.step, sample)

    async def _sampled(self) -> tuple[SampleRequest, Sampled]:
        """The policy's sample. A context that the engine calls too long is forked; one that cannot
        be made shorter pauses the rollout until the engine takes it."""
        while True:
            request = self.asking.request(
                self.context.prompt_ids,
                self.context.messages,
                step=self.step,
                max_tokens=self._room(),
                grammar=self._grammar(),
            )
            point("worker.sample.before")
            try:
                sampled = await self.sampler.sample(request)
            except ContextOverflow as problem:
                log.warning("the context is forked: %s", problem)
                if not await self._shorten():
                    await self.sampler.refused(problem)
                continue
            point("worker.sample.asked")
            return request, sampled

    async def _shorten(self) -> bool:
        """Fork a context to half its size or less, whatever its limit; False where nothing can be
        compressed, or a fork before this step has been made already.

        The limit of the next ones becomes what the engine still took, in our own count of tokens.
        """
        size = self.context.size
        cut = None
        if not self.context.fresh:
            cut = fork.plan(self.context, self.renderer, self.limits, size // 2)
        if cut is None:
            return False
        self.limits = replace(self.limits, context=min(self.limits.context, size * 4 // 5))
        self.context = await self.forker.fork(
            self.context, cut, self.step, self.tries, self.budgets.told
        )
        return True

    def _grammar(self) -> Mapping[str, object] | None:
        if not self.asking.guided:
            return None
        return self.renderer.dialect.grammar(self.environment.tools, self.limits.answer)

    def _room(self) -> int:
        room = self.limits.room(self.context.size, self.limits.answer)
        if room < LEAST_ANSWER:
            raise HoustonError(
                f"The context has {self.context.size} tokens and cannot be made shorter; "
                f"the engine's window has {self.limits.window}.",
                "The rollout cannot go on.",
            )
        return room

    async def _fit(self) -> None:
        limits, size = self.limits, self.context.size
        fits = size <= limits.useful(self.context.head_size)
        if self.context.fresh or (fits and limits.room(size, limits.answer) >= LEAST_ANSWER):
            return
        cut = fork.plan(self.context, self.renderer, limits)
        if cut is None:
            return
        self.context = await self.forker.fork(
            self.context, cut, self.step, self.tries, self.budgets.told
        )

    async def _close(self, opened: OpenStep) -> str:
        """Store the observation, take what people said, grow the context; why it is over."""
        finished = await self._finishing(opened)
        notes = self._noted(opened, finished)
        closing, unsnapped = Closing(), ""
        try:
            point("worker.snapshot.before")
            closing = await self.environment.close_step(opened.step)
        except Exception as problem:  # the step stands without its snapshot
            log.exception("closing step %s", opened.step)
            why = problem.cause if isinstance(problem, HoustonError) else type(problem).__name__
            unsnapped = disarm(why).text
            notes += (f"[the snapshot of this step failed: {unsnapped}]",)
        point("worker.snapshot.after")
        notes += tuple(disarm(note).text for note in closing.notes)
        observation = ObservationBody(
            tail=redact(tail(opened.step, self.budgets, notes)),
            snapshot=closing.snapshot,
            files=closing.files,
            more_files=closing.more_files,
            spans=closing.spans,
            snapshots=dict(closing.snapshots),
            finished=finished,
            guidance_bytes=self.limits.guidance * BYTES_PER_TOKEN,
        )
        observation = self.watching.marked(
            opened.step, opened.sample, opened.results, observation, unsnapped
        )
        point("worker.observation.before")
        ack = await self.line.store(
            wire.StoreObservation, step=opened.step, attempt=1, observation=observation
        )
        point("worker.observation.after")
        self._grow(opened, observation, ack.guidance)
        return ending.ended(observation, opened.results, ack.guidance, opened.step, self.budgets)

    async def _finishing(self, opened: OpenStep) -> bool:
        """Whether the rollout ends with this step; then its newest state is scored."""
        accepted = ending.finish_accepted(opened.results)
        spent = self.budgets.spent(opened.step)
        put_off = accepted and not spent and self.line.control.now.waiting.count > 0
        if put_off or not (accepted or spent):
            return False
        calls = len(opened.sample.calls)
        if ending.may_score(opened.results[calls:]) and self.unscored.wants_score(
            opened.results, self.budgets
        ):
            call = Call(id=f"{opened.step}.{len(opened.results)}", name=EVALUATION, arguments={})
            await self.actor.one(opened.step, call, len(opened.results) + 1, opened.results)
        return True

    def _noted(self, opened: OpenStep, finished: bool) -> tuple[str, ...]:
        """What the loop itself has to say about a step."""
        sample, notes = opened.sample, []
        if sample.finish_reason == "interrupted":
            notes.append(INTERRUPTED)
        elif sample.malformed:
            form = self.renderer.dialect.form
            said = f"No action was taken: {sample.malformed}. Answer in this form: {form}"
            notes.append(f"[{disarm(said).text}]")
        if ending.finish_accepted(opened.results) and not finished:
            notes.append("[the end was put off: a person has something to say]")
        return tuple(notes)

    def _grow(
        self,
        opened: OpenStep,
        observation: ObservationBody,
        guidance: tuple[Delivered, ...],
    ) -> None:
        entry = self.renderer.entry(
            opened.step, opened.sample, opened.results, observation, guidance
        )
        self.context.add(entry)
        self.unscored.step(opened.results, bool(observation.files or observation.more_files))


def reopened(record: StepRecord) -> OpenStep:
    """A step that the worker before this one left open."""
    return OpenStep(record.step, record.sample, record.intents, list(record.results))
