"""Forking a context that is too long: where it is cut, how its summary is sampled, the new context.

APOLLO, Algorithm 1 A, lines 4 to 9: of t entries, k = ⌊t/2⌋ or more are compressed, and t becomes t
− k + 1. Summary samples and the fork go into the ledger, failed tries too; after three failed tries
the summary is made without a model.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from houston_daemon.agent import context_summary_prompt
from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.role_samplers import RoleSampler, RoleSamplers
from houston_daemon.agent.rollout_budgets import EvaluationScores
from houston_daemon.agent.sample_requests import build_ledger_entry, replace_surrogates
from houston_daemon.engines.engine_protocol import ContextOverflow, SampleRequest
from houston_daemon.prompts.answer_grammar import text_schema
from houston_daemon.prompts.context_ledger import Context, ContextEntry, PromptAnchor, link_prompt
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.token_limits import CUT_NOTE_TOKENS, MIN_ANSWER_TOKENS, TokenLimits
from houston_shared import context_messages, wire
from houston_shared.faults import point
from houston_shared.records import DeliveredGuidance, ForkBody
from houston_shared.wire import SideSample


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """How a context will be forked."""

    compressed_entries: int
    """Entries that the summary replaces."""
    first_kept_step: int


def least_k(t: int, forked: bool) -> int:
    """⌊t/2⌋, but at least so many that something new is compressed."""
    return max(t // 2, 2 if forked else 1)


def choose_k(
    sizes: Sequence[int],
    kept_sizes: Sequence[int],
    *,
    forked: bool,
    fixed: int,
    limit: int,
) -> int:
    """How many entries to compress; 0 when there is nothing to compress.

    sizes: tokens of each entry. kept_sizes: by k, the tokens that stay next to a summary of k
    entries: oₖ and guidance kept verbatim. fixed: tokens of head and summary.
    limit: tokens that the new context may have.
    The result is the smallest k from ⌊t/2⌋ up whose context fits; all entries when none fits.
    """
    t = len(sizes)
    if t < least_k(t, forked):
        return 0
    for k in range(least_k(t, forked), t + 1):
        if fixed + kept_sizes[k - 1] + sum(sizes[k:]) <= limit:
            return k
    return t


def plan_fork(
    context: Context, renderer: PromptRenderer, limits: TokenLimits, max_tokens: int | None = None
) -> ForkPlan | None:
    """Where to cut `context`; None when nothing can be compressed.

    max_tokens: tokens that the new context may have; None for what the limits say.
    """
    entries, count = context.entries, renderer.measure.count
    kept_sizes = [
        count(entries[k - 1].observed())
        + min(limits.guidance, sum(count(message.text) + 12 for message in context.guidance_of(k)))
        for k in range(1, len(entries) + 1)
    ]
    # A summary seldom takes all it may; what it takes beyond this is within the answer's room.
    fixed = context.head_size + limits.summary // 2
    limit = limits.fork_threshold(context.head_size) if max_tokens is None else max_tokens
    sizes = [entry.size for entry in entries]
    k = choose_k(sizes, kept_sizes, forked=context.begins_with_summary, fixed=fixed, limit=limit)
    return ForkPlan(k, entries[k - 1].step + 1) if k else None


def _guidance_before_last(context: Context, k: int) -> list[DeliveredGuidance]:
    """Guidance of the first k entries but for what stands in oₖ itself."""
    own = {message.id for message in context.entries[k - 1].guidance}
    return [message for message in context.guidance_of(k) if message.id not in own]


def forked_context(context: Context, k: int, pair: ContextEntry, anchor_seq: int | None) -> Context:
    """The new context: head, (S₁:ₖ, oₖ), τₖ₊₁:ₜ.

    anchor_seq: the summary's sample; with it the first prompt keeps the head's ids.
    """
    shared = (context.head_ids or ()) if anchor_seq is not None else ()
    forked = Context(
        context.head, context.head_ids, context.head_size, PromptAnchor(anchor_seq, shared)
    )
    forked.add(pair)
    for entry in context.entries[k:]:
        forked.add(entry)
    return forked


def compressed_guidance(
    context: Context, k: int
) -> tuple[tuple[str, ...], list[DeliveredGuidance]]:
    """Ids of all guidance in the compressed part, and the messages of it to repeat next to oₖ.

    Guidance of earlier forks comes first.
    """
    return tuple(message.id for message in context.guidance_of(k)), _guidance_before_last(
        context, k
    )


log = logging.getLogger(__name__)
MAX_RESERVED_ANSWER_TOKENS = 256
"""So much of the answer's room, guidance beside a summary leaves free."""


