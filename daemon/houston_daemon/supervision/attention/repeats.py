"""Signals of doing the same again: actions that repeat, evaluations of an unchanged workspace.

Sleeping and looking at something that moves is patience, which APOLLO (appendix E) keeps: with a
sleep between, an action counts as repeated only where it showed the same every time.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise

from houston_daemon.supervision.attention.window import (
    EVALUATION,
    HARMLESS,
    THINKING,
    WAITING,
    Run,
    StepSeen,
    Window,
    cut,
)
from houston_shared.task import Attention

_LEAST = 2
"""Doing something once is no repetition, whatever the task says."""


def followed(step: StepSeen, before: Sequence[StepSeen]) -> StepSeen:
    """`step`, with how long what it does has gone on. before: steps before it, the newest last."""
    if not step.acts:
        return step
    acting = list(islice((one for one in reversed(before) if one.acts), 2))
    first, second = (_run(step, acting, turn) for turn in (1, 2))
    return replace(step, runs=(first, second))


def _run(step: StepSeen, acting: Sequence[StepSeen], turn: int) -> Run:
    """acting: the steps before it that act, the newest first."""
    if len(acting) < turn or acting[turn - 1].action != step.action:
        return Run()
    again = acting[turn - 1]
    alike = again.runs[turn - 1].alike + 1 if again.outcome == step.outcome else 0
    return Run(acting[0].runs[turn - 1].same + 1, alike)


def repeated_action(window: Window, limits: Attention) -> str:
    """The same calls with the same arguments, in a row or in turn with one other action."""
    times, now = limits.repeated_actions, window.now
    if times < _LEAST or not now.acts:
        return ""
    acting = [n for n, step in enumerate(window.steps) if step.acts]
    for turn, length in ((1, times), (2, 2 * times - 1)):
        if len(acting) < length:
            return ""
        steps = [window.steps[n] for n in acting[-length:]]
        again, others = steps[::-turn], steps[-turn:0:-turn]
        if _same(again) and _same(others) and not _patient(again, window.steps[acting[-length] :]):
            how = "in a row" if turn == 1 else f"in turn with {others[0].calls[0].words}"
            run = now.runs[turn - 1]
            count = (run.same + 2 * turn - 1) // turn
            moved = ", with the same outcome" if run.alike + 1 >= count else ""
            return f"{count} times {how}{moved}: {_words(now)}"
    return ""


def repeated_evaluation(window: Window, _: Attention) -> str:
    """A submission of a workspace that has not changed since the one before (APOLLO, appendix E,
    priority 8)."""
    now = window.now
    if _again_at_once(now):
        return "scored more than once with nothing done in between"
    if not _scores(now) or now.changed is not False:
        return ""
    if len(_scores(now)) > 1:
        return "scored more than once in a step that changed no file"
    for step in reversed(window.steps[:-1]):
        if found := _scores(step):
            after = step.calls[found[-1] + 1 :]
            stands = step.changed is False or all(call.name in HARMLESS for call in after)
            return f"no file has changed since the score of step {step.step}" if stands else ""
        if step.changed is not False:
            return ""
    return ""


def _again_at_once(step: StepSeen) -> bool:
    """Whether a score follows another in one step, and nothing but thoughts lies between them."""
    found = _scores(step)
    return any(
        all(call.name in THINKING for call in step.calls[first + 1 : second])
        for first, second in pairwise(found)
    )


def _scores(step: StepSeen) -> list[int]:
    """Which of the agent's calls gave a score."""
    return [
        index
        for index, call in enumerate(step.calls[: len(step.calls) - step.added])
        if call.kind == EVALUATION and call.fields.get("state", "scored") == "scored"
    ]


def _same(steps: Sequence[StepSeen]) -> bool:
    """Whether all do the same."""
    return len({step.action for step in steps}) == 1


def _moved(steps: Sequence[StepSeen]) -> bool:
    """Whether what they showed differs."""
    return len({step.outcome for step in steps}) > 1


def _patient(again: Sequence[StepSeen], span: Sequence[StepSeen]) -> bool:
    """Whether the agent slept in between and then found something new."""
    slept = any(call.name in WAITING for step in span for call in step.calls)
    return slept and _moved(again)


def _words(step: StepSeen) -> str:
    return cut("; ".join(call.words for call in step.calls))
