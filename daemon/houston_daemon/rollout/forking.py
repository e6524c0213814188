"""Forking a context: the summary's samples and the fork go into the ledger, then the new context.

It carries out what `fork` plans and `summary` reads. A try that fails is kept in the ledger too.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from houston_daemon.dialects.grammar import text_schema
from houston_daemon.engines.protocol import ContextOverflow, SampleRequest
from houston_daemon.rollout import summary
from houston_daemon.rollout.budgets import Scores
from houston_daemon.rollout.context import Context
from houston_daemon.rollout.cutting import NOTE_TOKENS
from houston_daemon.rollout.fork import Cut, compressed_guidance, forked
from houston_daemon.rollout.ledger import link
from houston_daemon.rollout.limits import LEAST_ANSWER, Limits
from houston_daemon.rollout.policy import Asking, whole
from houston_daemon.rollout.rendering import Renderer
from houston_daemon.rollout.sampling import Sampler, ledger_entry
from houston_shared import shortening, wire
from houston_shared.faults import point
from houston_shared.records import ForkBody
from houston_shared.wire import SummaryTry

log = logging.getLogger(__name__)
LARGE_ANSWER = 256
"""So much of the answer's room, guidance beside a summary leaves free."""


class Forker:
    """Makes forks for one rollout."""

    def __init__(
        self, sampler: Sampler, renderer: Renderer, limits: Limits, asking: Asking, task: str
    ) -> None:
        self._sampler = sampler
        self._renderer = renderer
        self._limits = limits
        self._asking = asking
        self._task = task

    async def fork(
        self,
        context: Context,
        cut: Cut,
        step: int,
        tries: Sequence[SummaryTry],
        scores: Scores,
    ) -> Context:
        """The new context before `step`; stored when this returns.

        tries: tries at this summary that the journal has already (after a restart).
        """
        first = context.entries[0].step if not context.forked else 1
        last = cut.first_kept_step - 1
        text, seq = await self._written(context, cut, step, tries, first, last)
        if not text:
            part = context.entries[: cut.k]
            size = self._limits.summary
            text = summary.mechanical(self._task, part, scores, first, size)
            text = self._renderer.measure.cut(text, size)
        text, shown = self._fitted(context, cut.k, text)
        ids, earlier = compressed_guidance(context, cut.k)
        body = ForkBody(
            k=cut.k,
            first_kept_step=cut.first_kept_step,
            summary=text,
            guidance=ids,
            shortened=dict(shown),
            mechanical=seq is None,
            sample_seq=seq,
            before=step,
        )
        point("worker.fork.before")
        await self._sampler.line.store(wire.StoreFork, step=step, fork=body)
        point("worker.fork.after")
        pair = self._renderer.pair(context.entries[cut.k - 1], text, earlier, shown)
        return forked(context, cut.k, pair, seq)

    def _fitted(self, context: Context, k: int, text: str) -> tuple[str, Mapping[str, int]]:
        """The summary, and how much is shown of what people said: both fit beside an answer.

        Guidance gives way to head, summary and oₖ; the summary only to head and oₖ.
        """
        limits, measure = self._limits, self._renderer.measure
        rest = sum(entry.size for entry in context.entries[k:])
        bare = replace(context.entries[k - 1], guidance=())
        pair = self._renderer.pair(bare, text, ()).size
        answer = min(limits.answer, LARGE_ANSWER) + NOTE_TOKENS
        room = limits.room(context.head_size + rest + pair + answer, limits.guidance)
        if room < 0:
            text = measure.cut(text, max(NOTE_TOKENS, measure.count(text) + room - NOTE_TOKENS))
        return text, shortening.fit(context.heard(k), max(0, room), measure.count)

    async def _written(
        self,
        context: Context,
        cut: Cut,
        step: int,
        tries: Sequence[SummaryTry],
        first: int,
        last: int,
    ) -> tuple[str, int | None]:
        """A usable summary and its sequence; nothing after three failed tries."""
        for one in tries:
            if text := summary.read(one.sample.thought, first, last):
                return text, one.seq
        for number in range(len(tries) + 1, summary.TRIES + 1):
            request = self._request(context, cut, step)
            if request.max_tokens < LEAST_ANSWER:
                break
            try:
                said, seq = await self._try(context, cut, request, step, number)
            except ContextOverflow as problem:
                log.warning("the summary is made without the model: %s", problem)
                break
            if text := summary.read(said, first, last):
                return text, seq
        return "", None

    async def _try(
        self, context: Context, cut: Cut, request: SampleRequest, step: int, number: int
    ) -> tuple[str, int]:
        point("worker.summary.before")
        sampled = await self._sampler.sample(request, interruptible=False)
        ids = request.prompt_ids
        part = cut.k < len(context.entries)  # it leaves out what stays as it is
        how = link(context.anchor, ids, fresh=part, stripped=context.stripped)
        text = whole(sampled.text or sampled.thought or "")
        entry = ledger_entry(request, sampled, how, self._sampler.engine.name, thought=text)
        ack = await self._sampler.line.store(
            wire.StoreSample, step=step, attempt=1, part=f"summary.{number}", sample=entry
        )
        point("worker.summary.after")
        return text, ack.seq

    def _request(self, context: Context, cut: Cut, step: int) -> SampleRequest:
        """Asks for S₁:ₖ = φ(τ₁:ₖ): the first k entries, and the request after oₖ."""
        before, newest = context.entries[: cut.k - 1], context.entries[cut.k - 1]
        new_ids, new_messages = self._renderer.asking(newest, summary.REQUEST)
        ids: tuple[int, ...] | None = None
        messages = [*context.head]
        size = context.head_size + newest.size + self._renderer.measure.count(summary.REQUEST)
        for entry in before:
            messages += entry.messages
            size += entry.size
        if context.head_ids is not None:
            ids = (*context.head_ids, *(i for e in before for i in e.ids), *new_ids)
            size = len(ids)
        wanted = self._limits.summary
        return self._asking.request(
            ids,
            (*messages, *new_messages),
            step=step,
            max_tokens=self._limits.room(size, wanted),
            role="summary",
            grammar=text_schema(tuple(summary.SECTIONS), wanted),
        )