class ContextForker:
    """Makes forks for one rollout."""

    def __init__(
        self,
        line: RecorderClient,
        renderer: PromptRenderer,
        limits: TokenLimits,
        roles: RoleSamplers,
        task: str,
    ) -> None:
        self._line = line
        self._renderer = renderer
        self._limits = limits
        self._roles = roles
        self._task = task

    async def fork(
        self,
        context: Context,
        cut: ForkPlan,
        step: int,
        tries: Sequence[SideSample],
        scores: EvaluationScores,
    ) -> Context:
        """The new context before `step`; it is stored when this returns.

        tries: tries at this summary that are in the journal already (after a restart).
        """
        first = context.entries[0].step if not context.begins_with_summary else 1
        last = cut.first_kept_step - 1
        text, seq = await self._sample_summary(context, cut, step, tries, first, last)
        if not text:
            part = context.entries[: cut.compressed_entries]
            size = self._limits.summary
            text = context_summary_prompt.mechanical_summary(self._task, part, scores, first, size)
            text = self._renderer.measure.cut(text, size)
        text, shortened = self._fit_summary(context, cut.compressed_entries, text)
        ids, earlier = compressed_guidance(context, cut.compressed_entries)
        body = ForkBody(
            k=cut.compressed_entries,
            first_kept_step=cut.first_kept_step,
            summary=text,
            guidance=ids,
            shortened=dict(shortened),
            mechanical=seq is None,
            sample_seq=seq,
            before=step,
        )
        point("worker.fork.before")
        await self._line.store(wire.StoreFork, step=step, fork=body)
        point("worker.fork.after")
        pair = self._renderer.fork_pair(
            context.entries[cut.compressed_entries - 1], text, earlier, shortened
        )
        anchor = None if self._roles.has_own_engine("summary") else seq
        return forked_context(context, cut.compressed_entries, pair, anchor)

    def _fit_summary(self, context: Context, k: int, text: str) -> tuple[str, Mapping[str, int]]:
        """The summary, and how much is shown of what people said: both fit beside an answer.

        Guidance gives way to head, summary and oₖ; the summary only to head and oₖ.
        """
        limits, measure = self._limits, self._renderer.measure
        rest = sum(entry.size for entry in context.entries[k:])
        bare = replace(context.entries[k - 1], guidance=())
        pair = self._renderer.fork_pair(bare, text, ()).size
        answer = min(limits.answer, MAX_RESERVED_ANSWER_TOKENS) + CUT_NOTE_TOKENS
        room = limits.answer_room(context.head_size + rest + pair + answer, limits.guidance)
        if room < 0:
            text = measure.cut(
                text, max(CUT_NOTE_TOKENS, measure.count(text) + room - CUT_NOTE_TOKENS)
            )
        return text, context_messages.fit_guidance(
            context.guidance_of(k), max(0, room), measure.count
        )

    async def _sample_summary(
        self,
        context: Context,
        cut: ForkPlan,
        step: int,
        tries: Sequence[SideSample],
        first: int,
        last: int,
    ) -> tuple[str, int | None]:
        """A usable summary and its sequence; nothing after three failed tries."""
        for attempt in tries:
            if text := context_summary_prompt.parse_summary(attempt.sample.thought, first, last):
                return text, attempt.seq
        role = await self._roles.get("summary")
        role_context = role.render_context(context)
        for number in range(len(tries) + 1, context_summary_prompt.MAX_SUMMARY_TRIES + 1):
            request = self._request(role, role_context, cut, step)
            if request.max_tokens < MIN_ANSWER_TOKENS:
                break
            try:
                answer, seq = await self._sample_summary_once(
                    role, role_context, cut, request, step, number
                )
            except ContextOverflow as problem:
                log.warning("the summary is made without the model: %s", problem)
                break
            if text := context_summary_prompt.parse_summary(answer, first, last):
                return text, seq
        return "", None

    async def _sample_summary_once(
        self,
        role: RoleSampler,
        context: Context,
        cut: ForkPlan,
        request: SampleRequest,
        step: int,
        number: int,
    ) -> tuple[str, int]:
        point("worker.summary.before")
        sampled = await role.sampler.sample(request, interruptible=False)
        ids = request.prompt_ids
        # It leaves out what stays as it is, or another model reads all of it for the first time.
        fresh = cut.compressed_entries < len(context.entries) or role.own_head is not None
        link = link_prompt(context.anchor, ids, fresh=fresh, stripped=context.last_is_stripped)
        text = replace_surrogates(sampled.text or sampled.thought or "")
        entry = build_ledger_entry(
            request,
            sampled,
            link,
            role.sampler.engine.name,
            thought=text,
            tokenizer=role.tokenizer,
        )
        ack = await self._line.store(
            wire.StoreSample, step=step, attempt=1, part=f"summary.{number}", sample=entry
        )
        point("worker.summary.after")
        return text, ack.seq

    def _request(
        self, role: RoleSampler, context: Context, cut: ForkPlan, step: int
    ) -> SampleRequest:
        """Asks for S₁:ₖ = φ(τ₁:ₖ): the first k entries, and the request after oₖ."""
        before, newest = (
            context.entries[: cut.compressed_entries - 1],
            context.entries[cut.compressed_entries - 1],
        )
        new_ids, new_messages = role.renderer.asking(newest, context_summary_prompt.SUMMARY_REQUEST)
        ids: tuple[int, ...] | None = None
        messages = [*context.head]
        size = (
            context.head_size
            + newest.size
            + role.renderer.measure.count(context_summary_prompt.SUMMARY_REQUEST)
        )
        for entry in before:
            messages += entry.messages
            size += entry.size
        if context.head_ids is not None:
            ids = (*context.head_ids, *(i for e in before for i in e.ids), *new_ids)
            size = len(ids)
        summary_tokens = self._limits.summary
        return role.request_builder.request(
            ids,
            (*messages, *new_messages),
            step=step,
            max_tokens=role.room(size, summary_tokens),
            role="summary",
            grammar=text_schema(tuple(context_summary_prompt.SUMMARY_SECTIONS), summary_tokens),
        )
