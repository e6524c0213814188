"""The attention signals: cheap checks, without a model, that say where a person should look.

Each is a pure function of an `AttentionWindow` and the task's thresholds; it returns its reason
in words, or an empty string. There are signals of errors, of repeated actions and evaluations
(APOLLO, appendix E), of edits of files that were not looked at, of long or idle sleeps, and of
scores and budgets. Which of them are active is `attention_catalog`'s.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from houston_daemon.environments.workstation_actions import SCORE_PRESERVING_ACTIONS
from houston_daemon.review.attention_window import (
    EVALUATION,
    THINKING_ACTIONS,
    WAITING_ACTIONS,
    AttentionWindow,
    ObservedCall,
    ObservedStep,
    RemainingBudgets,
    RepeatCount,
    command_of,
    excerpt,
    host_of_call,
)
from houston_daemon.review.rules.shell_commands import name_of_path
from houston_shared.task import AttentionSettings
from houston_shared.times_and_counts import format_duration


def interrupted(window: AttentionWindow, _: AttentionSettings) -> str:
    """A person stopped the sample of this step."""
    return "a person stopped its sample" if window.now.interrupted else ""


def null_action(window: AttentionWindow, _: AttentionSettings) -> str:
    """No action could be read from what was sampled."""
    now = window.now
    return f"no action: {now.malformed}" if now.malformed and not now.interrupted else ""


def error(window: AttentionWindow, _: AttentionSettings) -> str:
    """A call of this step failed."""
    return _step_problem(window.now) if any(not call.success for call in window.now.calls) else ""


def forged_tag(window: AttentionWindow, _: AttentionSettings) -> str:
    """An observation held a look-alike of the guidance tag, which was disarmed."""
    calls = [call for call in window.now.calls if call.forged_tags]
    if not calls:
        return ""
    count = sum(call.forged_tags for call in calls)
    count_text = "a look-alike" if count == 1 else f"{count} look-alikes"
    return f"{count_text} of a person's tag in what {calls[0].summary} showed"


def with_failing_count(step: ObservedStep, before: Sequence[ObservedStep]) -> ObservedStep:
    """`step`, with the failing steps in a row up to it. before: earlier steps, the newest last."""
    return (
        replace(step, failing=before[-1].failing + 1 if before else 1)
        if _step_problem(step)
        else step
    )


def error_streak(window: AttentionWindow, limits: AttentionSettings) -> str:
    """Several steps in a row in which a call failed or no action could be read."""
    streak = window.now.failing
    if not limits.error_streak or streak < limits.error_streak:
        return ""
    return f"something went wrong in {streak} steps in a row; now {_step_problem(window.now)}"


def _step_problem(step: ObservedStep) -> str:
    """What went wrong in a step; empty when nothing did."""
    for call in step.calls:
        if not call.success:
            return f"{call.summary}: {call.error}"
    return f"no action: {step.malformed}" if step.malformed and not step.interrupted else ""


_MIN_REPEATS = 2
"""Doing something once is no repetition, whatever the task says."""


def with_repeat_counts(step: ObservedStep, before: Sequence[ObservedStep]) -> ObservedStep:
    """`step`, with how long its action has been repeated. before: earlier steps, newest last."""
    if not step.acts:
        return step
    acting = list(islice((earlier for earlier in reversed(before) if earlier.acts), 2))
    first, second = (_repeat_count(step, acting, turn) for turn in (1, 2))
    return replace(step, runs=(first, second))


def _repeat_count(step: ObservedStep, acting: Sequence[ObservedStep], turn: int) -> RepeatCount:
    """acting: the steps before it that act, the newest first."""
    if len(acting) < turn or acting[turn - 1].action != step.action:
        return RepeatCount()
    again = acting[turn - 1]
    alike = again.runs[turn - 1].same_outcome + 1 if again.outcome == step.outcome else 0
    return RepeatCount(acting[0].runs[turn - 1].repeats + 1, alike)


def repeated_action(window: AttentionWindow, limits: AttentionSettings) -> str:
    """The same calls with the same arguments, in a row or in turn with one other action."""
    times, now = limits.repeated_actions, window.now
    if times < _MIN_REPEATS or not now.acts:
        return ""
    acting = [n for n, step in enumerate(window.steps) if step.acts]
    for turn, length in ((1, times), (2, 2 * times - 1)):
        if len(acting) < length:
            return ""
        steps = [window.steps[n] for n in acting[-length:]]
        again, earlier_steps = steps[::-turn], steps[-turn:0:-turn]
        if (
            _do_the_same(again)
            and _do_the_same(earlier_steps)
            and not _slept_between(again, window.steps[acting[-length] :])
        ):
            turn_text = (
                "in a row" if turn == 1 else f"in turn with {earlier_steps[0].calls[0].summary}"
            )
            run = now.runs[turn - 1]
            count = (run.repeats + 2 * turn - 1) // turn
            moved = ", with the same outcome" if run.same_outcome + 1 >= count else ""
            return f"{count} times {turn_text}{moved}: {_action_words(now)}"
    return ""


def repeated_evaluation(window: AttentionWindow, _: AttentionSettings) -> str:
    """A submission of a workspace that has not changed since the one before (APOLLO, appendix E,
    priority 8)."""
    now = window.now
    if _scores_twice_in_step(now):
        return "scored more than once with nothing done in between"
    if not _scoring_calls(now) or now.changed is not False:
        return ""
    if len(_scoring_calls(now)) > 1:
        return "scored more than once in a step that changed no file"
    for step in reversed(window.steps[:-1]):
        if indices := _scoring_calls(step):
            after = step.calls[indices[-1] + 1 :]
            unchanged = step.changed is False or all(
                call.name in SCORE_PRESERVING_ACTIONS for call in after
            )
            return f"no file has changed since the score of step {step.step}" if unchanged else ""
        if step.changed is not False:
            return ""
    return ""


def _scores_twice_in_step(step: ObservedStep) -> bool:
    """Whether a score follows another in one step, and nothing but thoughts lies between them."""
    indices = _scoring_calls(step)
    return any(
        all(call.name in THINKING_ACTIONS for call in step.calls[first + 1 : second])
        for first, second in pairwise(indices)
    )


def _scoring_calls(step: ObservedStep) -> list[int]:
    """Which of the agent's calls gave a score."""
    return [
        index
        for index, call in enumerate(step.own_calls)
        if call.kind == EVALUATION and call.fields.get("state", "scored") == "scored"
    ]


