"""What a critic is shown of one attempt, and how its answer is read: the same for people's drafts
and for training.

The words are in a file that a user may copy and edit (`critique.md`, in our own words by the rules
of ECHO, appendix D). The score, its parts and how the task is scored always appear in full. Steps
are shortened by declared rules, mildest first (`DETAIL_LEVELS`). The module asks no model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from houston_daemon.engines.engine_protocol import SampleRequest
from houston_daemon.prompts.decision_text import decision_of
from houston_daemon.review.judge import judge_prompt
from houston_daemon.review.judge.judge_client import (
    REASONING_TOKENS,
    JudgeClient,
    question_messages,
)
from houston_daemon.review.judge.judge_prompt import StepText, TokenCounter
from houston_daemon.review.judge.judge_template import TemplateForm, fill_gaps, template_digest
from houston_daemon.review.rollout_trace import RolloutTrace, read_trace, scored_points
from houston_shared.errors import ConfigurationError
from houston_shared.records import StepRecord
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader

NOTHING_CRITICISED = "Nothing was criticised."
FULL_SCORE = 100.0
ANSWER_TOKENS = 512
"""Most tokens of a critic's answer, reason included; a fourth of a small window."""
MAX_CRITIQUE_CHARACTERS = 1_000
"""Of what an agent is told; more is no brief suggestion."""
MIN_STEPS_TOKENS = 128
"""With room for fewer tokens of steps a critic would see nothing of the attempt."""
TASK_TOKENS = 64
"""That a task has in any case."""
SPARE_TOKENS = 64
"""For turns and frames, which are not counted one by one."""
TASK_SHARE, SUMMARY_SHARE, OUTLINE_SHARE = 1 / 4, 1 / 8, 1 / 4
"""Most of the room that the task, the newest summary and the lines for other steps may take."""
SCORE_VALUE_CHARACTERS = 200
AnswerForm = Literal["tags", "plain"]
"""`tags`: `<reason>` and `<critic>`. `plain`: the whole answer is the critique."""


class DetailLevel(NamedTuple):
    """How much is shown of the steps of an attempt."""

    step_tokens: int
    """Most tokens of a step that is shown."""
    last: int | None
    """So many of the last steps, and the first one, are shown; the others have a line each. None:
    all are."""


DETAIL_LEVELS = (
    DetailLevel(1024, None),
    DetailLevel(256, None),
    DetailLevel(256, 32),
    DetailLevel(192, 16),
    DetailLevel(128, 8),
    DetailLevel(96, 4),
    DetailLevel(64, 2),
)
"""Tried in order until an attempt fits. From the third on the newest summary of the agent, where it
wrote one, stands before the steps."""

CRITIQUE_FORM = TemplateForm(
    name="template of the critic",
    required={
        "system": frozenset(),
        "attempt": frozenset({"task", "steps", "score"}),
        "answer": frozenset(),
    },
    optional={"attempt": frozenset({"criteria", "key"})},
    packaged=Path(__file__).with_name("critique.md"),
    effect=NOTHING_CRITICISED,
    print_command="houston critique --print-template",
)
WORDS_TEMPLATE = Path(__file__).with_name("critique_words.md")
"""For models that write a few words (`words_dialect`)."""


@dataclass(frozen=True, slots=True)
class CritiqueTemplate:
    """What a critic is told."""

    system: str
    attempt: str
    answer: AnswerForm
    digest: str
    """SHA-256 of the file, hex."""


class Attempt(NamedTuple):
    """One rollout as a critic reads it."""

    trace: RolloutTrace
    score: float | None
    """Its final score, 0 to 100; None where nothing scored it."""
    summary: str = ""
    """The newest one that the agent wrote of its own earlier steps."""


class CritiquePrompt(NamedTuple):
    """A question to a critic."""

    system: str
    message: str
    level: int
    """Place in `DETAIL_LEVELS`: 0 where every step is shown as far as one may be."""


class Critique(NamedTuple):
    """What a critic said."""

    text: str
    """What the agent is to be told; empty where there is nothing to change, or nothing usable."""
    reason: str
    problem: str = ""
    """Why the answer cannot be used; empty where it can."""


def load_critique_template(file: Path | None = None, dialect: str = "") -> CritiqueTemplate:
    """The template in `file`, or the packaged one for a dialect. Raises ConfigurationError."""
    if file is None and dialect == "words":
        file = WORDS_TEMPLATE
    text = CRITIQUE_FORM.read(file)
    where = str(file or CRITIQUE_FORM.packaged)
    parts = CRITIQUE_FORM.parts(text, where)
    form = parts["answer"]
    for answer_form in get_args(AnswerForm):
        if form == answer_form:
            return CritiqueTemplate(
                parts["system"], parts["attempt"], answer_form, template_digest(text)
            )
    raise ConfigurationError(
        f"{where}: its part `answer` is {form!r}, neither `tags` nor `plain`.",
        NOTHING_CRITICISED,
        CRITIQUE_FORM.print_command,
    )


