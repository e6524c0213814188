"""Rebuilding a rollout's context from the journal after a restart, with its open step.

The ledger is the truth: where it has the ids of a prompt, they are used and never rendered again,
so that an upgrade of a dialect cannot change a running rollout. This module reads records only;
`rollout_setup` asks the recorder for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from houston_daemon.prompts.context_ledger import Context, ContextEntry, PromptAnchor
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_shared.errors import HoustonError
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    SampleBody,
    StepRecord,
)


@dataclass(frozen=True, slots=True)
class ResumedContext:
    """How far a rollout had come."""

    context: Context
    open: StepRecord | None
    """The step that was sampled and not closed."""
    last: StepRecord | None
    """The newest closed step of the current context."""
    closed: tuple[StepRecord, ...]
    """Closed steps of the current context, that of oₖ first."""


def rebuild_context(
    renderer: PromptRenderer,
    head: ContextHead,
    records: Sequence[StepRecord],
    fork: ForkBody | None,
    fork_guidance: Sequence[DeliveredGuidance],
) -> ResumedContext:
    """The context as it was, from the records since its first step (with a fork, from step k).

    Raises HoustonError when the ledger contradicts itself.
    """
    closed = tuple(record for record in records if record.observation is not None)
    still_open = next((record for record in records if record.observation is None), None)
    context = _start_context(renderer, head, fork)
    begun = fork.before if fork else 1
    for index, record in enumerate(closed):
        after = records[index + 1] if index + 1 < len(records) else None
        if index == 0 and fork is not None:
            context.add(_render_fork_pair(renderer, record, fork, fork_guidance))
        else:
            entry = _render_entry(renderer, record)
            context.add(with_ledger_ids(entry, record.sample, after.sample if after else None))
        if record.step + 1 == begun and after is not None:
            context = _match_ledger_prompt(context, after)
    if closed and closed[-1].step >= begun:
        _anchor_last_sample(context, closed[-1])
    return ResumedContext(context, still_open, closed[-1] if closed else None, closed)


def _start_context(renderer: PromptRenderer, head: ContextHead, fork: ForkBody | None) -> Context:
    anchor = PromptAnchor()
    if fork is not None and fork.sample_seq is not None:
        anchor = PromptAnchor(fork.sample_seq, head.token_ids or ())
    return Context(head_messages(head), head.token_ids, renderer.head_size(head), anchor)


def _render_entry(renderer: PromptRenderer, record: StepRecord) -> ContextEntry:
    assert record.observation is not None
    return renderer.render_step(
        record.step, record.sample, record.results, record.observation, record.guidance
    )


def _render_fork_pair(
    renderer: PromptRenderer,
    record: StepRecord,
    fork: ForkBody,
    guidance: Sequence[DeliveredGuidance],
) -> ContextEntry:
    own = {message.id for message in record.guidance}
    earlier = [message for message in guidance if message.id not in own]
    return renderer.fork_pair(
        _render_entry(renderer, record), fork.summary, earlier, fork.shortened
    )


def with_ledger_ids(entry: ContextEntry, own: SampleBody, after: SampleBody | None) -> ContextEntry:
    """`entry` with the ids from the next sample's prompt, if that prompt extends this one."""
    if after is None or after.new_prompt_ids is None or after.drift == "forked":
        return entry
    length = own.kept + len(own.new_prompt_ids or ())
    kept_count = after.kept - length
    if kept_count < 0:
        raise HoustonError(
            "The ledger contradicts itself: the sample after that of step "
            f"{entry.step} keeps less than its prompt.",
            "The rollout was not resumed.",
            "houston verify",
        )
    ids = ((own.token_ids or ())[:kept_count]) + after.new_prompt_ids
    return replace_entry_ids(entry, ids)


def _match_ledger_prompt(context: Context, first: StepRecord) -> Context:
    """A forked context whose ids are those of its first prompt, as the ledger has it.

    Where rendering has changed since, the difference goes into the pair of the fork.
    """
    new_ids, head = first.sample.new_prompt_ids, context.head_ids
    if new_ids is None or head is None or first.sample.drift != "forked":
        return context
    prompt = (*head[: first.sample.kept], *new_ids)
    if prompt == context.prompt_ids:
        return context
    rest = sum(len(entry.ids) for entry in context.entries[1:])
    pair = replace_entry_ids(context.entries[0], prompt[len(head) : len(prompt) - rest])
    matched = Context(context.head, head, context.head_size, context.anchor)
    matched.add(pair)
    ids_left = prompt[len(prompt) - rest :]
    for entry in context.entries[1:]:
        matched.add(replace_entry_ids(entry, ids_left[: len(entry.ids)]))
        ids_left = ids_left[len(entry.ids) :]
    return matched


def _anchor_last_sample(context: Context, record: StepRecord) -> None:
    """The sample of a step of this context is what the next prompt is measured against."""
    sampled = record.sample.token_ids
    ids = context.prompt_ids
    if ids is None:
        context.anchor_sample(record.sample_seq, None, None)
        return
    length = record.sample.kept + len(record.sample.new_prompt_ids or ())
    context.anchor_sample(record.sample_seq, ids[:length], sampled)


def replace_entry_ids(entry: ContextEntry, ids: tuple[int, ...]) -> ContextEntry:
    """`entry` with other ids."""
    return entry if ids == entry.ids else replace(entry, ids=ids, size=len(ids))
