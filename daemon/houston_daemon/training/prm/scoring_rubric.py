"""The rubric by which a judge scores one decision from 0 to 1 in fixed steps, and the parser of its
answer.

A strong model scores each decision once (AgentFlow-Pro). The paper does not print its rubric, so
this one is ours. It is a text file like the judge's, to be copied and edited. Every label stores
its hash.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.review.judge import judge_answers, judge_prompt
from houston_daemon.review.judge.judge_client import JudgeClient, JudgeQuestion
from houston_daemon.review.judge.judge_template import TemplateForm, fill_gaps, template_digest
from houston_daemon.training.prm.recorded_decisions import RecordedDecision
from houston_shared.errors import ConfigurationError

NOTHING_LABELLED = "Nothing was labelled."
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)
SCORE_WORDS = ", ".join(f"{score:g}" for score in SCORES)
SCORE_TOOL = "score_decision"
ANSWER_TOKENS = 128
MIN_TEXT_TOKENS = 128
"""With room for fewer tokens of a decision a judge would see nothing of it."""
SPARE_TOKENS = 64
"""For turns and the frame, which are not counted one by one."""

RUBRIC_FORM = TemplateForm(
    name="scoring rubric",
    required={
        "system": frozenset(),
        "decision": frozenset({"key", "decision", "scores"}),
        "again": frozenset({"problem", "scores"}),
    },
    optional={"decision": frozenset({"step"})},
    packaged=Path(__file__).with_name("rubric.md"),
    effect=NOTHING_LABELLED,
    print_command="houston label --print-rubric",
)


class ScoredDecision(NamedTuple):
    """What a judge said of a decision."""

    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class ScoringRubric:
    """What a judge of decisions is told."""

    system: str
    decision: str
    again: str
    digest: str
    """SHA-256 of the file, hex."""

    def question(
        self, client: JudgeClient, decision: RecordedDecision
    ) -> JudgeQuestion[ScoredDecision | None]:
        """The question about one decision. Raises ConfigurationError where the client's window has
        no room for one. A text that is too long has its middle left out."""
        room = client.token_budget - ANSWER_TOKENS - SPARE_TOKENS
        room -= client.tokens.count(self.system) + client.tokens.count(self.decision)
        if room < MIN_TEXT_TOKENS:
            raise ConfigurationError(
                f"The window of engine {client.name!r} is too small for the rubric and a decision:"
                f" {client.window} tokens.",
                NOTHING_LABELLED,
                "Name another engine with --judge, or a shorter --rubric.",
            )
        text = client.tokens.cut(judge_prompt.harmless_text(decision.text), room, "the decision")
        key = judge_prompt.frame_key([text])
        framed = f"[{key} begins]\n{text}\n[{key} ends]"
        gaps = {"key": key, "decision": framed, "step": str(decision.step), "scores": SCORE_WORDS}
        message = fill_gaps(self.decision, gaps)
        return JudgeQuestion(
            system=self.system,
            message=message,
            tokens=client.tokens.count(self.system) + client.tokens.count(message) + SPARE_TOKENS,
            answer_tokens=ANSWER_TOKENS,
            tool=_SCORE_TOOL,
            step=decision.step,
            digest=self.digest,
            parse=parse_score,
            retry=lambda problem: fill_gaps(
                self.again, {"problem": problem, "scores": SCORE_WORDS}
            ),
            key={"scores": SCORES},
        )


def load_rubric(file: Path | None = None) -> ScoringRubric:
    """The rubric in `file`, or the packaged one. Raises ConfigurationError."""
    text = RUBRIC_FORM.read(file)
    parts = RUBRIC_FORM.parts(text, str(file or RUBRIC_FORM.packaged))
    digest = template_digest(text)
    return ScoringRubric(parts["system"], parts["decision"], parts["again"], digest)


_SCORE_TOOL: Mapping[str, Any] = {
    "name": SCORE_TOOL,
    "description": "Your score of the decision, with its reason.",
    "parameters": {
        "type": "object",
        "properties": {
            "reason": {
                "type": "string",
                "minLength": judge_answers.MIN_REASON_LETTERS,
                "maxLength": judge_answers.SCHEMA_REASON_CHARACTERS,
            },
            "score": {"enum": [0, 0.25, 0.5, 0.75, 1]},
        },
        "required": ["reason", "score"],
        "additionalProperties": False,
    },
}


def parse_score(answer: str | Mapping[str, Any]) -> tuple[ScoredDecision | None, str]:
    """Score and reason of an answer, and what is wrong with it; never raises.

    Words around the object are ignored, and the last object with a score counts. A score that is
    not one of the fixed values, or has no reason in words, does not count.
    """
    fields: Mapping[str, Any] | None = None
    problems: list[str] = []
    if isinstance(answer, str):
        for candidate in judge_answers.json_objects(answer, problems):
            if "score" in candidate:
                fields = candidate
    else:
        fields = answer
    if fields is None:
        return None, problems[0] if problems else 'it holds no JSON object with a "score"'
    score = _fixed_score(fields.get("score"))
    if score is None:
        return None, f'its "score" is {json.dumps(fields.get("score"), default=str)[:40]}'
    reason = judge_answers.clean_reason(str(fields.get("reason") or ""))
    if sum(map(str.isalpha, reason)) < judge_answers.MIN_REASON_LETTERS:
        return None, "it has no reason in words"
    return ScoredDecision(score, reason), ""


def _fixed_score(value: Any) -> float | None:
    """One of `SCORES`, also where it was written as a text."""
    try:
        number = float(value) if isinstance(value, str | int | float) else -1.0
    except (ValueError, OverflowError):
        return None
    return number if number in SCORES and not isinstance(value, bool) else None