def read_attempt(reader: Reader, rollout: str) -> Attempt:
    """The rollout with this whole id. Raises HoustonError where its texts are gone."""
    row = reader.run(rollout_queries.find_rollout(rollout))
    trace = read_trace(reader, rollout)
    summary = ""
    if trace.forks:
        summary = reader.run(rollout_queries.read_fork_body(trace.forks[-1])).summary
    return Attempt(trace, row.last_score, summary)


def critique_prompt(
    attempt: Attempt, template: CritiqueTemplate, tokens: TokenCounter, window: int
) -> CritiquePrompt:
    """The question about an attempt, for a window of so many tokens, answer included.

    Raises ConfigurationError where the window has no room for the score, the task and some steps.
    """
    room = window - answer_tokens(window) - SPARE_TOKENS - tokens.count(template.system)
    gaps = {
        "task": "",
        "criteria": criteria_text(attempt),
        "score": score_text(attempt),
        "key": "0" * judge_prompt.FRAME_KEY_CHARACTERS,
        "steps": "",
    }
    task = judge_prompt.harmless_text(attempt.trace.instructions)
    gaps["task"] = tokens.cut(task, max(TASK_TOKENS, int(room * TASK_SHARE)), "the task")
    room -= tokens.count(fill_gaps(template.attempt, gaps))
    if room < MIN_STEPS_TOKENS:
        raise ConfigurationError(
            f"A window of {window} tokens is too small for the critic's template, the score and"
            " some steps.",
            NOTHING_CRITICISED,
            "Name another --engine, or a shorter --template.",
        )
    framed = "{{key}}" in template.attempt
    level, key, steps = _fitting_steps(attempt, tokens, room, framed)
    message = fill_gaps(template.attempt, gaps | {"steps": steps, "key": key})
    return CritiquePrompt(template.system, message, level)


