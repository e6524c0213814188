"""What a judge may answer: a verdict with a reason for each step that it was asked about.

The JSON schema constrains engines with guided decoding, the tool is for chat endpoints; every
answer is still parsed and checked. Reasons are cut, cleaned and free of secrets and live tags.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from houston_shared.guidance_tag import disarm
from houston_shared.safe_text import safe_line
from houston_shared.secret_redaction import redact

SCHEMA_REASON_CHARACTERS = 120
"""Characters of a reason that a schema allows."""
MIN_REASON_LETTERS = 3
"""Letters of a reason: with fewer it gives none, and who gives none may not outrank a rule."""
MAX_REASON_CHARACTERS = 400
"""Characters of a reason that is kept, where no schema bound it."""
STEP_TOKENS, FRAME_TOKENS = 96, 32
"""Tokens that are kept free for the answer on one step, and for the braces around all. Small models
may need more (SmolLM2 wrote reasons of two characters a token): they get what room there is."""
ANSWER_ROOM_FACTOR = 2
"""Times that many tokens an answer may take where there is room."""
JUDGE_TOOL = "judge_steps"
MAX_OBJECT_STARTS = 64
"""Braces of a text that may turn out to begin no object: each costs the reading of what follows."""


class JudgedStep(NamedTuple):
    """What was said of one step."""

    verdict: Literal["keep", "mask"]
    reason: str


class ParsedAnswer(NamedTuple):
    """What could be read of an answer."""

    steps: Mapping[int, JudgedStep]
    problem: str
    """What is wrong with it, in words a model can use; empty when every step is decided."""


def answer_tokens_for(steps: int) -> int:
    """Tokens that an answer about so many steps may take."""
    return FRAME_TOKENS + STEP_TOKENS * steps


def answer_schema(steps: Sequence[int]) -> dict[str, Any]:
    """JSON schema of the answer: each step once, the reason before the verdict."""
    step_schema = {
        "type": "object",
        "properties": {
            "reason": {
                "type": "string",
                "minLength": MIN_REASON_LETTERS,
                "maxLength": SCHEMA_REASON_CHARACTERS,
            },
            "verdict": {"type": "string", "enum": ["keep", "mask"]},
        },
        "required": ["reason", "verdict"],
        "additionalProperties": False,
    }
    names = [str(step) for step in steps]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, step_schema),
        "required": names,
        "additionalProperties": False,
    }


def answer_tool(steps: Sequence[int]) -> dict[str, Any]:
    """The same as a tool, for chat endpoints: a call's arguments are its answer."""
    return {
        "name": JUDGE_TOOL,
        "description": "Your verdicts: each step's number with reason and verdict.",
        "parameters": answer_schema(steps),
    }


def parse_answer(answer: str | Mapping[str, Any], steps: Sequence[int]) -> ParsedAnswer:
    """The verdicts in a text, or in a call's arguments; never raises.

    Words around the object are ignored. An invalid verdict, or one without a reason, leaves its
    step undecided.
    """
    problems: list[str] = []
    fields = _last_object(answer, steps, problems) if isinstance(answer, str) else answer
    if fields is None:
        return ParsedAnswer({}, problems[0] if problems else "it holds no JSON object with a step")
    numbers = {str(step): step for step in steps}
    verdicts: dict[int, JudgedStep] = {}
    for name, value in fields.items():
        number = numbers.get(str(name).strip().lower().removeprefix("step").strip())
        if number is None:
            problems.append(f"it judges {str(name)[:40]!r}, which was not asked")
            continue
        judged = _judged_step(value)
        if judged is None:
            problems.append(f'step {number} has no "verdict" of "keep" or "mask"')
        elif sum(map(str.isalpha, judged.reason)) < MIN_REASON_LETTERS:
            problems.append(f"step {number} has no reason in words")
        else:
            verdicts[number] = judged
    if missing := [str(step) for step in steps if step not in verdicts]:
        problems.append(f"no verdict on {', '.join(missing)}")
        return ParsedAnswer(verdicts, "; ".join(problems)[:MAX_REASON_CHARACTERS])
    return ParsedAnswer(verdicts, "")


def _judged_step(value: Any) -> JudgedStep | None:
    reason = ""
    if isinstance(value, dict):
        reason, value = str(value.get("reason") or ""), value.get("verdict")
    if value not in ("keep", "mask"):
        return None
    return JudgedStep("keep" if value == "keep" else "mask", clean_reason(reason))


def clean_reason(reason: str) -> str:
    """A reason in one line, cut, and free of secrets and live tags."""
    text = disarm(safe_line(redact(reason))).text.strip()
    return text if len(text) <= MAX_REASON_CHARACTERS else f"{text[:MAX_REASON_CHARACTERS]}…"


def _last_object(text: str, steps: Sequence[int], problems: list[str]) -> dict[str, Any] | None:
    """The last object that names a step: what a model answers stands behind what it ponders."""
    names = {str(step) for step in steps}
    last = None
    for candidate in json_objects(text, problems):
        if any(str(key).lower().removeprefix("step").strip() in names for key in candidate):
            last = candidate
    return last


def json_objects(text: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, outermost ones. problems: what could not be read is added."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicate_keys)
    at = text.find("{")
    while at >= 0 and len(problems) < MAX_OBJECT_STARTS:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as problem:
            problems.append(f"it is no JSON ({problem})"[:MAX_REASON_CHARACTERS])
            at = text.find("{", at + 1)
            continue
        yield value
        at = text.find("{", end)


def _without_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; raises ValueError where a key stands twice and nobody knows which is meant."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members
