"""A rollout's contexts as the loop had them, entry by entry: what rendered rows are made of.

The same functions as a resumed worker uses put each context together, so a row shows what a prompt
would have shown. One context is in memory at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from houston_daemon.rollout.context import Context, Entry
from houston_daemon.rollout.rendering import Renderer
from houston_daemon.rollout.resume import rebuild
from houston_daemon.training.rows import soundness
from houston_daemon.training.rows.plan import PlannedContext, PlannedStep, RolloutPlan, stopped
from houston_daemon.training.rows.reading import NOTHING
from houston_shared.errors import HoustonError
from houston_shared.records import Delivered, ForkBody, Head, SampleBody, StepRecord
from houston_shared.store import journal
from houston_shared.store.context import kept_guidance
from houston_shared.store.plan import Plan
from houston_shared.store.queries import progress, steps
from houston_shared.store.reader import Reader

PAGE = 64
"""Steps that are read at once."""
Seen = Callable[[SampleBody], SampleBody]
"""What of a sample the renderer may see: ids of another tokenizer are none of its business."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One step as it stands in a context."""

    step: PlannedStep
    record: StepRecord
    entry: Entry
    home: int
    """Number of the context that it was sampled in; of this one unless a fork kept it."""
    stopped: bool
    """Whether its ids ended with a stop token; true where that cannot be told."""
    forged: str | None
    """Why its sampled ids are a forged turn (`soundness`); empty when they are none, None where
    they are not known."""


@dataclass(frozen=True, slots=True)
class Walked:
    """One context."""

    plan: PlannedContext
    head: Head
    context: Context
    """As it stood after its last step."""
    standing: tuple[Standing, ...]
    """Its steps, in order; those that its fork kept come first."""

    @property
    def before(self) -> tuple[Entry, ...]:
        """What stands before the first step: the pair of the fork."""
        return tuple(self.context.entries[: 1 if self.plan.begun else 0])


def walk(
    reader: Reader, plan: RolloutPlan, renderer: Renderer, head: Head, seen: Seen
) -> Iterator[Walked]:
    """Every context of a rollout in which a step was sampled, in order.

    Raises HoustonError when the ledger contradicts itself.
    """
    kept: list[StepRecord] = []
    open_ended: set[int] = set()
    forged: dict[int, str | None] = {}
    reserved = soundness.of_head(plan.head)
    home = {step.number: context for context in plan.contexts for step in context.steps}
    where = {step.number: step for context in plan.contexts for step in context.steps}
    for context in plan.contexts:
        if not context.steps:
            continue
        first = context.kept_from - 1 if context.begun else 1
        kept = [one for one in kept if one.step >= first]
        last = context.steps[-1].number
        for start in range(context.steps[0].number, last + 1, PAGE):
            end = min(last, start + PAGE - 1)
            found = reader.run(steps.records(plan.rollout, start, end))
            kept += [_closed(one, seen) for one in found]
            open_ended |= {one.step for one in found if not _stopped(one.sample)}
            forged |= {one.step: soundness.sampled(reserved, one.sample) for one in found}
        fork, said = reader.run(_fork(plan.rollout, context))
        made = rebuild(renderer, head, kept, fork, said).context
        entries = made.entries[1:] if fork else made.entries
        records = kept[1:] if fork else kept
        standing = [
            Standing(
                where[record.step],
                record,
                entry,
                home[record.step].number,
                record.step not in open_ended,
                forged[record.step],
            )
            for record, entry in zip(records, entries, strict=True)
        ]
        yield Walked(context, head, made, tuple(standing))


def _closed(record: StepRecord, seen: Seen) -> StepRecord:
    if record.observation is None:
        raise HoustonError(
            f"Step {record.step} was closed and is open again: a repair changed it meanwhile.",
            NOTHING,
            "try again",
        )
    return replace(record, sample=seen(record.sample))


def _stopped(sample: SampleBody) -> bool:
    return stopped(sample.token_ids, sample.parameters.get("stop_token_ids"))


def _fork(
    rollout: str, context: PlannedContext
) -> Plan[tuple[ForkBody | None, Sequence[Delivered]]]:
    if context.begun is None:
        return None, ()
    body = yield from progress.fork_body(context.begun)
    said = yield from kept_guidance(rollout, context.begun, body)
    # Of a home from before forks named the step that they come before.
    return replace(body, before=context.begun.step), said


def summary_sample(seq: int) -> Plan[SampleBody]:
    """What the model wrote as a summary."""
    event = (yield from journal.by_seq([seq])).get(seq)
    if event is None or event.erased:
        raise HoustonError(f"The summary at event {seq} is gone.", NOTHING, "houston verify")
    return (yield from journal.record(event, SampleBody, steps.ERASED_SAMPLE))
