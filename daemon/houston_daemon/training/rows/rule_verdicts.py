"""What rules say of the steps that rows are made of: run for the export, not taken from the
store.

So rows never train what nobody ran the rules on, and the same journal gives the same rows.
Verdicts of people and of a judge count as they are stored and outrank the rules. It stores
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from houston_daemon.review import verdict_updates
from houston_daemon.review.rollout_trace import RolloutTrace, TextsGone, read_trace
from houston_daemon.review.rules import rule_catalog
from houston_daemon.review.rules.rule_catalog import RuleFailed
from houston_shared import verdict_precedence
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.store import rollout_queries
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.rollout_queries import OwnedStepRange
from houston_shared.store.step_queries import StepRow
from houston_shared.store.store_reader import Reader

RulesFrom = Literal["run", "stored", "off"]
"""`run`: what rules say now. `stored`: what was stored of them. `off`: no rule counts."""
UNSEEN_REASON = "it was closed after the rules had looked"


class RuleVerdicts(NamedTuple):
    """What rules say of a rollout, in place of what was stored."""

    masks: Mapping[int, str]
    """By step, the reason."""
    attempts: Mapping[int, int] | None
    """By step that the rules looked at, which attempt; None where no rule counts."""

    def counted_verdicts(
        self, row: StepRow, stored: Sequence[SourceVerdict]
    ) -> list[SourceVerdict]:
        """Verdicts on the attempt of a step that counts; the first of them counts."""
        found = [one for one in stored if one.source != "rule" and one.attempt == row.attempt]
        if reason := self._reason(row):
            mask = SourceVerdict(row.step, row.attempt, "rule", "mask", "rules", reason, 0, 0)
            found.append(mask)
        return sorted(found, key=_verdict_rank)

    def _reason(self, row: StepRow) -> str:
        if self.attempts is None:
            return ""
        if self.attempts.get(row.step) != row.attempt:
            return UNSEEN_REASON
        return self.masks.get(row.step, "")


def _verdict_rank(one: SourceVerdict) -> int:
    keep = one.verdict == "keep"
    return verdict_precedence.verdict_rank(
        one.source, keep, verdict_precedence.names_error_rule(one.reason)
    )


NO_RULE_VERDICTS = RuleVerdicts({}, None)


@dataclass
class RuleRuns:
    """Runs the rules on rollouts, on each once: branches share their past."""

    reader: Reader
    rules_from: RulesFrom = "run"
    ran: dict[str, int] = field(default_factory=dict)
    """Name and version of each rule that was run → rollouts on which it was."""
    _known: dict[str, RuleVerdicts] = field(default_factory=dict)

    def verdicts_of(self, rollout: str) -> RuleVerdicts | None:
        """What rules say of a rollout (a whole id), its shared past too; None: what is stored.

        Raises HoustonError where a rule fails or cannot be had, and for a rollout that cannot be
        read.
        """
        if self.rules_from != "run":
            return NO_RULE_VERDICTS if self.rules_from == "off" else None
        masks: dict[int, str] = {}
        attempts: dict[int, int] = {}
        for part in self.reader.run(rollout_queries.step_ranges(rollout)):
            found = self._of_part(part, rollout)
            assert found.attempts is not None
            masks |= {step: why for step, why in found.masks.items() if _is_within(step, part)}
            attempts |= {
                step: which for step, which in found.attempts.items() if _is_within(step, part)
            }
        return RuleVerdicts(masks, attempts)

    def _of_part(self, part: OwnedStepRange, rollout: str) -> RuleVerdicts:
        """Of the rollout whose steps they are, with what followed there in view."""
        if part.rollout not in self._known:
            try:
                trace = read_trace(self.reader, part.rollout)
            except TextsGone:
                if part.rollout == rollout:
                    raise
                return self._run(_trace_with_own_past(read_trace(self.reader, rollout)))
            self._known[part.rollout] = self._run(trace)
        return self._known[part.rollout]

    def _run(self, trace: RolloutTrace) -> RuleVerdicts:
        try:
            found = rule_catalog.run_rules(trace)
            wanted = rule_catalog.load_rules(trace.task.rules)
        except (RuleFailed, ConfigurationError) as problem:
            cause = problem.cause.rstrip(".")
            raise HoustonError(
                f"{cause}; --rules off runs none", "No rows were made of it."
            ) from problem
        for name, rule in wanted.items():
            named = f"{name}@{rule.version}"
            self.ran[named] = self.ran.get(named, 0) + 1
        said = verdict_updates.rule_masks(trace, found)
        attempts = {one.step: one.attempt for one in trace.steps if not one.inherited}
        return RuleVerdicts({step: one.reason for step, one in said.items()}, attempts)


def _is_within(step: int, part: OwnedStepRange) -> bool:
    return part.first <= step <= part.last


def _trace_with_own_past(trace: RolloutTrace) -> RolloutTrace:
    """A branch that judges its past itself, as the texts of its parent are gone."""
    steps = tuple(replace(one, inherited="") for one in trace.steps)
    return RolloutTrace(
        trace.rollout, trace.task, trace.instructions, trace.gpus, steps, trace.forks, trace.ended
    )
