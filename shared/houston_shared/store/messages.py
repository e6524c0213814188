"""A context as messages: head, the fork it began with, and the steps since.

The same form for every engine; what a token engine got is the ids, of which this is the reading.
Nothing here reads a database or renders a template.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from houston_shared import observation, real_user
from houston_shared.records import Delivered, ForkBody, Head, Message, StepRecord

EARLIER = "What people told you before, still in force:"
"""Stands before guidance that a fork keeps verbatim."""
NOTHING = "(nothing)"
"""Stands for an empty answer: chat endpoints refuse one."""


class Since(NamedTuple):
    """What a context holds after its head."""

    fork: ForkBody | None
    """What it began with; None before the first fork."""
    compressed: StepRecord | None
    """The last step that the fork compressed: its observation stands after the summary."""
    earlier: Sequence[Delivered]
    """Guidance of the compressed part, in order."""
    steps: Sequence[StepRecord]
    """Steps that stand as they are, all closed."""


def of_context(head: Head | None, since: Since, *, strip: bool = False) -> list[Message]:
    """The messages of a prompt, first to last: τ̂ = [o₀, (S₁:ₖ, oₖ), τₖ₊₁:ₜ].

    strip: thoughts are left out of answers that have calls (`thoughts = "strip"`).
    Source: APOLLO, Algorithm 1 A, lines 4 to 9; how the rollout loop itself joins them.
    """
    found: list[Message] = []
    if head is not None:
        found += [_said("system", head.system), _said("user", head.task)]
    if since.fork is not None:
        found += _pair(since.fork, since.compressed, since.earlier)
    for step in since.steps:
        answer = _answer(step, strip)
        found += [answer, *_observed(step, answer)]
    return found


def _pair(
    fork: ForkBody, compressed: StepRecord | None, earlier: Sequence[Delivered]
) -> list[Message]:
    """(S₁:ₖ, oₖ): the summary, then the last compressed observation after older guidance."""
    text, shown = "", fork.shortened
    if compressed is not None:
        own = {one.id for one in compressed.guidance}
        earlier = [one for one in earlier if one.id not in own]
        text = observation.text(compressed.results, _tail(compressed), compressed.guidance, shown)
    if earlier:
        text = f"{EARLIER}{real_user.render(earlier, shown)}\n{text}"
    return [_said("assistant", fork.summary), _said("user", text)]


def _answer(step: StepRecord, strip: bool) -> Message:
    calls = step.sample.calls
    thought = "" if strip and calls else step.sample.thought
    content = thought if thought or calls else NOTHING
    return Message(role="assistant", content=content, calls=calls)


def _observed(step: StepRecord, answer: Message) -> list[Message]:
    """One message a call, all else joined to the last; a user's where there is no call.

    A result that answers no call (a last evaluation by the loop) has no message of its own.
    """
    asked = {call.id for call in answer.calls}
    texts = zip(step.results, observation.labelled(step.results), strict=True)
    answers: list[tuple[str, str]] = []
    rest: list[str] = []
    for result, text in texts:
        if result.call.id in asked:
            answers.append((result.call.id, text))
        else:
            rest.append(text)
    shown = observation.shown(step.observation, step.guidance) if step.observation else {}
    rest.append(observation.closing(_tail(step), step.guidance, shown))
    end = "\n".join(part for part in rest if part)
    if not answers:
        return [_said("user", end)]
    number, text = answers[-1]
    answers[-1] = (number, "\n".join(part for part in (text, end) if part))
    return [Message(role="tool", content=text, call_id=number) for number, text in answers]


def _tail(step: StepRecord) -> str:
    return step.observation.tail if step.observation else ""


def _said(role: Literal["system", "user", "assistant"], content: str) -> Message:
    return Message(role=role, content=content)


def plain(messages: Sequence[Message]) -> str:
    """Messages as text for people, where there is no template text to decode."""
    return "\n".join(_plain(one) for one in messages)


def _plain(message: Message) -> str:
    lines = [f"[{message.role}{' ' + message.call_id if message.call_id else ''}]"]
    if message.content:
        lines.append(message.content)
    lines += [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join(lines)
