"""Labels recorded decisions: by people's verdicts, by a judge, and with 0 if they are no action.

A person's keep is 1 and a mask is 0; both override a judge. A judge scores each decision once, by a
rubric. Its answers are kept, so that a run that was interrupted, or one over more rollouts, asks
only about new decisions. Nothing is written here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from houston_daemon.review.judge.judge_client import JudgeQuestion, QuestionAsker
from houston_daemon.review.judge.judge_verdicts import gather_all
from houston_daemon.training.prm.decision_labels import DecisionLabel, LabelSource
from houston_daemon.training.prm.prm_figures import roc_auc
from houston_daemon.training.prm.recorded_decisions import RecordedDecision, rollout_decisions
from houston_daemon.training.prm.scoring_rubric import ScoredDecision, ScoringRubric
from houston_shared.store import rollout_queries
from houston_shared.store.annotation_queries import SourceVerdict, read_verdicts_with_reasons
from houston_shared.store.store_reader import Reader

NOT_AN_ACTION = "It is no action: the answer is malformed, or there is no such tool."
PROGRESS_INTERVAL = 20
"""Answers of a judge between two lines for people."""


@dataclass(frozen=True, slots=True)
class UnlabelledDecision:
    """A recorded decision of a task, with what a person said of it."""

    rollout: str
    task: str
    decision: RecordedDecision
    person: SourceVerdict | None

    def label(
        self, score: float, source: LabelSource, reason: str, by: str = "", rubric: str = ""
    ) -> DecisionLabel:
        """The label that says so."""
        return DecisionLabel(
            rollout=self.rollout,
            step=self.decision.step,
            attempt=self.decision.attempt,
            task=self.task,
            text=self.decision.text,
            sound=self.decision.sound,
            score=score,
            source=source,
            reason=reason,
            by=by,
            rubric=rubric,
        )

    def person_label(self) -> DecisionLabel | None:
        """What a person's verdict makes of it; None where nobody said anything."""
        verdict = self.person
        if verdict is None or not self.decision.sound:
            return None
        worth = 1.0 if verdict.verdict == "keep" else 0.0
        return self.label(worth, "human", verdict.reason, by=verdict.by)


def read_decisions(reader: Reader, rollouts: Sequence[str]) -> Iterator[UnlabelledDecision]:
    """Every closed step's decision of some rollouts (whole ids), each once: what a branch shares
    with its parent is the parent's."""
    for rollout in dict.fromkeys(rollouts):
        row = reader.run(rollout_queries.find_rollout(rollout))
        verdicts = reader.run(read_verdicts_with_reasons(rollout))
        for decision in rollout_decisions(reader, rollout):
            if decision.inherited:
                continue
            step_verdicts = verdicts.get(decision.step, [])
            person = next((each for each in step_verdicts if each.source == "human"), None)
            yield UnlabelledDecision(rollout, row.task, decision, person)


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """A judge's scores of decisions that people judged, too."""

    kept: int
    masked: int
    order: float | None
    """Share of pairs of a kept and a masked decision that it scores the right way round, ties as
    one half; None where one kind is missing."""
    mean_kept: float | None
    mean_masked: float | None


@dataclass(slots=True)
class LabelSession:
    """Labels decisions. Without an asker only people and rules speak."""

    rubric: ScoringRubric
    asker: QuestionAsker | None
    concurrency: int
    note: Callable[[str], None]
    also_judged: bool = False
    """Ask the judge also what people have judged, to see how it agrees with them."""
    undecided: list[str] = field(default_factory=list)
    """Decisions on which no answer could be used: rollout, step, and what was wrong."""
    agreement: JudgeAgreement | None = None

    async def run(self, decisions: Sequence[UnlabelledDecision]) -> list[DecisionLabel]:
        """Labels in the order of the decisions; those without one are left out. Raises
        EngineUnavailable, EngineRefused and ConfigurationError; answers until then are kept."""
        asked_decisions = [each for each in decisions if self._is_asked(each)]
        at_once = asyncio.Semaphore(self.concurrency)
        judged_count = 0

        async def ask(decision: UnlabelledDecision) -> DecisionLabel | None:
            nonlocal judged_count
            async with at_once:
                label = await self._ask(decision)
            judged_count += 1
            if judged_count % PROGRESS_INTERVAL == 0:
                self.note(f"{judged_count} of {len(asked_decisions)} decisions judged")
            return label

        judged = await gather_all([ask(each) for each in asked_decisions])
        by_place = {
            (each.rollout, each.decision.step): label
            for each, label in zip(asked_decisions, judged, strict=True)
        }
        self.agreement = _agreement(asked_decisions, judged) if self.also_judged else None
        labels = [
            each.label(0.0, "rule", NOT_AN_ACTION)
            if not each.decision.sound
            else each.person_label() or by_place.get((each.rollout, each.decision.step))
            for each in decisions
        ]
        return [label for label in labels if label is not None]

    def _is_asked(self, decision: UnlabelledDecision) -> bool:
        if self.asker is None or not decision.decision.sound:
            return False
        return decision.person is None or self.also_judged

    async def _ask(self, decision: UnlabelledDecision) -> DecisionLabel | None:
        assert self.asker is not None
        question: JudgeQuestion[ScoredDecision | None] = self.rubric.question(
            self.asker.client, decision.decision
        )
        answered = await self.asker.ask(question)
        scored = answered.values[-1]
        if scored is None:
            where = f"{decision.rollout} step {decision.decision.step}"
            self.undecided.append(f"{where}: {answered.problem}")
            return None
        return decision.label(
            scored.score,
            "judge",
            scored.reason,
            rubric=self.rubric.digest,
            by=self.asker.client.name,
        )


def _agreement(
    decisions: Sequence[UnlabelledDecision], judged: Sequence[DecisionLabel | None]
) -> JudgeAgreement:
    """How a judge's scores stand to people's verdicts on the same decisions."""
    scores: dict[str, list[float]] = {"keep": [], "mask": []}
    for decision, label in zip(decisions, judged, strict=True):
        if decision.person is not None and label is not None:
            scores[decision.person.verdict].append(label.score)
    kept_scores, masked = scores["keep"], scores["mask"]
    return JudgeAgreement(
        kept=len(kept_scores),
        masked=len(masked),
        order=roc_auc(kept_scores, masked),
        mean_kept=sum(kept_scores) / len(kept_scores) if kept_scores else None,
        mean_masked=sum(masked) / len(masked) if masked else None,
    )
