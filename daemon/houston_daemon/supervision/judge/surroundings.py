"""What stands around the steps of a window: task, limits, scores, guidance, the other steps.

All of it is the same in every window of a rollout but the best score before the last summary and
which other steps are near. Each part has a share of the window; what does not fit says so.
"""

from collections.abc import Iterator, Mapping, Sequence

from houston_daemon.supervision.judge.framing import NOTHING, Counting, harmless, said_safely
from houston_daemon.supervision.trace import Scored, Trace
from houston_shared import real_user, shortening

TASK, GUIDANCE, SCORES, OUTLINE = 1 / 8, 1 / 6, 1 / 16, 1 / 12
"""Most of a window that each part may take."""
SCORE_LINE = 12
"""Tokens of a line of the scores, about."""


class Surroundings:
    """The parts of one rollout, for windows of `window` tokens."""

    def __init__(self, trace: Trace, tokens: Counting, window: int) -> None:
        self._trace = trace
        self._tokens = tokens
        self._window = window
        self._task = tokens.cut(harmless(trace.instructions), int(window * TASK), "the task")
        self._guidance = _guidance(trace, tokens, int(window * GUIDANCE))
        self._limits = _limits(trace)
        self._lines = {one.step: _line(trace, place) for place, one in enumerate(trace.seen)}

    @property
    def outline_room(self) -> int:
        """Most tokens of the lines for other steps."""
        return int(self._window * OUTLINE)

    def gaps(self, first: int, last: int) -> Mapping[str, str]:
        """Everything but the steps, by gap of the template, for a window on steps `first` to
        `last` (both included)."""
        return {
            "task": self._task,
            "limits": self._limits,
            "scores": self._scores(first, last),
            "guidance": self._guidance,
            "outline": self._outline(first, last),
        }

    def _scores(self, first: int, last: int) -> str:
        summaries = [fork.step for fork in self._trace.forks if fork.step <= last]
        lines = [f"The maximum possible is {self._trace.task.rules.max_score:g}."]
        if summaries:
            best = _best(one for one in self._trace.scores if one.step < summaries[-1])
            lines.append(f"The best before the last summary (before step {summaries[-1]}): {best}.")
        else:
            lines.append("There was no summary yet.")
        before = _best(one for one in self._trace.scores if one.step < first)
        lines.append(f"The best before step {first}: {before}.")
        room = max(4, int(self._window * SCORES) // SCORE_LINE)
        return "\n".join([*lines, *_evaluations(self._trace.scores, last, room)])

    def _outline(self, first: int, last: int) -> str:
        """The nearest other steps, one line each, two before for one after."""
        room = self.outline_room
        before = [n for n in self._lines if n < first][::-1]
        after = [n for n in self._lines if n > last]
        taken: list[int] = []
        for number in _in_turn(before, after):
            room -= self._tokens.count(self._lines[number]) + 1
            if room < 0:
                break
            taken.append(number)
        left = len(before) + len(after) - len(taken)
        lines = [self._lines[number] for number in sorted(taken)]
        lines += [f"({left} further steps are not listed)"] if left else []
        return "\n".join(lines) or NOTHING


def _in_turn(before: Sequence[int], after: Sequence[int]) -> Iterator[int]:
    for place in range(max(len(before), 2 * len(after)) + 1):
        yield from before[2 * place : 2 * place + 2]
        yield from after[place : place + 1]


def _line(trace: Trace, place: int) -> str:
    one = trace.seen[place]
    done = [f"{call.words}{f' (failed: {call.error})' if call.error else ''}" for call in one.calls]
    said = "; ".join(done) or one.malformed or "no call"
    return harmless(f"{one.step}: {' '.join(said.split())}")


def _best(scores: Iterator[Scored]) -> str:
    best = max((one.score for one in scores), default=None)
    return "nothing was scored" if best is None else f"{best:g}"


def _evaluations(scores: Sequence[Scored], last: int, room: int) -> list[str]:
    """A line for each score, those near `last` where there are too many."""
    if not scores:
        return ["Nothing was evaluated."]
    near = sorted(scores, key=lambda one: abs(one.step - last))[:room]
    lines = [f"step {one.step}: {one.score:g}" for one in scores if one in near]
    left = len(scores) - len(lines)
    return lines + ([f"({left} further evaluations are not listed)"] if left else [])


def _guidance(trace: Trace, tokens: Counting, room: int) -> str:
    """Every message with the step at which it was heard; the newest are the last to be cut."""
    heard = [(step.step, said_safely(one)) for step in trace.steps for one in step.guidance]
    if not heard:
        return NOTHING
    shown = shortening.fit([one for _, one in heard], room, tokens.count)
    lines = [
        f"step {step}:{real_user.render([one], shown)}"
        for step, one in heard
        if shown.get(one.id) != 0
    ]
    left = len(heard) - len(lines)
    return "\n".join(([f"({left} older messages do not fit)"] if left else []) + lines)


def _limits(trace: Trace) -> str:
    budget = trace.task.budget
    gpus = ", ".join(f"{count} on {host}" for host, count in trace.gpus.items())
    return (
        f"{budget.steps} steps, {budget.active_seconds / 3600:g} hours of work, "
        f"{budget.evaluations} submissions. GPUs: {gpus or 'none leased'}. "
        f"The rollout has {'ended' if trace.ended else 'not ended'} after "
        f"{trace.steps[-1].step if trace.steps else 0} steps."
    )