def _do_the_same(steps: Sequence[ObservedStep]) -> bool:
    """Whether all do the same."""
    return len({step.action for step in steps}) == 1


def _slept_between(again: Sequence[ObservedStep], span: Sequence[ObservedStep]) -> bool:
    """Whether the agent slept in between and then found something new."""
    slept = any(call.name in WAITING_ACTIONS for step in span for call in step.calls)
    return slept and len({step.outcome for step in again}) > 1


def _action_words(step: ObservedStep) -> str:
    return excerpt("; ".join(call.summary for call in step.calls))


_FILE_CHANGES = ("edited", "replaced")


def blind_edit(window: AttentionWindow, limits: AttentionSettings) -> str:
    """A file was changed that was not shown since it last changed, or not in the steps before.

    APOLLO's rule (appendix E, priority 5) asks for a look in the step before; thoughts do not
    count as steps. An edit's own observation shows the lines that it wrote, so it is a look.
    """
    now = window.now
    before = [step for step in window.steps[:-1] if not _only_thinks(step.calls)]
    near = before[-limits.blind_edit_steps :] if limits.blind_edit_steps else []
    earlier_calls = [call for step in near for call in step.calls]
    for index, call in enumerate(now.calls):
        if not call.success or call.fields.get("change") not in _FILE_CHANGES:
            continue
        path = str(call.fields.get("path", ""))
        kinds = {
            earlier.kind
            for earlier in (*earlier_calls, *now.calls[:index])
            if host_of_call(earlier) == host_of_call(call) and shows_path(earlier, path)
        }
        if call.fields.get("blind") and "command" not in kinds:
            return f"{path} was changed and not shown since it last changed"
        if limits.blind_edit_steps and not kinds:
            return (
                f"{path} was changed and not looked at in the"
                f" {_steps_phrase(limits.blind_edit_steps)}"
            )
    return ""


