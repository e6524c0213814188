"""Reads what decides the rows of one rollout: steps, forks, verdicts, and who trains what.

It is one short read. It refuses rollouts whose rows cannot be exact: with erased texts or ids, or
steps that a repair set aside. `row_weights` decides what steps weigh.
"""

from collections.abc import Callable, Sequence

from houston_daemon.training.rows.row_weights import PlannedContext, PlannedStep, RolloutPlan
from houston_daemon.training.rows.rule_verdicts import RuleVerdicts
from houston_daemon.training.rows.shared_steps import AnswerKey, SharedSteps, owner_of
from houston_daemon.training.rows.training_row import provenance_of
from houston_shared.errors import HoustonError
from houston_shared.records import ContextHead, RolloutSpec
from houston_shared.store import (
    annotation_queries,
    removed_data_queries,
    rollout_queries,
    step_queries,
)
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.removed_data_queries import MissingData
from houston_shared.store.rollout_queries import ForkRow, RolloutRow
from houston_shared.store.step_queries import StepRow
from houston_shared.task import parse_task_record, thought_handling

NO_ROWS_MESSAGE = "No rows were made of it."
TrainedElsewhere = Callable[[AnswerKey], str]
"""The rollout that trains an answer where that is another; empty where it is this one."""


def query_rollout_plan(
    rollout: str,
    shared: SharedSteps,
    rules: RuleVerdicts | None = None,
    attempts: bool = False,
) -> ReadPlan[RolloutPlan]:
    """The plan of a rollout's rows (a whole id). attempts: with those that do not count.

    shared: rollouts of the same export; what a branch shares is trained once among them. rules:
    what the rules say now, in place of stored verdicts. Raises HoustonError for what was erased or
    set aside.
    """
    record = yield from rollout_queries.find_rollout(rollout)
    spec = yield from rollout_queries.read_rollout_spec(record)
    stretches = yield from rollout_queries.step_ranges(record.id)
    yield from _refuse_erased(record.id)
    rows = yield from step_queries.list_step_rows(record.id, attempts=attempts)
    closed = [row for row in rows if row.current and row.observation_seq is not None]
    _refuse_gaps(record.id, closed)

    def elsewhere(answer: AnswerKey) -> str:
        owner = owner_of(record.id, stretches, answer.step)
        return "" if owner == record.id else shared.trained_by_other(record.id, owner, answer)

    verdict_of = yield from _verdict_lookup(record.id, rules)
    forks = yield from rollout_queries.list_forks(record.id)
    role = parse_task_record(spec.task).step_role
    others: dict[int, list[StepRow]] = {}
    for row in rows:
        if not row.current:
            others.setdefault(row.step, []).append(row)
    steps = []
    for row in closed:
        verdict = verdict_of(row)
        attempts_at_it = tuple(
            PlannedStep(other, _verdict_on_other(verdict, row, other), "", role=role)
            for other in others.get(row.step, ())
        )
        trained_in = elsewhere(AnswerKey(role, row.step))
        steps.append(PlannedStep(row, verdict, trained_in, attempts_at_it, role))
    head = yield from rollout_queries.read_rollout_head(record)
    return _make_plan(record, spec, head, tuple(_planned_contexts(forks, steps, elsewhere)))


def may_reason(spec: RolloutSpec) -> bool:
    """Whether the model of a rollout may write reasoning tokens, so that its dialect opens them."""
    task = parse_task_record(spec.task)
    return task.sampling.reasoning or bool(spec.engine_settings.get("reasoning"))


def _make_plan(
    record: RolloutRow,
    spec: RolloutSpec,
    head: ContextHead | None,
    contexts: tuple[PlannedContext, ...],
) -> RolloutPlan:
    task = parse_task_record(spec.task)
    return RolloutPlan(
        rollout=record.id,
        task=record.task,
        group=record.group_id,
        domain=task.domain,
        engine=record.engine,
        provenance=provenance_of(record.sandbox),
        thoughts=thought_handling(spec),
        reasoning=may_reason(spec),
        head=head,
        contexts=contexts,
        step_role=task.step_role,
    )


def _planned_contexts(
    forks: Sequence[ForkRow], steps: Sequence[PlannedStep], elsewhere: TrainedElsewhere
) -> list[PlannedContext]:
    begins: list[ForkRow | None] = [None, *forks]
    ends: list[ForkRow | None] = [*forks, None]
    contexts = []
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        sampled = tuple(
            step
            for step in steps
            if (begin is None or step.number >= begin.step)
            and (end is None or step.number < end.step)
        )
        summary = elsewhere(AnswerKey("summary", end.step)) if end else ""
        contexts.append(PlannedContext(number, begin, end, sampled, summary))
    return contexts


def _verdict_lookup(
    rollout: str, rules: RuleVerdicts | None
) -> ReadPlan[Callable[[StepRow], SourceVerdict | None]]:
    """The verdict that counts for a step, of its current attempt."""
    by_step = yield from annotation_queries.read_verdicts_with_reasons(rollout)

    def verdict_of(row: StepRow) -> SourceVerdict | None:
        stored = by_step.get(row.step, ())
        if rules is not None:
            return next(iter(rules.counted_verdicts(row, stored)), None)
        return next((verdict for verdict in stored if verdict.attempt == row.attempt), None)

    return verdict_of


def _verdict_on_other(
    verdict: SourceVerdict | None, counting: StepRow, other: StepRow
) -> SourceVerdict | None:
    """What the verdict on a step says of an attempt that does not count: all of it of the
    correction that was taken over, and a mask by a person or a judge of every attempt."""
    if verdict is None or other.attempt == counting.attempt - 1:
        return verdict
    return verdict if verdict.verdict == "mask" and verdict.source != "rule" else None


def _refuse_gaps(rollout: str, steps: Sequence[StepRow]) -> None:
    """Refuse a rollout that lacks a step: what followed was sampled with it in view."""
    if lost := _find_gap(rollout, steps):
        raise HoustonError(lost.cause, NO_ROWS_MESSAGE, lost.command)


def _find_gap(rollout: str, steps: Sequence[StepRow]) -> MissingData | None:
    for number, row in enumerate(steps, 1):
        if row.step != number:
            cause = f"Step {number} of rollout {rollout} is missing: a repair set it aside."
            return MissingData(cause, f"houston rollout show {rollout}")
    return None


def _refuse_erased(rollout: str) -> ReadPlan[None]:
    """Refuse a rollout with erased texts: their ids became zeros."""
    if lost := (yield from removed_data_queries.find_missing_data(rollout)):
        raise HoustonError(lost.cause, NO_ROWS_MESSAGE, lost.command or f"Leave {rollout} out.")


def find_lost_data(rollout: str) -> ReadPlan[MissingData | None]:
    """Why no rows can be made of an ended rollout (a whole id): what of it is gone; None where they
    can."""
    if lost := (yield from removed_data_queries.find_missing_data(rollout)):
        return lost
    rows = yield from step_queries.list_step_rows(rollout)
    return _find_gap(rollout, [row for row in rows if row.observation_seq is not None])
