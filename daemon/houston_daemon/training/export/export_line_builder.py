"""Turns rows of rollouts into checked lines, one at a time: built, redacted, validated, counted.

A row that the consumer would mistrain never becomes a line: it is set aside with its reason.
Secrets in texts are redacted; ids that contain a secret are refused, because ids cannot be
redacted. Answers lost with a refused row are remembered, so that another rollout that shares them
can train them.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from houston_daemon.training.export import export_manifest
from houston_daemon.training.export.export_format import (
    ExportFormat,
    ExportLine,
    RunRow,
    row_provenance,
)
from houston_daemon.training.export.export_manifest import LeftOutRow, SamplingCount, TrainedCounts
from houston_daemon.training.rows.row_builder import tokenizer_file
from houston_daemon.training.rows.row_weights import UNJUDGED, trained_in_reason
from houston_daemon.training.rows.shared_steps import AnswerKey
from houston_daemon.training.rows.training_row import (
    ChatMessage,
    ChatRow,
    IdsSource,
    RowKind,
    SampledSpan,
    TokenRow,
)
from houston_shared.sample_roles import SampleRole
from houston_shared.secret_redaction import find_placeholders, redact, redact_all

_SpanOrMessage = TypeVar("_SpanOrMessage", SampledSpan, ChatMessage)


class AnswerLosses:
    """The answers that an export loses. Rows of one rollout must come one after the other."""

    def __init__(self) -> None:
        self.lost: dict[str, set[AnswerKey]] = {}
        """By rollout, answers that would be trained in what was refused, and in no other line."""
        self._rollout = ""
        self._written: set[AnswerKey] = set()
        """Of the rollout whose rows come now: all of an export would be millions."""
        self._copies: dict[tuple[str, int | None], str] = {}
        """What copies of lost answers say of themselves, with their step, and what is true."""

    def note_row(self, row: TokenRow | ChatRow, written: Collection[AnswerKey]) -> None:
        """Take in a row. written: what is trained in those of its lines that were written."""
        if row.rollout != self._rollout:
            self._rollout, self._written = row.rollout, set()
        self._written.update(written)
        lost = set(trained_answers(row)).difference(written)
        reason = trained_in_reason(row.id)
        for answer in lost:
            self._copies[reason, answer.step] = f"left out with row {row.id}"
        if lost := (self.lost.pop(row.rollout, set()) | lost) - self._written:
            self.lost[row.rollout] = lost

    def corrected_row(self, row: TokenRow | ChatRow) -> TokenRow | ChatRow:
        """The row, corrected where a copy of an answer says that a refused row trains it."""
        if not self._copies:
            return row
        if isinstance(row, TokenRow):
            return replace(row, spans=tuple(map(self._with_true_reason, row.spans)))
        return replace(row, messages=tuple(map(self._with_true_reason, row.messages)))

    def _with_true_reason(self, part: _SpanOrMessage) -> _SpanOrMessage:
        reason = self._copies.get((part.why, part.step))
        return replace(part, why=reason) if reason else part


def trained_answers(row: TokenRow | ChatRow) -> Iterator[AnswerKey]:
    """Which answers a row trains."""
    if isinstance(row, TokenRow):
        yield from (AnswerKey(span.role, span.step) for span in row.spans if span.weight)
        return
    for message in row.messages:
        if message.weight and message.step is not None:
            yield AnswerKey(answer_role(row), message.step)


def answer_role(row: ChatRow) -> SampleRole:
    """The role of the answers that a row trains."""
    return "summary" if row.kind == "summary" else row.step_role


def secret_in_ids(row: TokenRow) -> str:
    """Why a row of ids cannot leave the home; empty when it can."""
    if not row.tokenizer:
        return "it names no tokenizer, so its ids cannot be searched for secrets"
    try:
        tokenizer = _load_tokenizer(row.tokenizer)
    except Exception as problem:  # noqa: BLE001  # the library raises nothing narrower
        return f"its tokenizer cannot be read to look for secrets in its ids ({problem})"
    text = str(tokenizer.decode(row.token_ids.tolist(), skip_special_tokens=False))
    clean = redact(text)
    if clean == text:
        return ""
    names = sorted(set(find_placeholders(clean)) - set(find_placeholders(text))) or ["secret"]
    return f"its text holds [secret:{names[0]}], which ids cannot leave out"


def redact_token_row(row: TokenRow) -> TokenRow:
    """A row of ids with what people and judges said of it redacted."""
    spans = tuple(replace(span, why=redact(span.why)) if span.why else span for span in row.spans)
    names = {name: redact(getattr(row, name)) for name in ("task", "group", "domain")}
    return replace(row, spans=spans, **names)  # type: ignore[arg-type]


def redact_chat_row(row: ChatRow) -> ChatRow:
    """A row of messages without secrets, in content, calls, tools and reasons."""
    names = {name: redact(getattr(row, name)) for name in ("task", "group", "domain")}
    messages = tuple(map(_redact_message, row.messages))
    return replace(row, messages=messages, tools=_redact_tools(row.tools), **names)  # type: ignore[arg-type]


def _redact_message(entry: ChatMessage) -> ChatMessage:
    message = entry.message
    calls = tuple(
        structs.replace(call, arguments=redact_all(call.arguments), name=redact(call.name))
        for call in message.calls
    )
    content = redact(message.content)
    if content is message.content and calls == message.calls and not entry.why:
        return entry
    message = structs.replace(message, content=content, calls=calls)
    return replace(entry, message=message, why=redact(entry.why))


def _redact_tools(tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    clean: tuple[dict[str, Any], ...] = redact_all(tools)
    return clean


@lru_cache(maxsize=4)
def _load_tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer  # only here: 17 ms, and 0.1 s for a file

    return Tokenizer.from_file(str(tokenizer_file(file)))


NOTHING_TRAINED_REASON = "nothing in it is trained"
TOO_DEEP_REASON = "its values are nested too deep to be read"


class BuiltLine(NamedTuple):
    """One line, ready to be written."""

    line: ExportLine
    raw: bytes
    """The line as JSON."""
    key: str
    """Unique in the export."""
    kind: RowKind
    origin: ExportLine
    """Which row it is, for a file whose lines have no room for it."""
    tokens: int
    """Of ids; of messages how many there are."""
    trained: int
    """Tokens, or answers, that are trained."""
    answers: frozenset[AnswerKey]
    """Those that are trained."""


@dataclass
class LineBuilder:
    """Builds lines of one format, and remembers what it saw."""

    format: ExportFormat
    refused: list[LeftOutRow] = field(default_factory=list)
    """What the consumer would mistrain."""
    losses: AnswerLosses = field(default_factory=AnswerLosses)
    untrained: list[LeftOutRow] = field(default_factory=list)
    """Rows of which nothing is trained, where the consumer has no use for them."""
    remarks: Counter[str] = field(default_factory=Counter)
    policies: dict[str, set[str]] = field(default_factory=dict)
    """By rollout, versions that sampled what is in its rows."""
    tokenizers: set[str] = field(default_factory=set)
    dialects: set[str] = field(default_factory=set)
    ids_from: Counter[IdsSource] = field(default_factory=Counter)
    """Lines of ids, by where these come from."""
    _sampling: Counter[tuple[str, str, str, bytes, str]] = field(default_factory=Counter)
    _all: int = 0
    _sampled: int = 0
    _trained: int = 0
    _unjudged: int = 0
    _untrained_reasons: Counter[str] = field(default_factory=Counter)

    def lines(self, row: TokenRow | ChatRow, run_row: RunRow | None = None) -> Iterator[BuiltLine]:
        """The lines of a row; none of one that is refused, or that the consumer has no use for.

        run_row: its credit, where the format takes it.
        """
        written: set[AnswerKey] = set()
        for built in self._lines(self.losses.corrected_row(row), run_row):
            written |= built.answers
            yield built
        self.losses.note_row(row, written)

    def _lines(self, row: TokenRow | ChatRow, run_row: RunRow | None) -> Iterator[BuiltLine]:
        try:
            clean = self._clean(row)
            lines = [] if clean is None else self.format.lines(_with_credit(clean, run_row))
        except RecursionError:
            self.refuse(row.id, TOO_DEEP_REASON)
            return
        if clean is None:
            return
        if not lines:
            self.untrained.append(LeftOutRow(row.id, NOTHING_TRAINED_REASON))
        lost = 0
        for number, line in enumerate(lines):
            tokens, count = _line_sizes(line, clean)
            raw = self._encode_or_refuse(_line_name(row, line), line)
            if raw is None:
                lost += count
                continue
            if isinstance(clean, TokenRow):
                self.ids_from[clean.source] += 1
            key = f"{row.id}#{number}"
            origin = row_provenance(clean)
            yield BuiltLine(
                line, raw, key, row.kind, origin, tokens, count, _answers_of_line(line, clean)
            )
        self._count(clean, lost)

    def refuse(self, row: str, why: str) -> None:
        """Keep aside what cannot even be made."""
        self.refused.append(LeftOutRow(row, why))

    def counts(self) -> TrainedCounts:
        """What weighs and what does not in all rows that were made."""
        return TrainedCounts(
            unit="tokens" if self.format.unit == "ids" else "answers",
            all=self._all,
            sampled=self._sampled,
            trained=self._trained,
            unjudged=self._unjudged,
            untrained=dict(sorted(self._untrained_reasons.items())),
        )

    def sampling_counts(self) -> list[SamplingCount]:
        """How all tokens were sampled, by policy."""
        return [
            SamplingCount(policy, hash, msgspec.json.decode(how), kind, tokens, engine)
            for (policy, hash, kind, how, engine), tokens in sorted(self._sampling.items())
        ]

    def _clean(self, row: TokenRow | ChatRow) -> TokenRow | ChatRow | None:
        if isinstance(row, ChatRow):
            return self._without_wrong_answers(redact_chat_row(row))
        if problem := secret_in_ids(row):
            self.refuse(row.id, problem)
            return None
        return redact_token_row(row)

    def _without_wrong_answers(self, row: ChatRow) -> ChatRow:
        """The row without weight on answers that the consumer would get wrong."""
        wrong = {
            at: why
            for at, entry in enumerate(row.messages)
            if entry.weight and (why := self.format.answer_problem(entry.message))
        }
        if not wrong:
            return row
        messages = [*row.messages]
        for at, why in wrong.items():
            self.refuse(f"{row.id} step {messages[at].step}", why)
            messages[at] = replace(messages[at], weight=0.0, why=export_manifest.LEFT_OUT_REASON)
        return replace(row, messages=tuple(messages))

    def _encode_or_refuse(self, row: str, line: ExportLine) -> bytes | None:
        """The line as JSON; None, and kept aside, where it is wrong."""
        try:
            raw = msgspec.json.encode(line)
            problem = self.format.line_problem(line)
        except (UnicodeEncodeError, OverflowError, RecursionError) as cannot:
            problem = f"it cannot be written as JSON ({cannot})"
        if problem:
            self.refuse(row, problem)
            return None
        self.remarks.update(self.format.remarks(line))
        return raw

    def _count(self, row: TokenRow | ChatRow, lost: int) -> None:
        if lost:
            self._trained -= lost
            self._untrained_reasons[export_manifest.LEFT_OUT_REASON] += lost
        if isinstance(row, TokenRow):
            self._all += len(row.token_ids)
            self.tokenizers.add(row.tokenizer)
            self.dialects.add(row.dialect)
            names = self.policies.setdefault(row.rollout, set())
            for span in row.spans:
                self._add_weight(span.weight, span.why, span.by, span.end - span.start)
                names.add(span.policy)
                sampling = msgspec.json.encode(span.sampling, order="sorted")
                key = span.policy, span.policy_hash, span.logprob_kind, sampling, span.engine
                self._sampling[key] += span.end - span.start
            return
        self._all += len(row.messages)
        for message in row.messages:
            if message.weight or message.why:
                self._add_weight(message.weight, message.why, message.by, 1)

    def _add_weight(self, weight: float, why: str, by: str, size: int) -> None:
        self._sampled += size
        if weight:
            self._trained += size
            self._unjudged += size if by == UNJUDGED else 0
        else:
            self._untrained_reasons[export_manifest.reason_kind(why)] += size


def _with_credit(row: TokenRow | ChatRow, run_row: RunRow | None) -> TokenRow | ChatRow | RunRow:
    """What the format takes: the row, or with its credit."""
    if run_row is None or isinstance(row, ChatRow):
        return row
    return run_row._replace(credited=replace(run_row.credited, row=row))


def _line_name(row: TokenRow | ChatRow, line: ExportLine) -> str:
    """A line of a row, for people."""
    return f"{row.id} step {line['step']}" if "completion" in line else row.id


def _answers_of_line(line: ExportLine, row: TokenRow | ChatRow) -> frozenset[AnswerKey]:
    """Which answers a line of a row trains."""
    if "completion" in line and isinstance(row, ChatRow):
        return frozenset((AnswerKey(answer_role(row), line["step"]),))
    return frozenset(trained_answers(row))


def _line_sizes(line: ExportLine, row: TokenRow | ChatRow) -> tuple[int, int]:
    """Tokens, or messages, of a line; and how many of its tokens or answers are trained."""
    if isinstance(row, TokenRow):
        tokens = line.get("tokens", len(row.token_ids))  # a line with credit ends where it trains
        return tokens if isinstance(tokens, int) else len(tokens), row.trained
    if "completion" in line:
        return len(line["prompt"]) + 1, 1
    return len(line["messages"]), row.trained
