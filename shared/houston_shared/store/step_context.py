"""The exact request of a step: its messages, its token ids, and the text these decode to.

Nothing is stored for it but a fork and the events after it (docs/design.md#the-store). prompt(s) =
(prompt(parent) + sampled(parent))[:kept] + new ids: the chain is first walked over the small table,
so that only the bodies are read that hold some of the prompt, and the cost follows the prompt's
length and not that of the rollout. Two requests are compared message by message to say what one
step changed. Decoding is slow the first time: it loads the tokenizer.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from houston_shared import context_messages
from houston_shared.context_messages import ContextBody
from houston_shared.errors import HoustonError, NotFound
from houston_shared.records import (
    LOOKAHEAD_KEY,
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Message,
    ObservationBody,
    StepRecord,
)
from houston_shared.store import annotation_queries, journal_events, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan, Row, RunSql
from houston_shared.store.rollout_queries import ForkRow, RolloutRow, SampleRow
from houston_shared.store.store_reader import Reader

_LEDGER_WALK = """
WITH RECURSIVE walk (seq, parent_seq, kept, new_ids, sampled_ids) AS (
    SELECT seq, parent_seq, kept, new_ids, sampled_ids FROM samples WHERE seq = ?
    UNION ALL
    SELECT s.seq, s.parent_seq, s.kept, s.new_ids, s.sampled_ids
    FROM samples s JOIN walk w ON s.seq = w.parent_seq WHERE w.kept > 0
) SELECT * FROM walk
"""


class _SampleIds(msgspec.Struct, frozen=True):
    """The ids of a sample's body; decoding skips everything else."""

    new_prompt_ids: list[int] | None = None
    token_ids: list[int] | None = None


class _PromptPiece(NamedTuple):
    """A stretch of the prompt: the first `length` ids of one field of one sample."""

    seq: int
    sampled: bool
    length: int


class TokenIdsErased(Exception):
    """Some of the ids were erased from the journal."""


def read_prompt_ids(sample_seq: int) -> ReadPlan[list[int] | None]:
    """Ids of the prompt of this sample; None when its engine works without token ids.

    Raises TokenIdsErased when a body that holds some of them was erased, and HoustonError when the
    chain of parents is broken.
    """
    rows = yield RunSql(_LEDGER_WALK, (sample_seq,))
    if not rows or rows[0][3] is None:
        return None
    pieces = _prompt_pieces({row[0]: row for row in rows}, sample_seq)
    bodies = yield from _read_sample_ids([piece.seq for piece in pieces])
    prompt: list[int] = []
    for piece in pieces:
        ids = bodies[piece.seq].token_ids if piece.sampled else bodies[piece.seq].new_prompt_ids
        if ids is None or len(ids) < piece.length:
            raise _broken_ledger(piece.seq)
        prompt += ids[: piece.length]
    return prompt


def _prompt_pieces(chain: dict[int, Row], sample_seq: int) -> list[_PromptPiece]:
    """Where each stretch of the prompt lies, first to last."""
    _, parent, wanted_ids, new_ids, _ = chain[sample_seq]
    pieces = [_PromptPiece(sample_seq, False, new_ids)]
    while wanted_ids:
        if parent not in chain:
            raise _broken_ledger(sample_seq)
        seq, parent, kept_ids, new_ids, sampled_ids = chain[parent]
        if new_ids is None or wanted_ids > kept_ids + new_ids + (sampled_ids or 0):
            raise _broken_ledger(seq)
        if wanted_ids > kept_ids + new_ids:
            pieces.append(_PromptPiece(seq, True, wanted_ids - kept_ids - new_ids))
        if wanted_ids > kept_ids:
            pieces.append(_PromptPiece(seq, False, min(wanted_ids - kept_ids, new_ids)))
        wanted_ids = min(wanted_ids, kept_ids)
    return pieces[::-1]


def _read_sample_ids(seqs: list[int]) -> ReadPlan[dict[int, _SampleIds]]:
    bodies: dict[int, _SampleIds] = {}
    for seq, event in (yield from journal_events.events_by_seq(list(dict.fromkeys(seqs)))).items():
        if event.erased:
            raise TokenIdsErased
        bodies[seq] = yield from journal_events.read_event_record(event, _SampleIds, _SampleIds())
    return bodies


def _broken_ledger(seq: int) -> HoustonError:
    return HoustonError(
        f"The ledger is broken at event {seq}: its prompt cannot be rebuilt.",
        "The token ids of this request cannot be shown.",
        "houston verify",
    )


