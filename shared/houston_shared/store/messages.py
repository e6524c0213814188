"""A context as messages: head, the fork it began with, and the steps since.

The same form for every engine; what a token engine got is the ids, of which this is the reading.
Nothing here reads a database or renders a template.
"""

from collections.abc import Iterator, Sequence

from houston_shared import observation, real_user
from houston_shared.records import Delivered, ForkBody, Head, Message, StepRecord


def of_context(
    head: Head | None,
    fork: ForkBody | None,
    fork_guidance: Sequence[Delivered],
    steps: Sequence[StepRecord],
) -> list[Message]:
    """The messages of a prompt, first to last.

    fork: what the context began with, None before the first fork; `fork_guidance` is what was said
    in the part that it compressed, kept verbatim. steps: those since, all closed; with a fork, the
    first of them is the last that it compressed: only its observation stands, after the summary
    (τ̂ = [o₀, (S₁:ₖ, oₖ), τₖ₊₁:ₜ]; APOLLO, Algorithm 1 A).
    """
    messages: list[Message] = []
    if head is not None:
        messages += [_said("system", head.system), _said("user", head.task)]
    if fork is not None:
        messages.append(_said("assistant", fork.summary + real_user.render(fork_guidance)))
        compressed, steps = steps[:1], steps[1:]
        for one in compressed:
            messages.append(_said("user", _whole(one)))
    for one in steps:
        messages += _of_step(one)
    return messages


def _of_step(step: StepRecord) -> Iterator[Message]:
    """What a step added: the answer, then a message for each result; the last one closes it."""
    calls = step.sample.calls
    yield Message(role="assistant", content=step.sample.thought, calls=calls)
    if len(step.results) != len(calls) or not calls:
        yield _said("user", _whole(step))
        return
    *texts, last = observation.labelled(step.results)
    for call, text in zip(calls, texts, strict=False):
        yield Message(role="tool", content=text, call_id=call.id)
    end = _closing(step)
    yield Message(
        role="tool", content="\n".join(part for part in (last, end) if part), call_id=calls[-1].id
    )


def _whole(step: StepRecord) -> str:
    tail = step.observation.tail if step.observation else ""
    return observation.text(step.results, tail, step.guidance)


def _closing(step: StepRecord) -> str:
    return observation.closing(step.observation.tail if step.observation else "", step.guidance)


def _said(role: str, content: str) -> Message:
    return Message(role=role, content=content)  # type: ignore[arg-type]  # only literals above


def plain(messages: Sequence[Message]) -> str:
    """Messages as text for people, where there is no template text to decode."""
    return "\n".join(_plain(one) for one in messages)


def _plain(message: Message) -> str:
    lines = [f"[{message.role}{' ' + message.call_id if message.call_id else ''}]"]
    if message.content:
        lines.append(message.content)
    lines += [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join(lines)
