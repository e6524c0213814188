"""The text of one decision as a process reward model reads it: the same for labels, training,
reward and live scores.

It has the task, the earlier decisions with their results, then the decision itself without its
result: a process reward model says how good a decision was, not how the environment answered it
(AgentFlow-Pro). The lines are plain words, which a tiny policy's tokenizer can read too. It knows
no model and reads no journal.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_shared.records import StepRecord, ToolCall

QUESTION_CHARACTERS = 4_000
THOUGHT_CHARACTERS = 1_000
INPUT_CHARACTERS = 2_000
RESULT_CHARACTERS = 400
EARLIER_DECISIONS = 12
"""The newest ones that are told; those before are left out, and counted in a line."""


class Decision(NamedTuple):
    """One step's decision."""

    thought: str
    action: str
    """Name of the tool; of several calls the first one's. Empty where it is no action."""
    action_input: str
    """Its arguments; further calls follow, a line for each."""
    result: str = ""
    """What came of it, and what people then said; told only of earlier decisions."""
    sound: bool = True
    """Whether it is an action that there is; one that is not earns 0 without being read."""


def decision_of(record: StepRecord) -> Decision:
    """The decision of a step that was read from the journal, with its result."""
    sample = record.sample
    action = AgentAction(sample.thought, sample.calls, sample.malformed)
    guidance_lines = (f"person: {guidance.text}" for guidance in record.guidance)
    result = "\n".join((*(each.text for each in record.results), *guidance_lines))
    return decision_of_action(action)._replace(result=result)


def decision_of_action(action: AgentAction) -> Decision:
    """The decision in an answer, before it has a result."""
    if action.malformed or not action.calls:
        return Decision(action.thought, "", "", sound=False)
    first, *others = action.calls
    lines = (_arguments(first), *(f"{call.name} {_arguments(call)}".strip() for call in others))
    return Decision(
        action.thought,
        first.name,
        "\n".join(lines).strip(),
        sound=not any(call.error for call in action.calls),
    )


def decision_text(question: str, earlier: Sequence[Decision], decision: Decision) -> str:
    """The text to score.

    question: the task as the agent was given it. earlier: all earlier decisions, in order, with
    their results. A text that is too long is cut in its middle and marked with `…`.
    """
    recent_decisions = earlier[-EARLIER_DECISIONS:]
    left_out = len(earlier) - len(recent_decisions)
    lines = ["Task:", _cut(question, QUESTION_CHARACTERS)]
    if left_out:
        lines.append(f"({left_out} earlier steps are left out)")
    for number, before in enumerate(recent_decisions, left_out + 1):
        lines += [f"Step {number}:", *_decision_lines(before)]
        lines += ["Result:", _cut(before.result, RESULT_CHARACTERS) or "(nothing)"]
    lines += [f"Step {len(earlier) + 1}, the decision:", *_decision_lines(decision)]
    return "\n".join(lines)


def _decision_lines(decision: Decision) -> list[str]:
    """Thought and action, a line or more for each."""
    thought = _cut(decision.thought, THOUGHT_CHARACTERS)
    action = f"{decision.action} {_cut(decision.action_input, INPUT_CHARACTERS)}".strip()
    return [part for part in (thought, action or "(no action)") if part]


def _arguments(call: ToolCall) -> str:
    """An only argument as it is, several as `name: value` lines."""
    values = list(call.arguments.items())
    if len(values) == 1:
        return _plain(values[0][1])
    return "\n".join(f"{name}: {_plain(value)}" for name, value in values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, characters: int) -> str:
    """The text with its middle left out where it is longer."""
    text = text.strip()
    if len(text) <= characters:
        return text
    head = characters * 2 // 3
    return f"{text[:head].rstrip()} … {text[head - characters + 3 :].lstrip()}"
