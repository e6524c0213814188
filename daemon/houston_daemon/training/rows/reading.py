"""Reads what rows of one rollout are planned by: steps, forks, verdicts, and who trains what.

One short read. It refuses what cannot be exact: texts or ids that were erased or set aside.
"""

from collections.abc import Callable, Sequence

import msgspec

from houston_daemon.training.rows.plan import PlannedContext, PlannedStep, RolloutPlan
from houston_shared.errors import HoustonError
from houston_shared.records import Head, RolloutSpec
from houston_shared.store.bodies import Erased
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import archived, lineage, progress, rollouts, steps, verdicts
from houston_shared.store.queries.lineage import Stretch
from houston_shared.store.queries.progress import Fork
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.steps import StepRow
from houston_shared.store.queries.verdicts import Given
from houston_shared.task import parse_task

_READ = ("head", "sample", "result", "observation", "fork", "guidance", "edit")
"""Kinds of events whose texts or ids stand in rows."""
_CHUNK = 500
NOTHING = "No rows were made of it."
Elsewhere = Callable[[int], str]
"""By step, the rollout that trains it where that is another; empty where it is this one."""


def plan(rollout: str, beside: Sequence[str] = ()) -> Plan[RolloutPlan]:
    """What the rows of a rollout (a whole id) are.

    beside: rollouts of the same export, in its order; steps that a branch shares are trained once
    among them, with the rollout whose steps they are where that is one of them, else with the
    first that shares them. Raises HoustonError for what was erased or set aside.
    """
    one = yield from rollouts.rollout(rollout)
    spec = yield from rollouts.spec(one)
    stretches = yield from lineage.stretches(one.id)
    yield from _nothing_erased(one.id, stretches)
    found = [row for row in (yield from steps.rows(one.id)) if row.observation_seq is not None]
    _no_gap(one.id, found)
    elsewhere = yield from _elsewhere(one.id, stretches, beside)
    given = yield from _given(one.id)
    forks = yield from progress.forks(one.id)
    made = [PlannedStep(row, given(row), elsewhere(row.step)) for row in found]
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
        contexts.append(
            PlannedContext(number, begin, end, mine, elsewhere(end.step) if end else "")
        )
    return contexts


def _given(rollout: str) -> Plan[Callable[[StepRow], Given | None]]:
    """The verdict that counts for a step: of its current attempt, the highest source's."""
    standing = yield from verdicts.standing(rollout)

    def of(row: StepRow) -> Given | None:
        mine = [one for one in standing.get(row.step, ()) if one.attempt == row.attempt]
        return mine[0] if mine else None

    return of


def _elsewhere(rollout: str, own: Sequence[Stretch], beside: Sequence[str]) -> Plan[Elsewhere]:
    """Who trains the shared past of a branch."""
    before = beside[: beside.index(rollout)] if rollout in beside else beside
    claims: list[tuple[Stretch, list[tuple[int, str]]]] = []
    for part in own:
        if part.rollout == rollout:
            continue
        if part.rollout in beside:
            claims.append((part, [(part.last, part.rollout)]))
            continue
        sharing = []
        for other in before:
            theirs = yield from lineage.stretches(other)
            sharing += [(one.last, other) for one in theirs if one.rollout == part.rollout]
        claims.append((part, sharing))

    def of(step: int) -> str:
        for part, sharing in claims:
            if part.first <= step <= part.last:
                return next((other for last, other in sharing if step <= last), "")
        return ""

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


def _nothing_erased(rollout: str, stretches: Sequence[Stretch]) -> Plan[None]:
    """Refuse a rollout with erased texts: their ids became zeros."""
    for part in stretches:
        if said := (yield from archived.sentence(part.rollout)):
            cause, _, read = said.partition(" next: ")
            raise HoustonError(cause, NOTHING, read)
        rows = yield Ask(
            f"SELECT body FROM events WHERE rollout = ? AND {ASIDE} AND kind = 'erased'"
            " AND body IS NOT NULL",
            (part.rollout,),
        )
        seqs = [seq for (body,) in rows for seq in msgspec.msgpack.decode(body, type=Erased).seqs]
        step = yield from _first_erased(seqs, part.last)
        if step is not None:
            what = f"Step {step} of" if step else "Something of"
            raise HoustonError(
                f"{what} rollout {part.rollout} was erased from the journal.",
                NOTHING,
                f"Leave {rollout} out.",
            )


def _first_erased(seqs: Sequence[int], last: int) -> Plan[int | None]:
    """The first step up to `last` of which a text was erased; 0 for the head or guidance."""
    kinds = ",".join(f"'{kind}'" for kind in _READ)
    for start in range(0, len(seqs), _CHUNK):
        chunk = tuple(seqs[start : start + _CHUNK])
        rows = yield Ask(
            f"SELECT min(step) FROM events WHERE seq IN ({','.join('?' * len(chunk))})"
            f" AND kind IN ({kinds}) AND step <= ?",
            (*chunk, last),
        )
        if rows[0][0] is not None:
            return int(rows[0][0])
    return None
