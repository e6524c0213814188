"""Observations and contexts as text: the bytes that the model, commands and the console all read.

One observation is results, then clock and budgets, then guidance: the newest comes last. Where
guidance does not fit the window, pure arithmetic says how much of each message is shown: the
worker, a resumed worker and every reader come to the same cut, and the whole text stays in the
journal. A context is its head, the fork it began with, and the steps since, in the same form for
every engine; what a token engine got is the ids, of which this is the reading. Nothing here reads a
database or renders a template.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from houston_shared import guidance_tag
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Message,
    ObservationBody,
    Refinement,
    StepRecord,
    ToolResult,
)
from houston_shared.safe_text import safe_line

BEGINNING_CHARACTERS = 160
"""Characters that every message keeps before a newer one is shown whole."""
SHORTEST_BEGINNING = 16
"""A beginning shorter than this says nothing: the message is left out."""
TextCost = Callable[[str], int]


def utf8_length(text: str) -> int:
    """Cost in bytes, which every reader can count."""
    return len(text.encode("utf-8", "replace"))


def fit_guidance(
    guidance: Sequence[DeliveredGuidance], room: int, cost: TextCost = utf8_length
) -> Mapping[str, int]:
    """By id, the number of characters shown of each message that is not shown whole.

    guidance: oldest first. room: the most that all may cost, as rendered. Every message keeps its
    beginning; if even that is too much, only the newest do. Then the newest are shown whole, as
    long as there is room. Messages that are not in the result are shown whole, those with 0 are
    left out.
    """
    if cost(guidance_tag.render_guidance(guidance)) <= room:
        return {}
    lengths = dict.fromkeys((message.id for message in guidance), 0)
    # With room to say how many are left out.
    remaining = room - cost(guidance_tag.render_guidance(guidance, lengths))
    costs: dict[str, int] = {}
    for newer, message in enumerate(reversed(guidance)):
        length = min(len(message.text), BEGINNING_CHARACTERS)
        if not newer and _cost_when_shown(message, length, cost) > remaining:
            length = _longest_that_fits(message, remaining, cost)
        needed = _cost_when_shown(message, length, cost)
        if not length or needed > remaining:
            break
        lengths[message.id], costs[message.id] = length, needed
        remaining -= needed
    for message in reversed(guidance):
        id = message.id
        if id not in costs or lengths[id] == len(message.text):
            continue
        lengths[id] = _longest_that_fits(message, remaining + costs[id], cost) or lengths[id]
        remaining -= _cost_when_shown(message, lengths[id], cost) - costs[id]
    whole_ids = {message.id for message in guidance if lengths[message.id] == len(message.text)}
    return {id: length for id, length in lengths.items() if id not in whole_ids}


def _cost_when_shown(message: DeliveredGuidance, length: int, cost: TextCost) -> int:
    shown_lengths = {} if length >= len(message.text) else {message.id: length}
    return cost(guidance_tag.render_guidance([message], shown_lengths))


def _longest_that_fits(message: DeliveredGuidance, room: int, cost: TextCost) -> int:
    """Most characters of a message that cost at most `room`; 0 when that is next to nothing."""
    if _cost_when_shown(message, len(message.text), cost) <= room:
        return len(message.text)
    low, high = 0, len(message.text)
    while high - low > 1:
        middle = (low + high) // 2
        fits = _cost_when_shown(message, middle, cost) <= room
        low, high = (middle, high) if fits else (low, middle)
    return low if low >= SHORTEST_BEGINNING else 0


def label_results(results: Sequence[ToolResult]) -> list[str]:
    """Each result's text; where there are several, each says which call it answers.

    A model may call a tool by any name, that of the guidance tag too.
    """
    if len(results) < 2:
        return [result.text for result in results]
    return [
        f"[call {number} of {len(results)}: {_call_name(result)}]\n{result.text}"
        for number, result in enumerate(results, 1)
    ]


def _call_name(result: ToolResult) -> str:
    return guidance_tag.disarm(safe_line(result.call.name)).text


ShownLengths = Mapping[str, int]
"""By id, how many characters are shown of guidance that does not fit whole."""


def shown_guidance(
    observed: ObservationBody, guidance: Sequence[DeliveredGuidance]
) -> ShownLengths:
    """How much of the guidance joined to a step its observation shows."""
    if not observed.guidance_bytes:
        return {}
    return fit_guidance(guidance, observed.guidance_bytes)


def observation_ending(
    tail: str, guidance: Sequence[DeliveredGuidance], shown_lengths: ShownLengths | None = None
) -> str:
    """What ends the observation: clock and budgets, and the guidance joined to this step."""
    return tail + guidance_tag.render_guidance(guidance, shown_lengths)


def observation_text(
    results: Sequence[ToolResult],
    tail: str,
    guidance: Sequence[DeliveredGuidance],
    shown_lengths: ShownLengths | None = None,
) -> str:
    """The whole observation as the model sees it, and as `steps --json` has it."""
    parts = [*label_results(results), observation_ending(tail, guidance, shown_lengths)]
    return "\n".join(part for part in parts if part)


_CRITIC_TAG = re.compile(r"</?\s*critic\s*>", re.IGNORECASE)


def with_critique(instructions: str, refines: Refinement | None) -> str:
    """The instructions of a task. For a refinement, also what a critic said of an earlier attempt;
    that text cannot contain a live tag."""
    if refines is None:
        return instructions
    critique = guidance_tag.disarm(_CRITIC_TAG.sub("", refines.text)).text
    return f"{instructions}\n\n<critic>\n{critique.strip()}\n</critic>"


EARLIER_GUIDANCE = "What people told you before, still in force:"
"""Stands before guidance that a fork keeps verbatim."""
EMPTY_ANSWER = "(nothing)"
"""Stands for an empty answer: chat endpoints refuse one."""


class ContextBody(NamedTuple):
    """What a context holds after its head."""

    fork: ForkBody | None
    """What it began with; None before the first fork."""
    compressed: StepRecord | None
    """The last step that the fork compressed: its observation stands after the summary."""
    earlier: Sequence[DeliveredGuidance]
    """Guidance of the compressed part, in order."""
    steps: Sequence[StepRecord]
    """Steps that stand as they are, all closed."""


def build_messages(
    head: ContextHead | None, since: ContextBody, *, strip: bool = False
) -> list[Message]:
    """The messages of a prompt, first to last: τ̂ = [o₀, (S₁:ₖ, oₖ), τₖ₊₁:ₜ].

    strip: thoughts are left out of answers that have calls (`thoughts = "strip"`).
    Source: APOLLO, Algorithm 1 A, lines 4 to 9; how the rollout loop itself joins them.
    """
    messages: list[Message] = []
    if head is not None:
        messages += [_text_message("system", head.system), _text_message("user", head.task)]
    if since.fork is not None:
        messages += _fork_messages(since.fork, since.compressed, since.earlier)
    for step in since.steps:
        answer = _answer_message(step, strip)
        messages += [answer, *_observation_messages(step, answer)]
    return messages


def _fork_messages(
    fork: ForkBody, compressed: StepRecord | None, earlier: Sequence[DeliveredGuidance]
) -> list[Message]:
    """(S₁:ₖ, oₖ): the summary, then the last compressed observation after older guidance."""
    text, shown_lengths = "", fork.shortened
    if compressed is not None:
        own = {message.id for message in compressed.guidance}
        earlier = [message for message in earlier if message.id not in own]
        text = observation_text(
            compressed.results, _observation_tail(compressed), compressed.guidance, shown_lengths
        )
    if earlier:
        text = f"{EARLIER_GUIDANCE}{guidance_tag.render_guidance(earlier, shown_lengths)}\n{text}"
    return [_text_message("assistant", fork.summary), _text_message("user", text)]


def _answer_message(step: StepRecord, strip: bool) -> Message:
    calls = step.sample.calls
    thought = "" if strip and calls else step.sample.thought
    content = thought if thought or calls else EMPTY_ANSWER
    return Message(role="assistant", content=content, calls=calls)


def _observation_messages(step: StepRecord, answer: Message) -> list[Message]:
    """One message a call, all else joined to the last; a user's where there is no call.

    A result that answers no call (a last evaluation by the loop) has no message of its own.
    """
    call_ids = {call.id for call in answer.calls}
    texts = zip(step.results, label_results(step.results), strict=True)
    answers: list[tuple[str, str]] = []
    rest: list[str] = []
    for result, text in texts:
        if result.call.id in call_ids:
            answers.append((result.call.id, text))
        else:
            rest.append(text)
    shown_lengths = shown_guidance(step.observation, step.guidance) if step.observation else {}
    rest.append(observation_ending(_observation_tail(step), step.guidance, shown_lengths))
    end = "\n".join(part for part in rest if part)
    if not answers:
        return [_text_message("user", end)]
    number, text = answers[-1]
    answers[-1] = (number, "\n".join(part for part in (text, end) if part))
    return [Message(role="tool", content=text, call_id=number) for number, text in answers]


def _observation_tail(step: StepRecord) -> str:
    return step.observation.tail if step.observation else ""


def _text_message(role: Literal["system", "user", "assistant"], content: str) -> Message:
    return Message(role=role, content=content)


def format_messages(messages: Sequence[Message]) -> str:
    """Messages as text for people, where there is no template text to decode."""
    return "\n".join(_format_message(message) for message in messages)


def _format_message(message: Message) -> str:
    lines = [f"[{message.role}{' ' + message.call_id if message.call_id else ''}]"]
    if message.content:
        lines.append(message.content)
    lines += [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join(lines)