def no_change(window: AttentionWindow, limits: AttentionSettings) -> str:
    """No file of the workspace changed for many steps; only where snapshots could tell."""
    count = limits.unchanged_steps
    steps = window.steps[-count:] if count else []
    if not steps or len(steps) < count or any(step.changed is not False for step in steps):
        return ""
    return f"no file changed in the last {_steps_phrase(count, '')}"


def shows_path(
    call: ObservedCall, path: str, same: Callable[[str, str], bool] = str.__eq__
) -> bool:
    """Whether a call showed something of a file. same: whether two paths are of one file."""
    if not call.success:
        return False
    if call.kind in ("file", "search"):
        return same(str(call.fields.get("path", "")), path)
    if call.kind == "parsed":  # it shows the text that it has saved
        return same(str(call.fields.get("save_path", "")), path)
    return call.kind == "command" and name_of_path(path) in _command_file_names(call)


def _command_file_names(call: ObservedCall) -> set[str]:
    """The file names that a command names."""
    command = command_of(call)
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is never closed
        words = command.split()
    return {name_of_path(word) for word in words}


def _only_thinks(calls: tuple[ObservedCall, ...]) -> bool:
    return all(call.name in THINKING_ACTIONS for call in calls)


def _steps_phrase(count: int, before: str = " before") -> str:
    return f"step{before}" if count == 1 else f"{count} steps{before}"


_DETACHED_COMMAND = re.compile(
    r"(?<![&>|<])&(?![&>])|\b(?:nohup|setsid|disown|sbatch|screen|tmux)\b"
)
"""A command that may leave something running which no session shows."""


def long_sleep(window: AttentionWindow, limits: AttentionSettings) -> str:
    """One sleep took long."""
    least = limits.long_sleep_seconds
    seconds = max(map(_sleep_seconds, window.now.calls), default=0.0)
    return f"asked to sleep for {format_duration(seconds)}" if least and seconds >= least else ""


def idle_sleep(window: AttentionWindow, limits: AttentionSettings) -> str:
    """It slept while no session ran anything, and nothing was started apart from the sessions."""
    least = limits.idle_sleep_seconds
    idle = [call for call in window.now.calls if call.fields.get("running") == []]
    seconds = max(map(_sleep_seconds, idle), default=0.0)
    if not least or seconds < least or any_starts_detached(window.steps):
        return ""
    return f"asked to sleep for {format_duration(seconds)} while nothing ran in any session"


def any_starts_detached(steps: Iterable[ObservedStep]) -> bool:
    """Whether a command of these steps may have left something running which no session shows."""
    return any(starts_detached(command_of(call)) for step in steps for call in step.calls)


def starts_detached(command: str) -> bool:
    """Whether a command may leave something running which no session shows."""
    return _DETACHED_COMMAND.search(command) is not None


def _sleep_seconds(call: ObservedCall) -> float:
    """Seconds of a sleep; 0 for other calls."""
    seconds = call.fields.get("asked") if call.kind == "sleep" else None
    return float(seconds) if isinstance(seconds, int | float) else 0.0


HIGHEST_SCORE = 100.0
"""No score is better."""


def score_fell(window: AttentionWindow, limits: AttentionSettings) -> str:
    """A submission scored clearly less than the best one so far."""
    scores, best = _newest_scores(window), window.budgets.best
    if not scores or best is None or not limits.score_drop:
        return ""
    fell = scores[-1] <= best - limits.score_drop
    return f"scored {scores[-1]:g}, best was {best:g}" if fell else ""


def evaluator_failed(window: AttentionWindow, _: AttentionSettings) -> str:
    """The evaluator itself gave no score: it crashed, took too long, or its output is not what a
    task promises. A person sees it until a submission is scored.
    """
    for call in window.now.calls:
        if call.kind == EVALUATION and call.fields.get("evaluator_failed") is True:
            lines = str(call.fields.get("detail", "")).strip().splitlines()
            return f"{call.error} Its last words: {excerpt(lines[-1])}" if lines else call.error
    return ""


