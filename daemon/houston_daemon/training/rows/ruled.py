"""What rules say of the steps that rows are made of: run for the export, not taken from the store.

So rows never train what nobody ran the rules on, whether a daemon runs or not, and the same journal
gives the same rows. People's verdicts and a judge's count as they are stored, and outrank the rules
as ever (`verdict_order`). It stores nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from houston_daemon.supervision import ruling
from houston_daemon.supervision.rules import catalog
from houston_daemon.supervision.rules.catalog import RuleFailed
from houston_daemon.supervision.trace import TextsGone, Trace, read
from houston_shared import verdict_order
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.store.queries import lineage
from houston_shared.store.queries.lineage import Stretch
from houston_shared.store.queries.steps import StepRow
from houston_shared.store.queries.verdicts import Given
from houston_shared.store.reader import Reader

RulesFrom = Literal["run", "stored", "off"]
"""`run`: what rules say now. `stored`: what was stored of them. `off`: no rule counts."""
UNSEEN = "it was closed after the rules had looked"


class RuleVerdicts(NamedTuple):
    """What rules say of a rollout, in place of what was stored."""

    masks: Mapping[int, str]
    """By step, the reason."""
    attempts: Mapping[int, int] | None
    """By step that the rules looked at, which attempt; None where no rule counts."""

    def given(self, row: StepRow, stored: Sequence[Given]) -> list[Given]:
        """Verdicts on the attempt of a step that counts; the first of them counts."""
        found = [one for one in stored if one.source != "rule" and one.attempt == row.attempt]
        if reason := self._reason(row):
            mask = Given(row.step, row.attempt, "rule", "mask", "rules", reason, 0, 0)
            found.append(mask)
        return sorted(found, key=_rank)

    def _reason(self, row: StepRow) -> str:
        if self.attempts is None:
            return ""
        if self.attempts.get(row.step) != row.attempt:
            return UNSEEN
        return self.masks.get(row.step, "")


def _rank(one: Given) -> int:
    keep = one.verdict == "keep"
    return verdict_order.rank(one.source, keep, verdict_order.names_error(one.reason))


NO_RULES = RuleVerdicts({}, None)


@dataclass
class RuleRuns:
    """Runs the rules on rollouts, on each once: branches share their past."""

    reader: Reader
    rules_from: RulesFrom = "run"
    ran: dict[str, int] = field(default_factory=dict)
    """Name and version of each rule that was run → rollouts on which it was."""
    _known: dict[str, RuleVerdicts] = field(default_factory=dict)

    def of(self, rollout: str) -> RuleVerdicts | None:
        """What rules say of a rollout (a whole id), its shared past too; None: what is stored.

        Raises HoustonError where a rule fails or cannot be had, and for a rollout that cannot be
        read.
        """
        if self.rules_from != "run":
            return NO_RULES if self.rules_from == "off" else None
        masks: dict[int, str] = {}
        attempts: dict[int, int] = {}
        for part in self.reader.run(lineage.stretches(rollout)):
            found = self._of_part(part, rollout)
            assert found.attempts is not None
            masks |= {step: why for step, why in found.masks.items() if _within(step, part)}
            attempts |= {
                step: which for step, which in found.attempts.items() if _within(step, part)
            }
        return RuleVerdicts(masks, attempts)

    def _of_part(self, part: Stretch, rollout: str) -> RuleVerdicts:
        """Of the rollout whose steps they are, with what followed there in view."""
        if part.rollout not in self._known:
            try:
                trace = read(self.reader, part.rollout)
            except TextsGone:
                if part.rollout == rollout:
                    raise
                return self._run(_as_own(read(self.reader, rollout)))
            self._known[part.rollout] = self._run(trace)
        return self._known[part.rollout]

    def _run(self, trace: Trace) -> RuleVerdicts:
        try:
            found = catalog.found(trace)
            wanted = catalog.chosen(trace.task.rules)
        except (RuleFailed, ConfigurationError) as problem:
            cause = problem.cause.rstrip(".")
            raise HoustonError(
                f"{cause}; --rules off runs none", "No rows were made of it."
            ) from problem
        for name, rule in wanted.items():
            named = f"{name}@{rule.version}"
            self.ran[named] = self.ran.get(named, 0) + 1
        said = ruling.said(trace, found)
        attempts = {one.step: one.attempt for one in trace.steps if not one.inherited}
        return RuleVerdicts({step: one.reason for step, one in said.items()}, attempts)


def _within(step: int, part: Stretch) -> bool:
    return part.first <= step <= part.last


def _as_own(trace: Trace) -> Trace:
    """A branch that judges its past itself, as the texts of its parent are gone."""
    steps = tuple(replace(one, inherited="") for one in trace.steps)
    return Trace(
        trace.rollout, trace.task, trace.instructions, trace.gpus, steps, trace.forks, trace.ended
    )
