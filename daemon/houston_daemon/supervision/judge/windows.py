"""Windows: whole steps framed one by one, as many as fit an engine together with their answer.

A window shows the steps it asks about, a few before and one after as context, and the surroundings
of the rollout. A step that would fill a window alone is cut in its middle and says so. It knows
sizes in tokens and nothing of engines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from houston_daemon.supervision.judge import answers
from houston_daemon.supervision.judge.framing import Counting, Shown, framed, key_for, shown
from houston_daemon.supervision.judge.surroundings import Surroundings
from houston_daemon.supervision.judge.template import Template
from houston_daemon.supervision.trace import Trace
from houston_shared.errors import ConfigurationError
from houston_shared.records import StepRecord

MOST = 32
"""Steps that one answer is about: longer lists are judged less well and lost together."""
BEFORE, AFTER = 2, 1
"""Steps of context."""
CONTEXT = 1 / 16
"""Most of a window that one step of context may take."""
LARGEST = 2 / 3
"""Most of what is left for steps that one step may take."""
SPARE = 64
"""Tokens for frames and turns that are not counted one by one."""


@dataclass(frozen=True, slots=True)
class Window:
    """One question to a judge."""

    rollout: str
    judged: tuple[int, ...]
    """Numbers of the steps that are asked about."""
    system: str
    message: str
    tokens: int
    """Of the prompt, about."""
    shortened: int
    """How many of the judged steps are not shown whole."""

    @property
    def answer_tokens(self) -> int:
        """Most tokens of the answer."""
        return answers.tokens(len(self.judged))


class Planner:
    """Cuts one rollout into windows of at most `size` tokens, answer included."""

    def __init__(self, trace: Trace, template: Template, tokens: Counting, size: int) -> None:
        """Raises ConfigurationError where a window has no room for any step."""
        self._trace = trace
        self._template = template
        self._tokens = tokens
        self._around = Surroundings(trace, tokens, size)
        self._context = int(size * CONTEXT)
        self._shorter: dict[int, Shown] = {}
        """Steps as context, which several windows show."""
        self._frame = tokens.count(framed([Shown(99_999, "", True, 0)], _context, "0" * 8))
        self._system = tokens.count(template.system)
        self._room = size - self._fixed() - (BEFORE + AFTER) * self._context - SPARE
        if self._room < 2 * answers.tokens(1):
            raise ConfigurationError(
                f"A window of {size} tokens is too small for the judge's template, the task and a"
                " step.",
                "Nothing was judged.",
                "Name a larger --window, another engine, or a shorter template.",
            )

    def windows(self, steps: Sequence[int]) -> Iterator[Window]:
        """Windows that ask about each of `steps` once, in order."""
        taken: list[Shown] = []
        used = answers.FRAME_TOKENS
        for number in steps:
            record = self._trace.step(number)
            if record is None:
                continue
            one, cost = self._shown(record)
            if taken and (used + cost > self._room or len(taken) == MOST):
                yield self._window(taken)
                taken, used = [], answers.FRAME_TOKENS
            taken.append(one)
            used += cost
        if taken:
            yield self._window(taken)

    def _shown(self, record: StepRecord) -> tuple[Shown, int]:
        limit = int(self._room * LARGEST) - answers.STEP_TOKENS - answers.FRAME_TOKENS
        one = shown(record, self._tokens, limit)
        return one, one.tokens + self._frame + answers.STEP_TOKENS

    def _window(self, taken: Sequence[Shown]) -> Window:
        judged = tuple(one.step for one in taken)
        before, after = self._beside(judged[0], judged[-1])
        found = {one.step: one for one in (*before, *after)}
        found |= {one.step: one for one in taken}
        all_shown = [found[number] for number in sorted(found)]
        key = key_for([one.text for one in all_shown])
        asked = ", ".join(map(str, judged))
        gaps = dict(self._around.gaps(all_shown[0].step, all_shown[-1].step))
        gaps |= {"key": key, "judged": asked}
        gaps["steps"] = framed(all_shown, lambda step: step not in judged, key)
        message = self._template.message(gaps)
        size = self._tokens.count(self._template.message({**gaps, "steps": ""})) + SPARE
        size += self._system + sum(one.tokens + self._frame for one in all_shown)
        cut = sum(not one.whole for one in taken)
        return Window(self._trace.rollout, judged, self._template.system, message, size, cut)

    def _beside(self, first: int, last: int) -> tuple[list[Shown], list[Shown]]:
        """Steps before `first` and after `last`, for context."""
        before = self._trace.before(first)[-BEFORE:]
        after = [self._trace.step(number) for number in range(last + 1, last + 1 + AFTER)]
        return self._short(before), self._short([one for one in after if one is not None])

    def _short(self, steps: Sequence[StepRecord]) -> list[Shown]:
        for one in steps:
            if one.step not in self._shorter:
                self._shorter[one.step] = shown(one, self._tokens, self._context)
        return [self._shorter[one.step] for one in steps]

    def _fixed(self) -> int:
        """Tokens of a window without any step of its own: the largest that it may be."""
        gaps = dict(self._around.gaps(1, self._trace.steps[-1].step if self._trace.steps else 1))
        gaps |= {"key": "0" * 8, "judged": "00000, " * MOST, "steps": ""}
        outline = self._around.outline_room
        again = self._template.once_more("x" * answers.LONGEST, "00000, " * MOST)
        words = (self._template.system, self._template.message(gaps), again)
        return sum(map(self._tokens.count, words)) + outline


def _context(_: int) -> bool:
    """The longer form of a frame, to reckon with."""
    return True