WITHOUT_IDS_NOTE = "The engine works without token ids: `rendered` is made from the messages."
ERASED_IDS_NOTE = (
    "Some token ids were erased from the journal: `rendered` is made from the messages."
)


class SampledRequest(NamedTuple):
    """What the journal holds of one request."""

    rollout: str
    step: int
    attempt: int
    sample: SampleRow
    parent: SampleRow | None
    """The sample that this prompt extends."""
    head: ContextHead | None
    messages: list[Message]
    token_ids: list[int] | None
    """The prompt, exactly as it was sent; None without token ids."""
    note: str
    """Why there are no token ids; empty when there are."""


class ContextView(NamedTuple):
    """One request as people and programs see it: the JSON of `context --json` and the inspector."""

    messages: list[Message]
    rendered: str
    """The prompt's ids, decoded; made from the messages where there are none."""
    token_ids: list[int] | None
    drift: str
    """How this prompt relates to the one before: clean, stripped, realigned, forked."""
    parent: SampleRow | None
    sample: SampleRow
    note: str
    """What a reader should know about `rendered`; empty when it is what was sent."""
    tools: tuple[dict[str, Any], ...] = ()
    """Schemas of the tools that were offered, in OpenAI's form. Where there are ids they are part
    of `rendered`; other engines get them beside the messages. Not in the JSON."""


def read_context(
    reader: Reader, rollout: str, step: int, attempt: int | None = None
) -> ContextView:
    """The request of the policy's sample at a step (its current attempt unless named).

    rollout: a whole id. Raises HoustonError when there is no such step or its ledger is broken.
    """
    return decode_context(reader.run(read_request(rollout, step, attempt)))


def read_request(rollout: str, step: int, attempt: int | None = None) -> ReadPlan[SampledRequest]:
    """Everything of a request but its decoded text; see `context_at`."""
    row = yield from _read_step_row(rollout, step, attempt)
    sample = yield from _read_policy_sample(row)
    rollout_row = yield from rollout_queries.find_rollout(rollout)
    head = yield from rollout_queries.read_rollout_head(rollout_row)
    parent = yield from rollout_queries.find_sample(sample.parent_seq)
    note = "" if sample.new_ids is not None else WITHOUT_IDS_NOTE
    try:
        ids = yield from read_prompt_ids(row.sample_seq)
    except TokenIdsErased:
        ids, note = None, ERASED_IDS_NOTE
    failed = (yield from _read_failed_attempts(row)) if sample.role == "lookahead" else []
    messages = yield from _read_context_messages(rollout_row, step, head, failed)
    return SampledRequest(rollout, step, row.attempt, sample, parent, head, messages, ids, note)


def read_request_messages(rollout: str, step: int) -> ReadPlan[list[Message]]:
    """The messages of the request of a step, without its ids."""
    rollout_row = yield from rollout_queries.find_rollout(rollout)
    head = yield from rollout_queries.read_rollout_head(rollout_row)
    return (yield from _read_context_messages(rollout_row, step, head))


def count_cached_characters(request: SampledRequest, rendered: str) -> int | None:
    """How much of `rendered` the engine had in its cache; None where that cannot be told.

    rendered: the request's ids, decoded. A character that the last of the cached tokens only
    begins is not counted.
    """
    cached = request.sample.cached_tokens
    if cached is None or request.token_ids is None:
        return None
    text, _ = _decode_ids(request.token_ids[:cached], request.head)
    if text is None:
        return None
    return _common_prefix_length(text, rendered)


def decode_context(request: SampledRequest) -> ContextView:
    """The request with its ids decoded by the tokenizer that the head names."""
    rendered, note = None, request.note
    if request.token_ids is not None:
        rendered, note = _decode_ids(request.token_ids, request.head)
    if rendered is None:
        rendered = context_messages.format_messages(request.messages)
    sample = request.sample
    tools = request.head.tools if request.head else ()
    return ContextView(
        request.messages,
        rendered,
        request.token_ids,
        sample.drift,
        request.parent,
        sample,
        note,
        tools,
    )


def context_as_json(view: ContextView) -> dict[str, Any]:
    """`context R STEP --json` (docs/design.md#commands-and-formats)."""
    parent = view.parent
    return {
        "messages": [_message_as_json(message) for message in view.messages],
        "rendered": view.rendered,
        "token_ids": view.token_ids,
        "drift": view.drift,
        "parent": None
        if parent is None
        else {
            "rollout": parent.rollout,
            "step": parent.step,
            "attempt": parent.attempt,
            "role": parent.role,
            "kept": view.sample.kept,
        },
    }