def no_submission(window: AttentionWindow, limits: AttentionSettings) -> str:
    """Little is left of the steps or of active time, and nothing was submitted."""
    budgets = window.budgets
    submitted = budgets.best is not None or budgets.evaluations_left < budgets.evaluations
    if budgets.finished or submitted or not budgets.evaluations:
        return ""
    little = _little_left(budgets, limits.budget_share)
    return f"nothing was submitted, {' and '.join(little)}" if little else ""


def guidance_ignored(window: AttentionWindow, _: AttentionSettings) -> str:
    """What a person said was heard and not followed: a step right after does what it forbids, or
    no step names anything that it names. Only where it names files, flags, quoted words or a
    submission, without a condition; of anything else nobody can tell without reading it.
    """
    return window.now.ignored_guidance


def no_gain(window: AttentionWindow, limits: AttentionSettings) -> str:
    """No better score for several submissions, or for long: active time since the best score, or
    since the beginning where there is none. Not where the best score is the highest there is.
    """
    budgets = window.budgets
    if not budgets.evaluations or budgets.finished or (budgets.best or 0.0) >= HIGHEST_SCORE:
        return ""
    parts = []
    if limits.no_gain_evaluations and budgets.since_gain >= limits.no_gain_evaluations:
        parts.append(f"in {budgets.since_gain} evaluations")
    if limits.no_gain_seconds and budgets.seconds_since_gain >= limits.no_gain_seconds:
        parts.append(f"for {format_duration(budgets.seconds_since_gain)} of active time")
    score_text = "no score" if budgets.best is None else f"no better score than {budgets.best:g}"
    return f"{score_text} {' and '.join(parts)}" if parts else ""


def near_budget(window: AttentionWindow, limits: AttentionSettings) -> str:
    """Little is left of a budget: steps, active time, cost, or submissions."""
    budgets = window.budgets
    if budgets.finished:
        return ""
    parts = _little_left(budgets, limits.budget_share)
    least = limits.evaluations_left
    if least and _newest_scores(window) and budgets.evaluations_left <= least:
        parts.append(f"{budgets.evaluations_left} of {budgets.evaluations} evaluations left")
    return "; ".join(parts)


def _little_left(budgets: RemainingBudgets, share: float) -> list[str]:
    """In words, of what at most this share is left: steps, active time, cost; 0 is never little."""
    parts = []
    if share and budgets.steps_left <= budgets.steps * share:
        parts.append(f"{budgets.steps_left} of {budgets.steps} steps left")
    if share and budgets.seconds_left <= budgets.seconds * share:
        share_left = max(0.0, budgets.seconds_left) / budgets.seconds
        parts.append(f"{100 * share_left:.0f}% of active time left")
    if share and budgets.cost > 0 and budgets.cost_left <= budgets.cost * share:
        parts.append(f"{100 * max(0.0, budgets.cost_left) / budgets.cost:.0f}% of its cost left")
    return parts


def low_finish(window: AttentionWindow, limits: AttentionSettings) -> str:
    """The agent asked to finish, or a budget ended it, with a low best score or without any."""
    budgets = window.budgets
    requested = any(
        call.name == "finish" or call.fields.get("finished") is True for call in window.now.calls
    )
    if not ((requested or budgets.finished) and budgets.evaluations and limits.low_score):
        return ""
    ending_text = "asked to finish" if requested else "ended by its budget"
    if budgets.best is None:
        return f"{ending_text} without a score"
    low = budgets.best < limits.low_score
    return f"{ending_text} with a best score of {budgets.best:g}" if low else ""


def _newest_scores(window: AttentionWindow) -> list[float]:
    """Scores of the newest step, in order."""
    scores = (
        call.fields.get("overall_score") for call in window.now.calls if call.kind == EVALUATION
    )
    return [float(score) for score in scores if isinstance(score, int | float)]
