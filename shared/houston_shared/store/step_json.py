"""A step as other programs read it (`steps --json`), and its observation as one text.

The format is stable: docs/design.md#commands-and-formats. Takes records and gives a plain dict;
nothing here reads a database. A module of its own, since the guidance tag's patterns take 10 ms
that other commands do not pay.
"""

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


def call_json(one: ToolCall) -> dict[str, Any]:
    """A call of a step."""
    return {"id": one.id, "name": one.name, "arguments": one.arguments}


def observation_as_seen(step: StepRecord) -> str:
    """The observation of a step as the model sees it; empty while the step is open."""
    if step.observation is None:
        return ""
    closed = step.observation
    shown = context_messages.shown_guidance(closed, step.guidance)
    return context_messages.observation_text(step.results, closed.tail, step.guidance, shown)


def usage_json(sample: SampleBody) -> dict[str, int | None]:
    """What a sample cost in tokens, as its engine says; None where it does not."""
    return {
        "prompt_tokens": sample.prompt_tokens,
        "cached_tokens": sample.cached_tokens,
        "completion_tokens": sample.completion_tokens,
        "reasoning_tokens": sample.reasoning_tokens,
    }


def purification_of(one: StepRecord) -> dict[str, Any] | None:
    """How a step was purified (`mode`, `similarity`, …); None where it was not."""
    return one.sample.parameters.get(PURIFICATION_KEY)


def purification_line(one: StepRecord) -> str:
    """`purified: shallow, similarity 0.93, by correction 1`; or why a failed step was not; empty
    for other steps."""
    story = purification_of(one)
    if story is None:
        kept = one.observation.not_purified if one.observation else ""
        return f"not purified: {kept}" if kept else ""
    return (
        f"purified: {story['mode']}, similarity {story['similarity']:.2f},"
        f" by correction {story['from_attempt'] - 1}"
    )


def attempt_name(one: StepRecord) -> str:
    """What an attempt that does not count is to its step."""
    ahead = one.sample.role == "lookahead"
    return f"attempt {one.attempt}, {'a correction' if ahead else 'as first sampled'}"


def attempt_json(one: StepRecord) -> dict[str, Any]:
    """An attempt that does not count: what was said, and what its calls gave."""
    return {
        "attempt": one.attempt,
        "role": one.sample.role,
        "thought": one.sample.thought,
        "calls": [call_json(each) for each in one.sample.calls],
        "malformed": one.sample.malformed,
        "results": [{"success": each.success, "text": each.text} for each in one.results],
    }


def step_json(rollout: str, one: StepRecord, verdict: VerdictRow | None = None) -> dict[str, Any]:
    """A line of `steps R --json`.

    `set_aside` is there only where a repair set something aside, `inherited` (the rollout whose
    step it is) only where a branch shares it, `purification`, `not_purified` and `attempts` only
    where purification replaced the step or tried to.
    """
    closed = one.observation
    kept = closed.not_purified if closed else ""
    return {
        "rollout": rollout,
        "step": one.step,
        "thought": one.sample.thought,
        "calls": [call_json(each) for each in one.sample.calls],
        "observation": observation_as_seen(one),
        "guidance": [{"id": g.id, "author": g.author, "text": g.text} for g in one.guidance],
        "files": [
            {"path": f.path, "added": f.added, "removed": f.removed}
            for f in (closed.files if closed else ())
        ],
        "verdict": None if verdict is None else "keep" if verdict.keep else "mask",
        "attention": list(closed.attention) if closed else [],
        "attention_reasons": dict(closed.reasons) if closed else {},
        "policy": one.sample.policy,
        "usage": usage_json(one.sample),
        "at": one.at,
        "active_seconds": one.active_seconds,
        **({"purification": story} if (story := purification_of(one)) else {}),
        **({"not_purified": kept} if kept else {}),
        **({"attempts": [attempt_json(each) for each in one.others]} if one.others else {}),
        **({"inherited": one.inherited} if one.inherited else {}),
        **({"set_aside": [_quarantine_json(mark) for mark in one.aside]} if one.aside else {}),
    }


def _quarantine_json(mark: QuarantinedEvents) -> dict[str, Any]:
    return {"events": mark.events, "repair": mark.repair, "earlier_run": mark.again}
