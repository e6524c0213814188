"""The process rewards of every decision of a group's rollouts, stored with the run.

Scores are written when a group has been scored. A run that resumes after a kill, and the export of
its rows, then read the same scores and need no model. `prm.recorded_decisions` makes the scored
text. No torch here.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.training.prm.recorded_decisions import (
    DecisionScorer,
    rollout_decisions,
    score_decisions,
)
from houston_daemon.training.rl.rollout_groups import GroupOutcome, RolloutGroup, StepScores
from houston_shared import atomic_file
from houston_shared.store.store_reader import Reader


class ProcessRewards:
    """Scores of the groups of one run, a file for each group."""

    def __init__(self, folder: Path, scorer: DecisionScorer | None = None) -> None:
        """folder: where they are kept. scorer: None where only what is kept is read."""
        self._folder = folder
        self._scorer = scorer

    def add(self, reader: Reader, outcomes: Sequence[GroupOutcome]) -> list[GroupOutcome]:
        """The outcomes with the scores of their decisions; what was not scored is scored and kept.

        Raises LookupError where that would take a model and there is none.
        """
        return [
            outcome._replace(scores=self._scores(reader, outcome)) if outcome.members else outcome
            for outcome in outcomes
        ]

    def has(self, group: RolloutGroup) -> bool:
        """Whether its decisions were scored."""
        return self._file(group).is_file()

    def _file(self, group: RolloutGroup) -> Path:
        return self._folder / f"{group.name}.json"

    def _scores(self, reader: Reader, outcome: GroupOutcome) -> tuple[StepScores, ...]:
        file = self._file(outcome.group)
        if file.is_file():
            return msgspec.json.decode(file.read_bytes(), type=tuple[StepScores, ...])
        if self._scorer is None:
            raise LookupError(f"the decisions of group {outcome.group.name} were not scored")
        by_rollout = [rollout_decisions(reader, member.rollout) for member in outcome.members]
        every = [decision for decisions in by_rollout for decision in decisions]
        values = iter(score_decisions(self._scorer, every))
        scores = tuple(
            {decision.step: next(values) for decision in decisions} for decisions in by_rollout
        )
        self._folder.mkdir(exist_ok=True)
        atomic_file.write_atomically(file, msgspec.json.encode(scores))
        return scores
