"""Reads what rows of one rollout are planned by: steps, forks, verdicts, and who trains what.

One short read. It refuses what cannot be exact: texts or ids that were erased or set aside.
"""

from collections.abc import Callable, Sequence

from houston_daemon.training.rows.beside import Answered, Beside, whose
from houston_daemon.training.rows.plan import PlannedContext, PlannedStep, RolloutPlan
from houston_daemon.training.rows.ruled import RuleVerdicts
from houston_shared.errors import HoustonError
from houston_shared.records import Head, RolloutSpec
from houston_shared.store.plan import Plan
from houston_shared.store.queries import erased, lineage, progress, rollouts, steps, verdicts
from houston_shared.store.queries.progress import Fork
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.steps import StepRow
from houston_shared.store.queries.verdicts import Given
from houston_shared.task import parse_task

NOTHING = "No rows were made of it."
Elsewhere = Callable[[Answered], str]
"""The rollout that trains an answer where that is another; empty where it is this one."""


def plan(rollout: str, beside: Beside, rules: RuleVerdicts | None = None) -> Plan[RolloutPlan]:
    """What the rows of a rollout (a whole id) are.

    beside: rollouts of the same export; what a branch shares is trained once among them. rules:
    what rules say of it in place of what was stored. Raises HoustonError for what was erased or set
    aside.
    """
    one = yield from rollouts.rollout(rollout)
    spec = yield from rollouts.spec(one)
    stretches = yield from lineage.stretches(one.id)
    yield from _nothing_erased(one.id)
    found = [row for row in (yield from steps.rows(one.id)) if row.observation_seq is not None]
    _no_gap(one.id, found)

    def elsewhere(answer: Answered) -> str:
        owner = whose(one.id, stretches, answer.step)
        return "" if owner == one.id else beside.elsewhere(one.id, owner, answer)

    given = yield from _given(one.id, rules)
    forks = yield from progress.forks(one.id)
    made = [PlannedStep(row, given(row), elsewhere(Answered("policy", row.step))) for row in found]
    head = yield from rollouts.head(one)
    return _whole(one, spec, head, tuple(_contexts(forks, made, elsewhere)))


def _whole(
    one: Rollout, spec: RolloutSpec, head: Head | None, contexts: tuple[PlannedContext, ...]
) -> RolloutPlan:
    task = parse_task(spec.task)
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


def _contexts(
    forks: Sequence[Fork], made: Sequence[PlannedStep], elsewhere: Elsewhere
) -> list[PlannedContext]:
    begun: list[Fork | None] = [None, *forks]
    ended: list[Fork | None] = [*forks, None]
    contexts = []
    for number, (begin, end) in enumerate(zip(begun, ended, strict=True)):
        mine = tuple(
            step
            for step in made
            if (begin is None or step.number >= begin.step)
            and (end is None or step.number < end.step)
        )
        summary = elsewhere(Answered("summary", end.step)) if end else ""
        contexts.append(PlannedContext(number, begin, end, mine, summary))
    return contexts


def _given(rollout: str, rules: RuleVerdicts | None) -> Plan[Callable[[StepRow], Given | None]]:
    """The verdict that counts for a step, of its current attempt."""
    standing = yield from verdicts.standing(rollout)

    def of(row: StepRow) -> Given | None:
        stored = standing.get(row.step, ())
        mine = [one for one in stored if one.attempt == row.attempt]
        if rules is not None:
            mine = rules.given(row, stored)
        return mine[0] if mine else None

    return of


def _no_gap(rollout: str, found: Sequence[StepRow]) -> None:
    """Refuse a rollout that lacks a step: what followed was sampled with it in view."""
    for number, row in enumerate(found, 1):
        if row.step != number:
            raise HoustonError(
                f"Step {number} of rollout {rollout} is not there: a repair set it aside.",
                NOTHING,
                f"houston rollout show {rollout}",
            )


def _nothing_erased(rollout: str) -> Plan[None]:
    """Refuse a rollout with erased texts: their ids became zeros."""
    if lost := (yield from erased.gone(rollout)):
        raise HoustonError(lost.cause, NOTHING, lost.read or f"Leave {rollout} out.")
