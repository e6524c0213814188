"""Rules and judges beside people, over every step that a person judged.

Rules are recomputed as they are today, of each step those that its task wants; what a judge said is
read, as it said it: a keep that an error overruled is its keep. A step that a branch shares is
counted once, with its parent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from houston_daemon.supervision import ruling
from houston_daemon.supervision.judge.agreement import Agreement, compare
from houston_daemon.supervision.judge.judging import would_keep
from houston_daemon.supervision.rules import catalog
from houston_daemon.supervision.rules.catalog import RuleFailed, RuleVerdict
from houston_daemon.supervision.trace import TextsGone, read
from houston_shared import verdict_order
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import verdicts
from houston_shared.store.queries.verdicts import Given
from houston_shared.store.reader import Reader

RULES, JUDGE, BEFORE_PEOPLE = "all rules", "judge", "rules and judge"


class Calibration(NamedTuple):
    """How sources stand beside people."""

    rollouts: int
    """That hold a step which a person judged."""
    steps: int
    masked: int
    """Of these, masked by people."""
    by: Mapping[str, Agreement]
    """Each rule as `name@version`, all rules together, the judge (each by its name where there are
    several), and what would count without people."""
    passed: Sequence[str] = ()
    """Rollouts with steps that people judged, whose texts are gone: they are left out."""
    failed: Mapping[str, RuleFailed] = MappingProxyType({})
    """The same of rollouts on which a rule failed, and how."""


Pairs = dict[str, list[tuple[bool, bool]]]


def judged_by_people() -> Plan[list[str]]:
    """Rollouts with steps that a person judged, in the order of their ids."""
    rows = yield Ask(
        "SELECT DISTINCT rollout FROM verdicts WHERE source = 'human' ORDER BY rollout"
    )
    return [str(row[0]) for row in rows]


def calibrate(reader: Reader, rollouts: Sequence[str]) -> Calibration:
    """Compare over these rollouts (whole ids), but those whose texts are gone, or on which a rule
    fails. Raises HoustonError."""
    pairs: Pairs = defaultdict(list)
    people: list[bool] = []
    passed: list[str] = []
    failed: dict[str, RuleFailed] = {}
    used = 0
    for rollout in rollouts:
        before = len(people)
        try:
            people += _compared(reader, rollout, pairs)
        except TextsGone:
            passed.append(rollout)
        except RuleFailed as problem:
            failed[rollout] = problem
        used += len(people) > before
    judges = [name for name in pairs if name.startswith(f"{JUDGE}:")]
    if len(judges) == 1:
        del pairs[judges[0]]  # the same as `judge`
    by = {name: compare(found) for name, found in pairs.items()}
    return Calibration(used, len(people), sum(people), by, passed, failed)


def _compared(reader: Reader, rollout: str, pairs: Pairs) -> Iterator[bool]:
    """Whether people masked, for each of a rollout's own steps that they judged."""
    standing = reader.run(verdicts.standing(rollout))
    said = {
        step: {one.source: one for one in given}
        for step, given in standing.items()
        if any(one.source == "human" for one in given)
    }
    if not said:
        return
    trace = read(reader, rollout)
    found = catalog.found(trace)
    mine = set(ruling.own_steps(trace))
    rules = catalog.chosen(trace.task.rules)
    names = [f"{name}@{rule.version}" for name, rule in rules.items()]
    for step, sources in sorted(said.items()):
        if step not in mine:
            continue
        people = sources["human"].verdict == "mask"
        masked_by = found.get(step, [])
        hits = {f"{one.rule}@{one.version}" for one in masked_by}
        for name in names:
            pairs[name].append((name in hits, people))
        pairs[RULES].append((bool(hits), people))
        judge = sources.get("judge")
        if judge is not None:
            masks = judge.verdict == "mask" and not would_keep(judge.reason)
            pairs[JUDGE].append((masks, people))
            pairs[judge.by].append((masks, people))
        pairs[BEFORE_PEOPLE].append((_masked(masked_by, judge), people))
        yield people


def _masked(by_rules: Sequence[RuleVerdict], judge: Given | None) -> bool:
    """Whether a step is masked where no person speaks."""
    error = any(one.rule == verdict_order.ERROR for one in by_rules)
    said = [(verdict_order.rank("rule", False, error), True)] if by_rules else []
    if judge is not None:
        keeps = judge.verdict == "keep"
        said.append((verdict_order.rank("judge", keeps, False), not keeps))
    return min(said)[1] if said else False
