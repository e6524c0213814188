"""What a judge may answer: a verdict with a reason for each step that it was asked about.

The schema binds engines that decode by one; every answer is read and checked all the same. What a
judge writes is text of a model: its reasons are cut, cleaned and free of secrets and live tags.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from houston_shared.real_user import disarm
from houston_shared.safe_text import safe_line
from houston_shared.secret_values import redact

REASON = 120
"""Characters of a reason that a schema allows."""
LEAST = 3
"""Letters of a reason: with fewer it gives none, and who gives none may not outrank a rule."""
LONGEST = 400
"""Characters of a reason that is kept, where no schema bound it."""
STEP_TOKENS, FRAME_TOKENS = 96, 32
"""Tokens that are kept free for the answer on one step, and for the braces around all. Small models
may need more (SmolLM2 wrote reasons of two characters a token): they get what room there is."""
MOST = 2
"""Times that many tokens an answer may take where there is room."""
TOOL = "judge_steps"
TRIES = 64
"""Braces of a text that may turn out to begin no object: each costs the reading of what follows."""


class Judged(NamedTuple):
    """What was said of one step."""

    verdict: Literal["keep", "mask"]
    reason: str


class Reading(NamedTuple):
    """What could be read of an answer."""

    steps: Mapping[int, Judged]
    problem: str
    """What is wrong with it, in words a model can use; empty when every step is decided."""


def tokens(steps: int) -> int:
    """Tokens that an answer about so many steps may take."""
    return FRAME_TOKENS + STEP_TOKENS * steps


def schema(steps: Sequence[int]) -> dict[str, Any]:
    """JSON schema of the answer: each step once, the reason before the verdict."""
    one = {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "minLength": LEAST, "maxLength": REASON},
            "verdict": {"type": "string", "enum": ["keep", "mask"]},
        },
        "required": ["reason", "verdict"],
        "additionalProperties": False,
    }
    names = [str(step) for step in steps]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, one),
        "required": names,
        "additionalProperties": False,
    }


def tool(steps: Sequence[int]) -> dict[str, Any]:
    """The same as a tool, for chat endpoints: a call's arguments are its answer."""
    return {
        "name": TOOL,
        "description": "Your verdicts: each step's number with reason and verdict.",
        "parameters": schema(steps),
    }


def read(answer: str | Mapping[str, Any], steps: Sequence[int]) -> Reading:
    """The verdicts in a text, or in a call's arguments; never raises.

    Words around the object are passed over. A verdict that is none, or that has no reason, leaves
    its step undecided.
    """
    problems: list[str] = []
    found = _object(answer, steps, problems) if isinstance(answer, str) else answer
    if found is None:
        return Reading({}, problems[0] if problems else "it holds no JSON object with a step")
    asked = {str(step): step for step in steps}
    given: dict[int, Judged] = {}
    for name, value in found.items():
        number = asked.get(str(name).strip().lower().removeprefix("step").strip())
        if number is None:
            problems.append(f"it judges {str(name)[:40]!r}, which was not asked")
            continue
        judged = _judged(value)
        if judged is None:
            problems.append(f'step {number} has no "verdict" of "keep" or "mask"')
        elif sum(map(str.isalpha, judged.reason)) < LEAST:
            problems.append(f"step {number} has no reason in words")
        else:
            given[number] = judged
    if missing := [str(step) for step in steps if step not in given]:
        problems.append(f"no verdict on {', '.join(missing)}")
        return Reading(given, "; ".join(problems)[:LONGEST])
    return Reading(given, "")


def _judged(value: Any) -> Judged | None:
    reason = ""
    if isinstance(value, dict):
        reason, value = str(value.get("reason") or ""), value.get("verdict")
    if value not in ("keep", "mask"):
        return None
    return Judged("keep" if value == "keep" else "mask", _clean(reason))


def _clean(reason: str) -> str:
    text = disarm(safe_line(redact(reason))).text.strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _object(text: str, steps: Sequence[int], problems: list[str]) -> dict[str, Any] | None:
    """The last object that names a step: what a model answers stands behind what it ponders."""
    names = {str(step) for step in steps}
    found = None
    for made in _objects(text, problems):
        if any(str(key).lower().removeprefix("step").strip() in names for key in made):
            found = made
    return found


def _objects(text: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    at = text.find("{")
    while at >= 0 and len(problems) < TRIES:
        try:
            made, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as problem:
            problems.append(f"it is no JSON ({problem})"[:LONGEST])
            at = text.find("{", at + 1)
            continue
        yield made
        at = text.find("{", end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; raises ValueError where a key stands twice and nobody knows which is meant."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice")
    return made
