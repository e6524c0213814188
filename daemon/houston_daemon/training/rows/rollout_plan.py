"""Reads what the rows of one rollout are planned by: steps, forks, verdicts, and who trains what.

One short read. It refuses what cannot be exact: erased texts or ids, and steps that a repair set
aside. What steps weigh is decided in `row_weights`.
"""

from collections.abc import Callable, Sequence

from houston_daemon.training.rows.row_weights import PlannedContext, PlannedStep, RolloutPlan
from houston_daemon.training.rows.rule_verdicts import RuleVerdicts
from houston_daemon.training.rows.shared_steps import AnswerKey, SharedSteps, owner_of
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
from houston_shared.store.rollout_queries import ForkRow, RolloutRow
from houston_shared.store.step_queries import StepRow
from houston_shared.task import parse_task_record

NO_ROWS_MESSAGE = "No rows were made of it."
TrainedElsewhere = Callable[[AnswerKey], str]
"""The rollout that trains an answer where that is another; empty where it is this one."""


def query_rollout_plan(
    rollout: str,
    shared: SharedSteps,
    rules: RuleVerdicts | None = None,
    attempts: bool = False,
) -> ReadPlan[RolloutPlan]:
    """What the rows of a rollout (a whole id) are. attempts: with those that do not count.

    shared: rollouts of the same export; what a branch shares is trained once among them. rules:
    what rules say of it in place of what was stored. Raises HoustonError for what was erased or set
    aside.
    """
    one = yield from rollout_queries.find_rollout(rollout)
    spec = yield from rollout_queries.read_rollout_spec(one)
    stretches = yield from rollout_queries.step_ranges(one.id)
    yield from _refuse_erased(one.id)
    rows = yield from step_queries.list_step_rows(one.id, attempts=attempts)
    found = [row for row in rows if row.current and row.observation_seq is not None]
    _refuse_gaps(one.id, found)

    def elsewhere(answer: AnswerKey) -> str:
        owner = owner_of(one.id, stretches, answer.step)
        return "" if owner == one.id else shared.trained_by_other(one.id, owner, answer)

    given = yield from _verdict_lookup(one.id, rules)
    forks = yield from rollout_queries.list_forks(one.id)
    others: dict[int, list[PlannedStep]] = {}
    for row in rows:
        if not row.current:
            others.setdefault(row.step, []).append(PlannedStep(row, None, ""))
    made = [
        PlannedStep(
            row,
            given(row),
            elsewhere(AnswerKey("policy", row.step)),
            tuple(others.get(row.step, ())),
        )
        for row in found
    ]
    head = yield from rollout_queries.read_rollout_head(one)
    return _make_plan(one, spec, head, tuple(_planned_contexts(forks, made, elsewhere)))


def _make_plan(
    one: RolloutRow,
    spec: RolloutSpec,
    head: ContextHead | None,
    contexts: tuple[PlannedContext, ...],
) -> RolloutPlan:
    task = parse_task_record(spec.task)
    stripped = "strip" in (spec.thoughts, task.sampling.thoughts)
    reasoning = task.sampling.reasoning or bool(spec.engine_settings.get("reasoning"))
    return RolloutPlan(
        rollout=one.id,
        task=one.task,
        group=one.group_id,
        domain=task.domain,
        engine=one.engine,
        provenance="none" if one.sandbox == "none" else "sandbox",
        thoughts="strip" if stripped else "keep",
        reasoning=reasoning,
        head=head,
        contexts=contexts,
    )


def _planned_contexts(
    forks: Sequence[ForkRow], made: Sequence[PlannedStep], elsewhere: TrainedElsewhere
) -> list[PlannedContext]:
    begun: list[ForkRow | None] = [None, *forks]
    ended: list[ForkRow | None] = [*forks, None]
    contexts = []
    for number, (begin, end) in enumerate(zip(begun, ended, strict=True)):
        mine = tuple(
            step
            for step in made
            if (begin is None or step.number >= begin.step)
            and (end is None or step.number < end.step)
        )
        summary = elsewhere(AnswerKey("summary", end.step)) if end else ""
        contexts.append(PlannedContext(number, begin, end, mine, summary))
    return contexts


def _verdict_lookup(
    rollout: str, rules: RuleVerdicts | None
) -> ReadPlan[Callable[[StepRow], SourceVerdict | None]]:
    """The verdict that counts for a step, of its current attempt."""
    standing = yield from annotation_queries.read_verdicts_with_reasons(rollout)

    def of(row: StepRow) -> SourceVerdict | None:
        stored = standing.get(row.step, ())
        mine = [one for one in stored if one.attempt == row.attempt]
        if rules is not None:
            mine = rules.counted_verdicts(row, stored)
        return mine[0] if mine else None

    return of


def _refuse_gaps(rollout: str, found: Sequence[StepRow]) -> None:
    """Refuse a rollout that lacks a step: what followed was sampled with it in view."""
    for number, row in enumerate(found, 1):
        if row.step != number:
            raise HoustonError(
                f"Step {number} of rollout {rollout} is not there: a repair set it aside.",
                NO_ROWS_MESSAGE,
                f"houston rollout show {rollout}",
            )


def _refuse_erased(rollout: str) -> ReadPlan[None]:
    """Refuse a rollout with erased texts: their ids became zeros."""
    if lost := (yield from removed_data_queries.find_missing_data(rollout)):
        raise HoustonError(lost.cause, NO_ROWS_MESSAGE, lost.command or f"Leave {rollout} out.")