def _message_as_json(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(message)
    return fields


def _read_step_row(rollout: str, step: int, attempt: int | None) -> ReadPlan[step_queries.StepRow]:
    rows = yield from step_queries.list_step_rows(rollout, step, step, attempts=attempt is not None)
    for row in rows:
        if attempt in (None, row.attempt):
            return row
    newest = yield from step_queries.find_last_step(rollout)
    subject = f"step {step}" if attempt is None or not rows else f"attempt {attempt} of step {step}"
    steps = f"It has steps 1 to {newest}." if newest else "It has no step yet."
    raise NotFound(f"Rollout {rollout} has no {subject}.", steps, f"houston steps {rollout}")


def _read_policy_sample(row: step_queries.StepRow) -> ReadPlan[SampleRow]:
    sample = yield from rollout_queries.find_sample(row.sample_seq)
    if sample is None:
        raise HoustonError(
            f"The ledger has no entry for step {row.step} of rollout {row.rollout}.",
            "Its request cannot be shown.",
            "houston verify",
        )
    return sample


def _read_context_messages(
    rollout: RolloutRow,
    step: int,
    head: ContextHead | None,
    failed: Sequence[StepRecord] = (),
) -> ReadPlan[list[Message]]:
    """The messages of the context that `step` was sampled in, then those of failed attempts."""
    spec = yield from rollout_queries.read_rollout_spec(rollout)
    body = yield from _read_context_body(rollout.id, step)
    body = body._replace(steps=[*body.steps, *failed])
    return context_messages.build_messages(head, body, strip=spec.thoughts == "strip")


def _read_failed_attempts(row: step_queries.StepRow) -> ReadPlan[list[StepRecord]]:
    """Attempts at a step that a correction was sampled after, as they stood in its context: the
    end of each one's observation is a parameter of the correction after it."""
    every = yield from step_queries.read_steps(row.rollout, row.step, row.step, attempts=True)
    attempts = [step for step in every if step.attempt <= row.attempt]
    tails = [step.sample.parameters.get(LOOKAHEAD_KEY, {}).get("tail", "") for step in attempts[1:]]
    return [
        replace(step, observation=ObservationBody(tail=tail))
        for step, tail in zip(attempts, tails, strict=False)
    ]


def _read_context_body(rollout: str, step: int) -> ReadPlan[ContextBody]:
    forks = yield from rollout_queries.list_forks(rollout)
    earlier_forks = [fork for fork in forks if fork.step <= step]
    if not earlier_forks:
        return ContextBody(
            None, None, (), (yield from step_queries.read_steps(rollout, 1, step - 1))
        )
    fork = earlier_forks[-1]
    body = yield from rollout_queries.read_fork_body(fork)
    guidance = yield from read_kept_guidance(rollout, fork, body)
    last = yield from step_queries.read_step(rollout, fork.first_kept_step - 1)
    steps = yield from step_queries.read_steps(rollout, fork.first_kept_step, step - 1)
    return ContextBody(body, last, guidance, steps)


def read_kept_guidance(
    rollout: str, fork: ForkRow, body: ForkBody
) -> ReadPlan[Sequence[DeliveredGuidance]]:
    """Guidance that the fork keeps verbatim, in its order."""
    delivered = yield from annotation_queries.list_delivered_guidance(
        rollout, 1, fork.first_kept_step - 1
    )
    by_id = {message.id: message for joined in delivered.values() for message in joined}
    return [by_id[id] for id in body.guidance if id in by_id]


def _decode_ids(ids: list[int], head: ContextHead | None) -> tuple[str | None, str]:
    """The text of the ids, or None and why there is none."""
    file = head.tokenizer if head else ""
    if not file:
        return None, "The head names no tokenizer: `rendered` is made from the messages."
    try:
        tokenizer = _load_tokenizer(file)
    except ImportError:
        return None, (
            "The package `tokenizers` is not installed: `rendered` is made from the messages."
        )
    except _UnusableTokenizer as problem:
        return None, f"{problem} `rendered` is made from the messages."
    return str(tokenizer.decode(ids, skip_special_tokens=False)), ""


class _UnusableTokenizer(Exception):
    """A tokenizer file that cannot be read."""


@lru_cache(maxsize=4)
def _load_tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer  # only here: 17 ms, and 0.1 s for a file

    if not Path(file).is_file():
        raise _UnusableTokenizer(f"The tokenizer file {file} does not exist.")
    try:
        return Tokenizer.from_file(file)
    except Exception as problem:  # noqa: BLE001  # the library raises nothing narrower
        raise _UnusableTokenizer(f"The tokenizer file {file} cannot be read ({problem}).") from None


_OMISSION_MARK = re.compile(r"\[… [^\]\n]{1,300}\]")
"""How every part of Houston declares what it left out of a text."""


class NumberedMessage(NamedTuple):
    """A message and its place in its request, from 1."""

    number: int
    message: Message


class ContextChange(NamedTuple):
    """What two requests have in common, and what only one of them has."""

    kept: int
    """Messages that both have, in the same order."""
    gone: list[NumberedMessage]
    """Only the earlier one has them; numbered there."""
    new: list[NumberedMessage]
    """Only the later one has them; numbered there."""


class SummarisedSteps(NamedTuple):
    """Steps that stand in a context as a summary."""

    first: int
    last: int
    before: int
    """The step whose request had the summary first."""
    mechanical: bool
    """Made without the model, after failed tries."""
    by: str = ""
    """Engine that wrote it, where that is not the rollout's, and its policy."""


class TextOmission(NamedTuple):
    """A text that says that something was left out of it."""

    number: int
    """Of the message, from 1."""
    words: str
    """As the model reads it."""


class ContextSurroundings(NamedTuple):
    """What the prompt inspector needs beside a request."""

    before: list[Message] | None
    """Messages of the step before; None for the first step."""
    summarised: list[SummarisedSteps]
    """Oldest first."""


def read_context_surroundings(rollout: str, step: int) -> ReadPlan[ContextSurroundings]:
    """The request before that of `step`, and what forks took out of the context until then."""
    before = (yield from read_request_messages(rollout, step - 1)) if step > 1 else None
    summarised: list[SummarisedSteps] = []
    own = "summary" in rollout_queries.role_engines(
        (yield from rollout_queries.find_rollout(rollout))
    )
    first = 1
    for fork in (yield from rollout_queries.list_forks(rollout)):
        if fork.step <= step:
            last = fork.first_kept_step - 1
            sample = (yield from rollout_queries.find_sample(fork.sample_seq)) if own else None
            by = " ".join(filter(None, (sample.engine, sample.policy))) if sample else ""
            summarised.append(SummarisedSteps(first, last, fork.step, bool(fork.mechanical), by))
            first = fork.first_kept_step
    return ContextSurroundings(before, summarised)


def compare_contexts(before: Sequence[Message], after: Sequence[Message]) -> ContextChange:
    """Compare two requests message by message; messages are the same when every byte is."""
    first = [msgspec.msgpack.encode(message) for message in before]
    second = [msgspec.msgpack.encode(message) for message in after]
    start = _common_prefix_length(first, second)
    matcher = SequenceMatcher(None, first[start:], second[start:], autojunk=False)
    old = [NumberedMessage(number, message) for number, message in enumerate(before, 1)][start:]
    new = [NumberedMessage(number, message) for number, message in enumerate(after, 1)][start:]
    common = start
    for a, b, size in reversed(matcher.get_matching_blocks()):
        del old[a : a + size], new[b : b + size]
        common += size
    return ContextChange(common, old, new)


def find_omissions(messages: Sequence[Message]) -> list[TextOmission]:
    """Texts that say that something was left out; a system prompt only explains such words."""
    return [
        TextOmission(number, place.group())
        for number, message in enumerate(messages, 1)
        if message.role in ("user", "tool")
        for place in _OMISSION_MARK.finditer(message.content)
    ]


def context_change_as_json(
    change: ContextChange, surroundings: ContextSurroundings, step: int
) -> dict[str, Any]:
    """`context R STEP --diff --json`."""
    return {
        "step": step,
        "before": step - 1 if surroundings.before is not None else None,
        "kept": change.kept,
        "gone": [_message_line(entry) for entry in change.gone],
        "new": [_message_line(entry) for entry in change.new],
        "summarised": [summary._asdict() for summary in surroundings.summarised],
    }


def _message_line(entry: NumberedMessage) -> dict[str, Any]:
    return {"number": entry.number, **msgspec.to_builtins(entry.message)}


def _common_prefix_length(first: Sequence[object], second: Sequence[object]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