def answer_tokens(window: int) -> int:
    """Most tokens of an answer in a window of so many."""
    return min(ANSWER_TOKENS, window // 4)


def critique_request(
    client: JudgeClient, prompt: CritiquePrompt, policy: str = "", policy_hash: str = ""
) -> SampleRequest:
    """A request for one critique, sampled so that several differ. policy: adapter of the critic;
    empty: what the engine serves itself."""
    return SampleRequest(
        prompt_ids=client.encode_question(prompt.system, prompt.message),
        messages=question_messages(prompt.system, prompt.message),
        tools=(),
        max_tokens=answer_tokens(client.token_budget)
        + (REASONING_TOKENS if client.reasoning else 0),
        stop_token_ids=client.stop_token_ids,
        temperature=1.0,
        policy=policy,
        policy_hash=policy_hash,
        cache_salt=policy,
        reasoning=client.reasoning,
        role="critic",
        step=1,
    )


def criteria_text(attempt: Attempt) -> str:
    """How the task is scored."""
    task = attempt.trace.task
    scale = f"The evaluator gives 0 to {FULL_SCORE:g} points; {FULL_SCORE:g} is the full score."
    own = judge_prompt.harmless_text(task.evaluate.criteria).strip()
    return f"{own}\n{scale}" if own else scale


def score_text(attempt: Attempt) -> str:
    """The official score, and what else the last evaluation reported."""
    if attempt.score is None:
        return f"0 of {FULL_SCORE:g}: nothing was scored."
    lines = [f"{attempt.score:g} of {FULL_SCORE:g}."]
    for name, value in _last_breakdown(attempt.trace).items():
        lines.append(f"{name}: {_short(value)}")
    return judge_prompt.harmless_text("\n".join(lines))


_OWN_FIELD_NAMES = (
    "overall_score state finished counted success seconds detail snapshot evaluator_failed error"
)
_OWN_FIELDS = frozenset(_OWN_FIELD_NAMES.split())
"""Fields of an evaluation that say nothing of what a score is made of. `detail` is for people
alone: an agent hears what a critic says."""


def _last_breakdown(trace: RolloutTrace) -> Mapping[str, object]:
    """The further figures of the last evaluation that gave a score."""
    for step in reversed(trace.observed_steps):
        for call in reversed(step.calls):
            if scored_points(call) is not None:
                return {
                    name: value
                    for name, value in call.fields.items()
                    if name not in _OWN_FIELDS and value not in (None, "", (), [], {})
                }
    return {}


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    cut = len(text) > SCORE_VALUE_CHARACTERS
    return f"{text[:SCORE_VALUE_CHARACTERS]}…" if cut else text


def _fitting_steps(
    attempt: Attempt, tokens: TokenCounter, room: int, framed: bool
) -> tuple[int, str, str]:
    """Level, key of the frames and text of the steps, at the first level that fits."""
    for number, level in enumerate(DETAIL_LEVELS):
        key, text = _steps_text(attempt, tokens, room, level, framed)
        if tokens.count(text) <= room:
            return number, key, text
    return number, key, tokens.cut(text, room, "the steps")


def _steps_text(
    attempt: Attempt, tokens: TokenCounter, room: int, level: DetailLevel, framed: bool
) -> tuple[str, str]:
    """Key of the frames, and the steps at a level of detail."""
    pairs = attempt.trace.pairs
    end = 1 if level.last is None else max(1, len(pairs) - level.last)
    first, hidden, last = pairs[:1], pairs[1:end], pairs[end:]
    steps = [_step_text(step, tokens, level.step_tokens, framed) for step, _ in (*first, *last)]
    between: dict[str, str] = {}
    if hidden and attempt.summary:
        text = judge_prompt.harmless_text(attempt.summary)
        summary = tokens.cut(text, int(room * SUMMARY_SHARE), "the summary")
        between["summary"] = f"(what the agent summed up itself)\n{summary}"
    if hidden:
        lines = [judge_prompt.outline_line(observed) for _, observed in hidden]
        between["outline"] = _outline(lines, tokens, int(room * OUTLINE_SHARE))
    key = judge_prompt.frame_key([*(step.text for step in steps), *between.values()])
    if framed:
        between = {
            name: f"[{key} {name} begins]\n{text}\n[{key} {name} ends]"
            for name, text in between.items()
        }
    before, after = _frames(steps[:1], key, framed), _frames(steps[1:], key, framed)
    return key, "\n".join(filter(None, [before, *between.values(), after]))


def _outline(lines: Sequence[str], tokens: TokenCounter, room: int) -> str:
    """The newest lines that fit; the others are counted."""
    newest_lines: list[str] = []
    for line in reversed(lines):
        room -= tokens.count(line) + 1
        if room < 0:
            break
        newest_lines.append(line)
    left_out = len(lines) - len(newest_lines)
    omission_lines = [f"({left_out} steps are left out)"] if left_out else []
    return "\n".join(["(steps in a line each)", *omission_lines, *reversed(newest_lines)])


def _frames(steps: Sequence[StepText], key: str, framed: bool) -> str:
    if framed:
        return judge_prompt.frame_steps(steps, lambda step: False, key)
    return "\n".join(step.text for step in steps)


def _step_text(step: StepRecord, tokens: TokenCounter, limit: int, framed: bool) -> StepText:
    """A step of at most about `limit` tokens. Without frames: action and result, and no more."""
    if framed:
        return judge_prompt.render_step(step, tokens, limit)
    decision = decision_of(step)
    text = judge_prompt.harmless_text(
        f"{decision.action} {decision.action_input}\n{decision.result}"
    )
    cut = tokens.cut(text, limit, "the step")
    return StepText(step.step, cut, cut == text, tokens.count(cut))


def parse_critique(answer: str, form: AnswerForm) -> Critique:
    """What a critic's answer says; never raises. Words outside of the tags are passed over."""
    if form == "plain":
        return _validate_critique(answer, "")
    texts_by_tag = {name: _TAGGED[name].findall(answer) for name in _TAGGED}
    for name, texts in texts_by_tag.items():
        if len(texts) != 1:
            how = "no" if not texts else "more than one"
            return Critique("", "", f"it has {how} <{name}> … </{name}>")
    return _validate_critique(texts_by_tag["critic"][0], clean_text(texts_by_tag["reason"][0]))


def _validate_critique(text: str, reason: str) -> Critique:
    critique = clean_text(text)
    if not critique:
        return Critique("", reason, "its critique is empty")
    if len(critique) > MAX_CRITIQUE_CHARACTERS:
        return Critique(
            "", reason, f"its critique has {len(critique)} characters, which is not brief"
        )
    return Critique("" if critique.strip('."').lower() == "none" else critique, reason)


def clean_text(text: str) -> str:
    """Words of a critic as an agent and people may read them: harmless, free of secrets, and with
    no tag of a critic inside."""
    return _CRITIC_TAG.sub("", judge_prompt.harmless_text(text)).strip()


_TAGGED = {
    name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL | re.IGNORECASE)
    for name in ("reason", "critic")
}
_CRITIC_TAG = re.compile(r"</?\s*(?:critic|reason)\s*>", re.IGNORECASE)
