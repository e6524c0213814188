"""A step as other programs read it (`steps --json`), and its observation as one text.

The format is stable: docs/design.md#commands-and-formats. Takes records and gives a plain dict;
nothing here reads a database. A module of its own, since the guidance tag's patterns take 10 ms
that other commands do not pay.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from houston_shared import context_messages
from houston_shared.records import (
    PURIFICATION_KEY,
    QuarantinedEvents,
    SampleBody,
    StepRecord,
    ToolCall,
)
from houston_shared.store.annotation_queries import VerdictRow
from houston_shared.store.process_reward_queries import ProcessRewardRow, process_reward_json
from houston_shared.times_and_counts import pluralize


def call_json(call: ToolCall) -> dict[str, Any]:
    """A call of a step."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def observation_as_seen(step: StepRecord) -> str:
    """The observation of a step as the model sees it; empty while the step is open."""
    if step.observation is None:
        return ""
    closed = step.observation
    shown_lengths = context_messages.shown_guidance(closed, step.guidance)
    return context_messages.observation_text(
        step.results, closed.tail, step.guidance, shown_lengths
    )


def usage_json(sample: SampleBody) -> dict[str, int | float | None]:
    """What a sample cost in tokens, as its engine says, and by the engine's price; None where
    nobody says it."""
    return {
        "prompt_tokens": sample.prompt_tokens,
        "cached_tokens": sample.cached_tokens,
        "completion_tokens": sample.completion_tokens,
        "reasoning_tokens": sample.reasoning_tokens,
        "cost": sample.cost,
    }


def purification_of(step: StepRecord) -> dict[str, Any] | None:
    """How a step was purified (`mode`, `similarity`, …); None where it was not."""
    return step.sample.parameters.get(PURIFICATION_KEY)


def purification_line(step: StepRecord) -> str:
    """`purified: shallow, similarity 0.93, by correction 1`; or why a failed step was not; empty
    for other steps."""
    story = purification_of(step)
    if story is None:
        reason = step.observation.not_purified if step.observation else ""
        return f"not purified: {reason}" if reason else ""
    return (
        f"purified: {story['mode']}, similarity {story['similarity']:.2f},"
        f" by correction {story['from_attempt'] - 1}"
    )


def verification_line(step: StepRecord) -> str:
    """`verifier: not answered yet: …` after a step of a flow; empty where nobody was asked."""
    answer = step.observation.verification if step.observation else None
    if answer is None:
        return ""
    if answer.unreadable:
        return f"verifier: not read ({answer.unreadable}), so the flow went on"
    word = "answered" if answer.answered else "not answered yet"
    return f"verifier: {word}" + (f": {answer.reason}" if answer.reason else "")


def verification_json(step: StepRecord) -> dict[str, Any] | None:
    """What the verifier of a flow said after a step; None where it was not asked."""
    answer = step.observation.verification if step.observation else None
    if answer is None:
        return None
    return {"answered": answer.answered, "reason": answer.reason, "unreadable": answer.unreadable}


def verifications_text(counts: Mapping[str, int]) -> str:
    """`asked 5 times: 1 answered, 2 not read` of `count_verifications`; empty where nobody was
    asked."""
    if not counts["asked"]:
        return ""
    asked_text = f"asked {pluralize(counts['asked'], 'time')}: {counts['answered']} answered"
    return asked_text + (f", {counts['unreadable']} not read" if counts["unreadable"] else "")


def count_verifications(steps: Iterable[StepRecord]) -> dict[str, int]:
    """How often the verifier of a flow was asked, said yes, and could not be read."""
    entries = [step.observation.verification for step in steps if step.observation]
    verifications = [each for each in entries if each is not None]
    return {
        "asked": len(verifications),
        "answered": sum(each.answered for each in verifications),
        "unreadable": sum(bool(each.unreadable) for each in verifications),
    }


def attempt_name(step: StepRecord) -> str:
    """What an attempt that does not count is to its step."""
    ahead = step.sample.role == "lookahead"
    return f"attempt {step.attempt}, {'a correction' if ahead else 'as first sampled'}"


def attempt_json(step: StepRecord) -> dict[str, Any]:
    """An attempt that does not count: what was said, and what its calls gave."""
    return {
        "attempt": step.attempt,
        "role": step.sample.role,
        "thought": step.sample.thought,
        "calls": [call_json(call) for call in step.sample.calls],
        "malformed": step.sample.malformed,
        "results": [{"success": result.success, "text": result.text} for result in step.results],
    }


def step_json(
    rollout: str,
    step: StepRecord,
    verdict: VerdictRow | None = None,
    reward: ProcessRewardRow | None = None,
) -> dict[str, Any]:
    """A line of `steps R --json`.

    `set_aside` is there only where a repair set something aside, `inherited` (the rollout whose
    step it is) only where a branch shares it, `purification`, `not_purified` and `attempts` only
    where purification replaced the step or tried to, `verification` only where the verifier of a
    flow was asked.
    """
    closed = step.observation
    reason = closed.not_purified if closed else ""
    return {
        "rollout": rollout,
        "step": step.step,
        "thought": step.sample.thought,
        "calls": [call_json(call) for call in step.sample.calls],
        "observation": observation_as_seen(step),
        "guidance": [{"id": g.id, "author": g.author, "text": g.text} for g in step.guidance],
        "files": [
            {"path": f.path, "added": f.added, "removed": f.removed}
            for f in (closed.files if closed else ())
        ],
        "verdict": None if verdict is None else "keep" if verdict.keep else "mask",
        "process_reward": process_reward_json(reward),
        "attention": list(closed.attention) if closed else [],
        "attention_reasons": dict(closed.reasons) if closed else {},
        "engine": step.sample.engine,
        "policy": step.sample.policy,
        "usage": usage_json(step.sample),
        "at": step.at,
        "active_seconds": step.active_seconds,
        **({"purification": story} if (story := purification_of(step)) else {}),
        **({"not_purified": reason} if reason else {}),
        **({"attempts": [attempt_json(attempt) for attempt in step.others]} if step.others else {}),
        **({"verification": verification} if (verification := verification_json(step)) else {}),
        **({"inherited": step.inherited} if step.inherited else {}),
        **({"set_aside": [_quarantine_json(mark) for mark in step.aside]} if step.aside else {}),
    }


def _quarantine_json(mark: QuarantinedEvents) -> dict[str, Any]:
    return {"events": mark.events, "repair": mark.repair, "earlier_run": mark.again}
