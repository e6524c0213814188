"""Rebuilding a rollout from what was acked: the context byte by byte, and the step that is open.

The ledger is the truth: where it tells the ids of a prompt, they are taken from it and never
rendered again, so that an upgrade of a dialect cannot change a running rollout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from houston_daemon.rollout.context import Context, Entry
from houston_daemon.rollout.ledger import Anchor
from houston_daemon.rollout.rendering import Renderer, head_messages
from houston_shared.errors import HoustonError
from houston_shared.records import Delivered, ForkBody, Head, StepRecord


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a rollout stands."""

    context: Context
    open: StepRecord | None
    """The step that was sampled and not closed."""
    last: StepRecord | None
    """The newest closed step of the current context."""
    closed: tuple[StepRecord, ...]
    """Closed steps of the current context, that of oₖ first."""


def rebuild(
    renderer: Renderer,
    head: Head,
    records: Sequence[StepRecord],
    fork: ForkBody | None,
    fork_guidance: Sequence[Delivered],
) -> Resumed:
    """The context as it was, from the records since its first step (with a fork, from step k).

    Raises HoustonError when the ledger contradicts itself.
    """
    closed = tuple(record for record in records if record.observation is not None)
    still_open = next((record for record in records if record.observation is None), None)
    context = _start(renderer, head, fork)
    begun = fork.before if fork else 1
    for index, record in enumerate(closed):
        after = records[index + 1] if index + 1 < len(records) else None
        if index == 0 and fork is not None:
            context.add(_pair(renderer, record, fork, fork_guidance))
        else:
            entry = _entry(renderer, record)
            context.add(_told(entry, record, after))
        if record.step + 1 == begun and after is not None:
            context = _agree(context, after)
    if closed and closed[-1].step >= begun:
        _anchor(context, closed[-1])
    return Resumed(context, still_open, closed[-1] if closed else None, closed)


def _start(renderer: Renderer, head: Head, fork: ForkBody | None) -> Context:
    anchor = Anchor()
    if fork is not None and fork.sample_seq is not None:
        anchor = Anchor(fork.sample_seq, head.token_ids or ())
    return Context(head_messages(head), head.token_ids, renderer.head_size(head), anchor)


def _entry(renderer: Renderer, record: StepRecord) -> Entry:
    assert record.observation is not None
    return renderer.entry(
        record.step, record.sample, record.results, record.observation, record.guidance
    )


def _pair(
    renderer: Renderer, record: StepRecord, fork: ForkBody, guidance: Sequence[Delivered]
) -> Entry:
    own = {one.id for one in record.guidance}
    earlier = [one for one in guidance if one.id not in own]
    return renderer.pair(_entry(renderer, record), fork.summary, earlier, fork.shortened)


def _told(entry: Entry, record: StepRecord, after: StepRecord | None) -> Entry:
    """`entry` with the ids that the next sample's prompt tells, where it extends this one."""
    if after is None or after.sample.new_prompt_ids is None or after.sample.drift == "forked":
        return entry
    own = record.sample
    length = own.kept + len(own.new_prompt_ids or ())
    kept = after.sample.kept - length
    if kept < 0:
        raise HoustonError(
            f"The ledger contradicts itself: step {after.step} keeps less than the prompt of "
            f"step {record.step}.",
            "The rollout was not resumed.",
            "houston verify",
        )
    ids = ((own.token_ids or ())[:kept]) + after.sample.new_prompt_ids
    return with_ids(entry, ids)


def _agree(context: Context, first: StepRecord) -> Context:
    """A forked context whose ids are those of its first prompt, as the ledger has it.

    Where rendering has changed since, the difference goes into the pair of the fork.
    """
    told, head = first.sample.new_prompt_ids, context.head_ids
    if told is None or head is None or first.sample.drift != "forked":
        return context
    prompt = (*head[: first.sample.kept], *told)
    if prompt == context.prompt_ids:
        return context
    rest = sum(len(entry.ids) for entry in context.entries[1:])
    pair = with_ids(context.entries[0], prompt[len(head) : len(prompt) - rest])
    made = Context(context.head, head, context.head_size, context.anchor)
    made.add(pair)
    left = prompt[len(prompt) - rest :]
    for entry in context.entries[1:]:
        made.add(with_ids(entry, left[: len(entry.ids)]))
        left = left[len(entry.ids) :]
    return made


def _anchor(context: Context, record: StepRecord) -> None:
    """The sample of a step of this context is what the next prompt is measured against."""
    sampled = record.sample.token_ids
    ids = context.prompt_ids
    if ids is None:
        context.sampled(record.sample_seq, None, None)
        return
    length = record.sample.kept + len(record.sample.new_prompt_ids or ())
    context.sampled(record.sample_seq, ids[:length], sampled)


def with_ids(entry: Entry, ids: tuple[int, ...]) -> Entry:
    """`entry` with other ids."""
    return entry if ids == entry.ids else replace(entry, ids=ids, size=len(ids))
