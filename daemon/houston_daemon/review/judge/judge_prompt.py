"""What a judge is shown: framed steps, the rollout around them, and windows that fit the engine.

`judge_template` has the words. Steps are framed one by one with a key that occurs nowhere in them;
text of agents, programs and files is made harmless and free of secrets. A window holds whole steps,
a few as context, and task, limits, scores and guidance, each with a share of the tokens. The module
knows sizes in tokens and nothing of engines.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from houston_daemon.review.attention_window import ObservedStep
from houston_daemon.review.judge import judge_answers
from houston_daemon.review.judge.judge_template import JudgeTemplate
from houston_daemon.review.rollout_trace import RolloutTrace, ScoredStep
from houston_shared import context_messages, guidance_tag
from houston_shared.errors import ConfigurationError
from houston_shared.records import DeliveredGuidance, StepRecord
from houston_shared.safe_text import safe
from houston_shared.secret_redaction import redact

FRAME_KEY_CHARACTERS = 8
"""Characters of a window's key."""
THOUGHT_SHARE, CALLS_SHARE = 0.25, 0.375
"""Shares of a step that is too long, for its thought and its calls; the observation has the rest
and whatever those leave."""
EMPTY_PART = "(none)"
_FRAME_LOOKALIKE = re.compile(
    r"[\[\u3010\uff3b]([^\[\]\n]{0,60}\b(?:step\W{0,3}\d{1,9}|summary|outline)\W{1,3}(?:begins|ends)"
    r"[^\[\]\n]{0,60})"
    r"[\]\u3011\uff3d]",
    re.IGNORECASE,
)
_MODEL_MARKUP = re.compile(
    r"<(?=[|\uff5c]|/?s>|(?:start|end)_of_turn>|/?think>)|\[(?=/?(?:INST|gMASK)\])", re.IGNORECASE
)
"""How families of models write turns: a chat endpoint may take them for its own."""
_STEP_HEADING = re.compile(
    r"^([ \t]*)(#{1,6}[ \t]*(?:thought|calls|observation|a person said)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""The headings of a step: a thought that writes one would claim an observation that never was."""


class TokenCounter(Protocol):
    """What counts and cuts text in tokens (`prompts.prompt_tokenizer`)."""

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def cut(self, text: str, limit: int, label: str) -> str:
        """The text with its middle left out where it has more than `limit` tokens; says so."""
        ...


class StepText(NamedTuple):
    """A step as text, without its frame."""

    step: int
    text: str
    is_complete: bool
    """Whether nothing of it was left out."""
    tokens: int
    """Of the text, as counted: a long rollout is counted once."""


def harmless_text(text: str) -> str:
    """Text of an agent, a program or a file as a judge may read it."""
    return _without_frames(guidance_tag.disarm(safe(redact(text))).text)


def guidance_text(guidance: Sequence[DeliveredGuidance], tokens: TokenCounter, room: int) -> str:
    """Guidance, each message in its live tag, the older ones cut where they exceed `room`."""
    clean = [harmless_guidance(message) for message in guidance]
    return guidance_tag.render_guidance(
        clean, context_messages.fit_guidance(clean, room, tokens.count)
    )


def harmless_guidance(message: DeliveredGuidance) -> DeliveredGuidance:
    """Guidance with nothing in it that could end a frame; `guidance_tag` guards its tag."""
    return DeliveredGuidance(
        id=message.id, author=message.author, text=_without_frames(safe(redact(message.text)))
    )


def _without_frames(text: str) -> str:
    harmless = _STEP_HEADING.sub(r"\1(\2)", _FRAME_LOOKALIKE.sub(r"(\1)", text))
    return _MODEL_MARKUP.sub(lambda markup: f"{markup.group()} ", harmless)


def render_step(step: StepRecord, tokens: TokenCounter, limit: int) -> StepText:
    """A closed step as text of at most about `limit` tokens."""
    thought = harmless_text(step.sample.thought) or EMPTY_PART
    calls = "\n".join(_call_text(number, call) for number, call in _numbered_calls(step))
    tail = step.observation.tail if step.observation else ""
    observation = (
        harmless_text(context_messages.observation_text(step.results, tail, ())) or EMPTY_PART
    )
    guidance = guidance_text(step.guidance, tokens, limit // 3)
    text = _join_step_parts(thought, calls, observation, guidance)
    size = tokens.count(text)
    if size <= limit:
        return StepText(step.step, text, True, size)
    room = max(3, limit - tokens.count(_join_step_parts("", "", "", guidance)))
    thought = tokens.cut(thought, max(1, int(room * THOUGHT_SHARE)), "the thought")
    calls = tokens.cut(calls, max(1, int(room * CALLS_SHARE)), "the action")
    rest = room - tokens.count(thought) - tokens.count(calls)
    observation = tokens.cut(observation, max(1, rest), "the observation")
    text = _join_step_parts(thought, calls, observation, guidance)
    return StepText(step.step, text, False, tokens.count(text))


def frame_steps(steps: Sequence[StepText], context: Callable[[int], bool], key: str) -> str:
    """Steps in their frames. context: whether a step is there only as context for the others."""
    return "\n".join(_frame_step(step, context(step.step), key) for step in steps)


def frame_key(texts: Sequence[str]) -> str:
    """A key that stands in none of the texts, the same for the same texts."""
    joined = "\n".join(texts)
    salt = 0
    while True:
        key = hashlib.sha256(f"{salt}\n{joined}".encode(errors="replace")).hexdigest()[
            :FRAME_KEY_CHARACTERS
        ]
        if key not in joined:
            return key
        salt += 1


def _frame_step(step: StepText, context: bool, key: str) -> str:
    begins = f"[{key} step {step.step} begins{', context only' if context else ''}]"
    return f"{begins}\n{step.text}\n[{key} step {step.step} ends]"


def _join_step_parts(thought: str, calls: str, observation: str, guidance: str) -> str:
    guidance_part = f"\n## a person said{guidance}" if guidance else ""
    return f"## thought\n{thought}\n## calls\n{calls}\n## observation\n{observation}{guidance_part}"


def _numbered_calls(step: StepRecord) -> list[tuple[int, Any]]:
    if step.sample.malformed:
        return [(0, step.sample.malformed)]
    return list(enumerate(step.sample.calls, 1)) or [(0, "no call")]


def _call_text(number: int, call: Any) -> str:
    if not number:
        return f"(none: {harmless_text(call)})"
    written = [f"{name}: {_argument_text(value)}" for name, value in call.arguments.items()]
    wrong = f" (cannot be run: {call.error})" if call.error else ""
    return harmless_text("\n".join([f"{number}. {call.name}{wrong}", *written]))


def _argument_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


TASK_SHARE, GUIDANCE_SHARE, SCORES_SHARE, OUTLINE_SHARE = 1 / 8, 1 / 6, 1 / 16, 1 / 12
"""Most of a window that each part may take."""
SCORE_LINE_TOKENS = 12
"""Tokens of a line of the scores, about."""


class WindowSurroundings:
    """The parts of one rollout, for windows of `window` tokens."""

    def __init__(self, trace: RolloutTrace, tokens: TokenCounter, window: int) -> None:
        self._trace = trace
        self._tokens = tokens
        self._window = window
        self._task = tokens.cut(
            harmless_text(trace.instructions), int(window * TASK_SHARE), "the task"
        )
        self._guidance = _guidance_part(trace, tokens, int(window * GUIDANCE_SHARE))
        self._limits = _limits_part(trace)
        self._lines = {observed.step: outline_line(observed) for observed in trace.observed_steps}

    @property
    def outline_room(self) -> int:
        """Most tokens of the lines for other steps."""
        return int(self._window * OUTLINE_SHARE)

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
            best = _best_score_words(self._trace.scores, summaries[-1])
            lines.append(f"The best before the last summary (before step {summaries[-1]}): {best}.")
        else:
            lines.append("There was no summary yet.")
        before = _best_score_words(self._trace.scores, first)
        lines.append(f"The best before step {first}: {before}.")
        room = max(4, int(self._window * SCORES_SHARE) // SCORE_LINE_TOKENS)
        return "\n".join([*lines, *_score_lines(self._trace.scores, last, room)])

    def _outline(self, first: int, last: int) -> str:
        """The nearest other steps, one line each, two before for one after."""
        room = self.outline_room
        before = [n for n in self._lines if n < first][::-1]
        after = [n for n in self._lines if n > last]
        listed: list[int] = []
        for number in _interleave_steps(before, after):
            room -= self._tokens.count(self._lines[number]) + 1
            if room < 0:
                break
            listed.append(number)
        omitted = len(before) + len(after) - len(listed)
        lines = [self._lines[number] for number in sorted(listed)]
        lines += [f"({omitted} further steps are not listed)"] if omitted else []
        return "\n".join(lines) or EMPTY_PART


def _interleave_steps(before: Sequence[int], after: Sequence[int]) -> Iterator[int]:
    for place in range(max(len(before), 2 * len(after)) + 1):
        yield from before[2 * place : 2 * place + 2]
        yield from after[place : place + 1]


def outline_line(observed: ObservedStep) -> str:
    """A step in one line: its calls, and what failed."""
    calls = [
        call.summary + (f" (failed: {call.error})" if call.error else "") for call in observed.calls
    ]
    summary = "; ".join(calls) or observed.malformed or "no call"
    return harmless_text(f"{observed.step}: {' '.join(summary.split())}")


def _best_score_words(scores: Sequence[ScoredStep], before: int) -> str:
    best = max((scored.score for scored in scores if scored.step < before), default=None)
    return "nothing was scored" if best is None else f"{best:g}"


def _score_lines(scores: Sequence[ScoredStep], last: int, room: int) -> list[str]:
    """A line for each score, those near `last` where there are too many."""
    if not scores:
        return ["Nothing was evaluated."]
    near = sorted(scores, key=lambda scored: abs(scored.step - last))[:room]
    lines = [f"step {scored.step}: {scored.score:g}" for scored in scores if scored in near]
    omitted = len(scores) - len(lines)
    return lines + ([f"({omitted} further evaluations are not listed)"] if omitted else [])


def _guidance_part(trace: RolloutTrace, tokens: TokenCounter, room: int) -> str:
    """Every message with the step at which it was heard; the newest are the last to be cut."""
    messages = [
        (step.step, harmless_guidance(item)) for step in trace.steps for item in step.guidance
    ]
    if not messages:
        return EMPTY_PART
    shown_lengths = context_messages.fit_guidance(
        [message for _, message in messages], room, tokens.count
    )
    lines = [
        f"step {step}:{guidance_tag.render_guidance([message], shown_lengths)}"
        for step, message in messages
        if shown_lengths.get(message.id) != 0
    ]
    omitted = len(messages) - len(lines)
    return "\n".join(([f"({omitted} older messages do not fit)"] if omitted else []) + lines)


def _limits_part(trace: RolloutTrace) -> str:
    budget = trace.task.budget
    gpus = ", ".join(f"{count} on {host}" for host, count in trace.gpus.items())
    return (
        f"{budget.steps} steps, {budget.active_seconds / 3600:g} hours of work, "
        f"{budget.evaluations} submissions. GPUs: {gpus or 'none leased'}. "
        f"The rollout has {'ended' if trace.ended else 'not ended'} after "
        f"{trace.steps[-1].step if trace.steps else 0} steps."
    )


MAX_JUDGED_STEPS = 32
"""Steps that one answer is about: longer lists are judged less well and lost together."""
CONTEXT_BEFORE, CONTEXT_AFTER = 2, 1
"""Steps of context."""
CONTEXT_STEP_SHARE = 1 / 16
"""Most of a window that one step of context may take."""
STEP_SHARE = 2 / 3
"""Most of what is left for steps that one step may take."""
SPARE_TOKENS = 64
"""Tokens for frames and turns that are not counted one by one."""


@dataclass(frozen=True, slots=True)
class JudgeWindow:
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
        return judge_answers.answer_tokens_for(len(self.judged))


class WindowPlanner:
    """Cuts one rollout into windows of at most `size` tokens, answer included."""

    def __init__(
        self, trace: RolloutTrace, template: JudgeTemplate, tokens: TokenCounter, size: int
    ) -> None:
        """Raises ConfigurationError where a window has no room for any step."""
        self._trace = trace
        self._template = template
        self._tokens = tokens
        self._surroundings = WindowSurroundings(trace, tokens, size)
        self._context = int(size * CONTEXT_STEP_SHARE)
        self._shorter: dict[int, StepText] = {}
        """Steps as context, which several windows show."""
        longest = frame_steps([StepText(99_999, "", True, 0)], lambda _: True, "0" * 8)
        self._frame = tokens.count(longest)
        self._system = tokens.count(template.system)
        self._room = (
            size
            - self._base_tokens()
            - (CONTEXT_BEFORE + CONTEXT_AFTER) * self._context
            - SPARE_TOKENS
        )
        if self._room < 2 * judge_answers.answer_tokens_for(1):
            raise ConfigurationError(
                f"A window of {size} tokens is too small for the judge's template, the task and a"
                " step.",
                "Nothing was judged.",
                "Name a larger --window, another engine, or a shorter template.",
            )

    def windows(self, steps: Sequence[int]) -> Iterator[JudgeWindow]:
        """Windows that ask about each of `steps` once, in order."""
        window_steps: list[StepText] = []
        used = judge_answers.FRAME_TOKENS
        for number in steps:
            record = self._trace.step(number)
            if record is None:
                continue
            text, cost = self._fit_step(record)
            if window_steps and (used + cost > self._room or len(window_steps) == MAX_JUDGED_STEPS):
                yield self._window(window_steps)
                window_steps, used = [], judge_answers.FRAME_TOKENS
            window_steps.append(text)
            used += cost
        if window_steps:
            yield self._window(window_steps)

    def _fit_step(self, record: StepRecord) -> tuple[StepText, int]:
        limit = (
            int(self._room * STEP_SHARE) - judge_answers.STEP_TOKENS - judge_answers.FRAME_TOKENS
        )
        text = render_step(record, self._tokens, limit)
        return text, text.tokens + self._frame + judge_answers.STEP_TOKENS

    def _window(self, texts: Sequence[StepText]) -> JudgeWindow:
        judged = tuple(text.step for text in texts)
        before, after = self._context_steps(judged[0], judged[-1])
        by_step = {text.step: text for text in (*before, *after)}
        by_step |= {text.step: text for text in texts}
        all_shown = [by_step[number] for number in sorted(by_step)]
        key = frame_key([text.text for text in all_shown])
        numbers = ", ".join(map(str, judged))
        gaps = dict(self._surroundings.gaps(all_shown[0].step, all_shown[-1].step))
        gaps |= {"key": key, "judged": numbers}
        gaps["steps"] = frame_steps(all_shown, lambda step: step not in judged, key)
        message = self._template.message(gaps)
        size = self._tokens.count(self._template.message({**gaps, "steps": ""})) + SPARE_TOKENS
        size += self._system + sum(text.tokens + self._frame for text in all_shown)
        cut = sum(not text.is_complete for text in texts)
        return JudgeWindow(self._trace.rollout, judged, self._template.system, message, size, cut)

    def _context_steps(self, first: int, last: int) -> tuple[list[StepText], list[StepText]]:
        """Steps before `first` and after `last`, for context."""
        before = self._trace.before(first)[-CONTEXT_BEFORE:]
        after = [self._trace.step(number) for number in range(last + 1, last + 1 + CONTEXT_AFTER)]
        return self._short(before), self._short([step for step in after if step is not None])

    def _short(self, steps: Sequence[StepRecord]) -> list[StepText]:
        for step in steps:
            if step.step not in self._shorter:
                self._shorter[step.step] = render_step(step, self._tokens, self._context)
        return [self._shorter[step.step] for step in steps]

    def _base_tokens(self) -> int:
        """Tokens of a window without any step of its own: the largest that it may be."""
        gaps = dict(
            self._surroundings.gaps(1, self._trace.steps[-1].step if self._trace.steps else 1)
        )
        gaps |= {"key": "0" * 8, "judged": "00000, " * MAX_JUDGED_STEPS, "steps": ""}
        outline = self._surroundings.outline_room
        again = self._template.retry_message(
            "x" * judge_answers.MAX_REASON_CHARACTERS, "00000, " * MAX_JUDGED_STEPS
        )
        words = (self._template.system, self._template.message(gaps), again)
        return sum(map(self._tokens.count, words)) + outline
