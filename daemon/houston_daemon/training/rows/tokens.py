"""Rows whose ids are the ledger's: what was sent, and what was sampled, and nothing else.

The rollout is walked once, in the order in which it was sampled: a sample whose prompt goes on
exactly where the one before ended belongs to the same row, one whose prompt does not begins
another. Nothing is rendered and nothing is tokenised.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from houston_daemon.training.rows import soundness
from houston_daemon.training.rows.plan import (
    Answer,
    PlannedContext,
    PlannedStep,
    RolloutPlan,
    null,
    stopped,
    weigh,
    weigh_summary,
)
from houston_daemon.training.rows.reading import NOTHING
from houston_daemon.training.rows.row import Row, RowOptions, check_role
from houston_daemon.training.rows.soundness import Reserved
from houston_daemon.training.rows.strand import Sampled, Strand
from houston_shared import logprob_kind
from houston_shared.errors import HoustonError
from houston_shared.records import LogprobKind, SampleRole
from houston_shared.store import journal, ledger
from houston_shared.store.plan import Plan
from houston_shared.store.reader import Reader

PAGE = 64
"""Samples that are read at once."""


class CallBody(msgspec.Struct, frozen=True):
    """What a call has for rows."""

    error: str = ""


class Body(msgspec.Struct, frozen=True):
    """What a sample's body has for rows; decoding passes over its texts."""

    parent_seq: int | None
    kept: int
    new_prompt_ids: list[int] | None
    token_ids: list[int] | None
    logprobs: list[float] | None
    logprob_kind: LogprobKind
    finish_reason: str
    policy: str
    parameters: dict[str, msgspec.Raw]
    malformed: str = ""
    calls: tuple[CallBody, ...] = ()
    prompt_tokens: int | None = None
    policy_hash: str = ""
    role: str = ""

    def answer(self, reserved: Reserved | None) -> Answer:
        """What of it decides its weight. reserved: tokens that it may not hold."""
        ids = self.token_ids or ()
        unfit = reserved.forged(ids, self.finish_reason) if reserved else ""
        why = null(self.malformed, [call.error for call in self.calls])
        return Answer(self.finish_reason, why, stopped=self._stopped, unfit=unfit)

    @property
    def _named(self) -> dict[str, Any]:
        """Parameters of which rows know the meaning; lists of ids among the others are long."""
        known = {one: raw for one, raw in self.parameters.items() if one in logprob_kind.UNBENT}
        return {one: msgspec.msgpack.decode(raw) for one, raw in known.items()}

    @property
    def _stopped(self) -> bool:
        raw = self.parameters.get("stop_token_ids")
        return stopped(self.token_ids, msgspec.msgpack.decode(raw, type=list[int]) if raw else [])

    def sampled(self, seq: int, step: int, attempt: int, role: SampleRole) -> Sampled:
        """What was sampled, for a row; nothing where the engine lost its ids."""
        check_role(self.role, role, step)
        sampling = logprob_kind.of_sampling(self._named)
        return Sampled(
            ids=array("i", self.token_ids or ()),
            logprobs=None if self.logprobs is None else array("f", self.logprobs),
            step=step,
            attempt=attempt,
            role=role,
            seq=seq,
            policy=self.policy,
            policy_hash=self.policy_hash,
            logprob_kind=logprob_kind.true_kind(self.logprob_kind, sampling),
            sampling=sampling,
            guided="grammar" in self.parameters,
        )


def rows(reader: Reader, plan: RolloutPlan, options: RowOptions) -> Iterator[Row]:
    """Rows of a rollout in its order: each context, then the summary that replaced it.

    Contexts of a branch that other rollouts train whole are passed over. Raises HoustonError when
    the ledger is broken or something of it was erased.
    """
    strand = Strand(plan, options)
    for context in plan.contexts:
        yield from _context(reader, plan, context, options, strand)
        yield from summary(reader, plan, context, options, strand)


def summary(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    options: RowOptions,
    strand: Strand | None = None,
) -> Iterator[Row]:
    """The row of the summary that replaced `context`, where the model wrote it and it is wanted.

    strand: the context as it stood then; without it the answers in the prompt are not marked.
    """
    fork, seq = context.ended, context.summary_seq
    if fork is None or seq is None or not options.summaries:
        return
    body = reader.run(_bodies([seq])).get(seq)
    if body is None:
        raise _broken(seq)
    asked = strand.branch() if strand else Strand(plan, options)
    asked.open(plan.named_summary(context.number + 1), context.number)
    _follow(reader, asked, seq, body, None)
    said = body.sampled(seq, fork.step, 1, "summary")
    weight = weigh_summary(body.answer(soundness.of_head(plan.head)), options)
    asked.sampled(said, weight)
    yield from asked.rows("summary")


def _context(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    options: RowOptions,
    strand: Strand,
) -> Iterator[Row]:
    part, reserved = 0, soundness.of_head(plan.head)
    strand.open(plan.named(context.number), context.number)
    for step, body in _paged(reader, context.steps):
        seq = step.row.sample_seq
        if strand.grown and not strand.goes_on(body.parent_seq, body.kept):
            yield from strand.rows("react")
            part += 1
            strand.open(plan.named(context.number, part), context.number, part)
        _follow(reader, strand, seq, body, context.kept_from)
        said = body.sampled(seq, step.number, step.row.attempt, "policy")
        weight = weigh(step, body.answer(reserved), options)
        strand.sampled(said, weight, own=not step.elsewhere)
    yield from strand.rows("react")


def _follow(reader: Reader, strand: Strand, seq: int, body: Body, kept_from: int | None) -> None:
    """Bring the strand to the prompt of a sample. kept_from: as `Strand.begin` wants it."""
    if body.new_prompt_ids is None:
        raise _broken(seq)
    if body.parent_seq == strand.seq:
        if body.kept > len(strand.ids):
            raise _broken(seq)
        strand.go_on(body.kept, body.new_prompt_ids)
    else:
        strand.begin(_prompt(reader, seq), kept_from)
    if body.prompt_tokens not in (None, len(strand.ids)):
        raise _broken(seq)


def _prompt(reader: Reader, seq: int) -> list[int]:
    try:
        found = reader.run(ledger.prompt_ids(seq))
    except ledger.Erased:
        raise _erased(seq) from None
    if found is None:
        raise _broken(seq)
    return found


def _paged(reader: Reader, steps: Sequence[PlannedStep]) -> Iterator[tuple[PlannedStep, Body]]:
    for start in range(0, len(steps), PAGE):
        page = steps[start : start + PAGE]
        bodies = reader.run(_bodies([step.row.sample_seq for step in page]))
        for step in page:
            body = bodies.get(step.row.sample_seq)
            if body is None:
                raise _broken(step.row.sample_seq)
            yield step, body


def _bodies(seqs: Sequence[int]) -> Plan[dict[int, Body]]:
    found: dict[int, Body] = {}
    for seq, event in (yield from journal.by_seq(seqs)).items():
        raw = None if event.erased else (yield from journal.body(event))
        if raw is None:
            raise _erased(seq)
        try:
            found[seq] = msgspec.msgpack.decode(raw, type=Body)
        except msgspec.MsgspecError:
            raise _broken(seq) from None
    return found


def _erased(seq: int) -> HoustonError:
    return HoustonError(
        f"Token ids of event {seq} were erased from the journal.", NOTHING, "Leave its rollout out."
    )


def _broken(seq: int) -> HoustonError:
    return HoustonError(
        f"The ledger is broken at event {seq}: its prompt cannot be told.",
        NOTHING,
        "houston verify",
    )
