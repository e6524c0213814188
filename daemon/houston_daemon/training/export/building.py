"""Rows of rollouts as checked lines, one at a time: made, redacted, validated, counted.

What a consumer would mistrain never becomes a line: it is kept aside with its reason, and who
writes decides what becomes of the export.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from houston_daemon.training.export import judged, secrets
from houston_daemon.training.export.format import Format, Line, provenance
from houston_daemon.training.export.losses import Losses, role, trained
from houston_daemon.training.export.manifest import Counts, Drawn, LeftOut
from houston_daemon.training.rows.beside import Answered
from houston_daemon.training.rows.plan import UNJUDGED
from houston_daemon.training.rows.row import ChatRow, Kind, Row, Source

UNTRAINED = "nothing in it is trained"
DEEP = "its values are nested too deep to be read"


class Built(NamedTuple):
    """One line, ready to be written."""

    line: Line
    raw: bytes
    """The line as JSON."""
    key: str
    """Unique in the export."""
    kind: Kind
    origin: Line
    """Which row it is, for a file whose lines have no room for it."""
    tokens: int
    """Of ids; of messages how many there are."""
    trained: int
    """Tokens, or answers, that are trained."""
    answers: frozenset[Answered]
    """Those that are trained."""


@dataclass
class Building:
    """Builds lines of one format, and remembers what it saw."""

    format: Format
    refused: list[LeftOut] = field(default_factory=list)
    """What the consumer would mistrain."""
    losses: Losses = field(default_factory=Losses)
    untrained: list[LeftOut] = field(default_factory=list)
    """Rows of which nothing is trained, where the consumer has no use for them."""
    remarks: Counter[str] = field(default_factory=Counter)
    policies: dict[str, set[str]] = field(default_factory=dict)
    """By rollout, versions that sampled what is in its rows."""
    tokenizers: set[str] = field(default_factory=set)
    dialects: set[str] = field(default_factory=set)
    ids_from: Counter[Source] = field(default_factory=Counter)
    """Lines of ids, by where these come from."""
    _drawn: Counter[tuple[str, str, str, bytes]] = field(default_factory=Counter)
    _all: int = 0
    _sampled: int = 0
    _trained: int = 0
    _unjudged: int = 0
    _why: Counter[str] = field(default_factory=Counter)

    def lines(self, row: Row | ChatRow) -> Iterator[Built]:
        """The lines of a row; none of one that is refused, or that the consumer has no use for."""
        written: set[Answered] = set()
        for built in self._lines(self.losses.true(row)):
            written |= built.answers
            yield built
        self.losses.note(row, written)

    def _lines(self, row: Row | ChatRow) -> Iterator[Built]:
        try:
            clean = self._clean(row)
            made = [] if clean is None else self.format.lines(clean)
        except RecursionError:
            self.refuse(row.id, DEEP)
            return
        if clean is None:
            return
        if not made:
            self.untrained.append(LeftOut(row.id, UNTRAINED))
        lost = 0
        for number, line in enumerate(made):
            tokens, count = _sizes(line, clean)
            raw = self._checked(_named(row, line), line)
            if raw is None:
                lost += count
                continue
            if isinstance(clean, Row):
                self.ids_from[clean.source] += 1
            key = f"{row.id}#{number}"
            of = provenance(clean)
            yield Built(line, raw, key, row.kind, of, tokens, count, _answers(line, clean))
        self._count(clean, lost)

    def refuse(self, row: str, why: str) -> None:
        """Keep aside what cannot even be made."""
        self.refused.append(LeftOut(row, why))

    def counts(self) -> Counts:
        """What weighs and what does not in all rows that were made."""
        return Counts(
            unit="tokens" if self.format.of == "ids" else "answers",
            all=self._all,
            sampled=self._sampled,
            trained=self._trained,
            unjudged=self._unjudged,
            untrained=dict(sorted(self._why.items())),
        )

    def drawn(self) -> list[Drawn]:
        """How all tokens were sampled, by policy."""
        return [
            Drawn(policy, hash, msgspec.json.decode(how), kind, tokens)
            for (policy, hash, kind, how), tokens in sorted(self._drawn.items())
        ]

    def _clean(self, row: Row | ChatRow) -> Row | ChatRow | None:
        if isinstance(row, ChatRow):
            return self._right(secrets.without_text(row))
        if problem := secrets.of_ids(row):
            self.refuse(row.id, problem)
            return None
        return secrets.without(row)

    def _right(self, row: ChatRow) -> ChatRow:
        """The row without weight on answers that the consumer would get wrong."""
        wrong = {
            at: why
            for at, one in enumerate(row.messages)
            if one.weight and (why := self.format.answer(one.message))
        }
        if not wrong:
            return row
        for at, why in wrong.items():
            self.refuse(f"{row.id} step {row.messages[at].step}", why)
        messages = tuple(
            replace(one, weight=0.0, why=judged.LEFT_OUT) if at in wrong else one
            for at, one in enumerate(row.messages)
        )
        return replace(row, messages=messages)

    def _checked(self, row: str, line: Line) -> bytes | None:
        """The line as JSON; None, and kept aside, where it is wrong."""
        try:
            raw = msgspec.json.encode(line)
            problem = self.format.wrong(line)
        except (UnicodeEncodeError, OverflowError, RecursionError) as cannot:
            problem = f"it cannot be written as JSON ({cannot})"
        if problem:
            self.refuse(row, problem)
            return None
        self.remarks.update(self.format.remarks(line))
        return raw

    def _count(self, row: Row | ChatRow, lost: int) -> None:
        if lost:
            self._trained -= lost
            self._why[judged.LEFT_OUT] += lost
        if isinstance(row, Row):
            self._all += len(row.token_ids)
            self.tokenizers.add(row.tokenizer)
            self.dialects.add(row.dialect)
            names = self.policies.setdefault(row.rollout, set())
            for span in row.spans:
                self._weigh(span.weight, span.why, span.by, span.end - span.start)
                names.add(span.policy)
                how = msgspec.json.encode(span.sampling, order="sorted")
                of = span.policy, span.policy_hash, span.logprob_kind, how
                self._drawn[of] += span.end - span.start
            return
        self._all += len(row.messages)
        for one in row.messages:
            if one.weight or one.why:
                self._weigh(one.weight, one.why, one.by, 1)

    def _weigh(self, weight: float, why: str, by: str, size: int) -> None:
        self._sampled += size
        if weight:
            self._trained += size
            self._unjudged += size if by == UNJUDGED else 0
        else:
            self._why[judged.why(why)] += size


def _named(row: Row | ChatRow, line: Line) -> str:
    """A line of a row, for people."""
    return f"{row.id} step {line['step']}" if "completion" in line else row.id


def _answers(line: Line, row: Row | ChatRow) -> frozenset[Answered]:
    """Which answers a line of a row trains."""
    if "completion" in line and isinstance(row, ChatRow):
        return frozenset((Answered(role(row), line["step"]),))
    return frozenset(trained(row))


def _sizes(line: Line, row: Row | ChatRow) -> tuple[int, int]:
    """Tokens, or messages, of a line; and how many of its tokens or answers are trained."""
    if isinstance(row, Row):
        return len(row.token_ids), row.trained
    if "completion" in line:
        return len(line["prompt"]) + 1, 1
    return len(line["messages"]), row.trained
