"""Signals of a step in which something went wrong: errors, no action, forged tags, interruptions.

Each takes the window and the task's thresholds and gives its reason, empty where it does not hold.
"""

from collections.abc import Sequence
from dataclasses import replace

from houston_daemon.supervision.attention.window import StepSeen, Window
from houston_shared.task import Attention


def interrupted(window: Window, _: Attention) -> str:
    """A person stopped the sample of this step."""
    return "a person stopped its sample" if window.now.interrupted else ""


def null_action(window: Window, _: Attention) -> str:
    """No action could be read from what was sampled."""
    now = window.now
    return f"no action: {now.malformed}" if now.malformed and not now.interrupted else ""


def error(window: Window, _: Attention) -> str:
    """A call of this step failed."""
    return _problem(window.now) if any(not call.success for call in window.now.calls) else ""


def forged_tag(window: Window, _: Attention) -> str:
    """An observation held a look-alike of the guidance tag, which was disarmed."""
    found = [call for call in window.now.calls if call.forged_tags]
    if not found:
        return ""
    count = sum(call.forged_tags for call in found)
    what = "a look-alike" if count == 1 else f"{count} look-alikes"
    return f"{what} of a person's tag in what {found[0].words} showed"


def followed(step: StepSeen, before: Sequence[StepSeen]) -> StepSeen:
    """`step`, with how long it has gone wrong. before: the steps before it, the newest last."""
    return (
        replace(step, failing=before[-1].failing + 1 if before else 1) if _problem(step) else step
    )


def error_streak(window: Window, limits: Attention) -> str:
    """Several steps in a row in which a call failed or no action could be read."""
    streak = window.now.failing
    if not limits.error_streak or streak < limits.error_streak:
        return ""
    return f"something went wrong in {streak} steps in a row; now {_problem(window.now)}"


def _problem(step: StepSeen) -> str:
    """What went wrong in a step; empty when nothing did."""
    for call in step.calls:
        if not call.success:
            return f"{call.words}: {call.error}"
    return f"no action: {step.malformed}" if step.malformed and not step.interrupted else ""
