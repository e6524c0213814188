"""What rules say of the steps that rows are made of: the export runs the rules and does not use
their stored verdicts.

So rows never train steps on which nobody ran the rules, and the same journal gives the same rows.
Verdicts of people and of a judge are read from the store and outrank the rules. Nothing is stored
here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from houston_daemon.review import verdict_updates
from houston_daemon.review.rollout_trace import RolloutTrace, TextsUnavailable, read_trace
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
        current = (verdict for verdict in stored if verdict.attempt == row.attempt)
        verdicts = [verdict for verdict in current if verdict.source != "rule"]
        if reason := self._reason(row):
            mask = SourceVerdict(row.step, row.attempt, "rule", "mask", "rules", reason, 0, 0)
            verdicts.append(mask)
        return sorted(verdicts, key=_verdict_rank)

    def _reason(self, row: StepRow) -> str:
        if self.attempts is None:
            return ""
        if self.attempts.get(row.step) != row.attempt:
            return UNSEEN_REASON
        return self.masks.get(row.step, "")


def _verdict_rank(verdict: SourceVerdict) -> int:
    keep = verdict.verdict == "keep"
    return verdict_precedence.verdict_rank(
        verdict.source, keep, verdict_precedence.names_error_rule(verdict.reason)
    )


NO_RULE_VERDICTS = RuleVerdicts({}, None)


@dataclass
class RuleRuns:
    """Runs the rules on rollouts, on each once: branches share their past."""

    reader: Reader
    rules_from: RulesFrom = "run"
    ran: dict[str, int] = field(default_factory=dict)
    """Name and version of each rule that was run → rollouts on which it was."""
    _verdicts: dict[str, RuleVerdicts] = field(default_factory=dict)

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
            verdicts = self._of_part(part, rollout)
            assert verdicts.attempts is not None
            masks |= {step: why for step, why in verdicts.masks.items() if _is_within(step, part)}
            attempts |= {
                step: which for step, which in verdicts.attempts.items() if _is_within(step, part)
            }
        return RuleVerdicts(masks, attempts)

    def _of_part(self, part: OwnedStepRange, rollout: str) -> RuleVerdicts:
        """Of the rollout whose steps they are, with what followed there in view."""
        if part.rollout not in self._verdicts:
            try:
                trace = read_trace(self.reader, part.rollout)
            except TextsUnavailable:
                if part.rollout == rollout:
                    raise
                return self._run(_trace_with_own_past(read_trace(self.reader, rollout)))
            self._verdicts[part.rollout] = self._run(trace)
        return self._verdicts[part.rollout]

    def _run(self, trace: RolloutTrace) -> RuleVerdicts:
        try:
            findings = rule_catalog.run_rules(trace)
            rules = rule_catalog.load_rules(trace.task.rules)
        except (RuleFailed, ConfigurationError) as problem:
            cause = problem.cause.rstrip(".")
            raise HoustonError(
                f"{cause}; --rules off runs none", "No rows were made of it."
            ) from problem
        for name, rule in rules.items():
            rule_version = f"{name}@{rule.version}"
            self.ran[rule_version] = self.ran.get(rule_version, 0) + 1
        masks = verdict_updates.rule_masks(trace, findings)
        attempts = {step.step: step.attempt for step in trace.steps if not step.inherited}
        return RuleVerdicts({step: mask.reason for step, mask in masks.items()}, attempts)


def _is_within(step: int, part: OwnedStepRange) -> bool:
    return part.first <= step <= part.last


def _trace_with_own_past(trace: RolloutTrace) -> RolloutTrace:
    """A branch that judges its past itself, as the texts of its parent are gone."""
    steps = tuple(replace(step, inherited="") for step in trace.steps)
    return RolloutTrace(
        trace.rollout, trace.task, trace.instructions, trace.gpus, steps, trace.forks, trace.ended
    )
