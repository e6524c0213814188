"""What people left in the journal: guidance, bookmarks, notes, and verdicts with their reasons.

The queue of guidance and what was delivered at which step; bookmarks and notes; verdicts without
their reasons for columns of many steps, and with them for one; what was said before, and how to
undo it. Which verdict counts is for `verdict_precedence` to say.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from houston_shared import verdict_precedence
from houston_shared.control_messages import JudgedSteps, Judgement
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.records import DeliveredGuidance, Guidance
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.event_bodies import VerdictGiven
from houston_shared.store.journal_events import (
    OPEN_END,
    ReadPlan,
    Row,
    RowRecord,
    RunSql,
    read_out_of_step_records,
    select_records,
)
from houston_shared.times_and_counts import iso_time

_GUIDANCE_COLUMNS = (
    "id, rollout, author, mode, state, delivered_step, queued_at, delivered_at, revision,"
    " verified, coalesce((SELECT critic FROM critic_drafts d WHERE d.guidance = guidance.id AND"
    " d.guidance <> ''), ''), text_seq"
)


class _GuidanceTextField(msgspec.Struct, frozen=True):
    """The part of an event's body that every event with guidance text has."""

    text: str


def list_guidance(rollout: str) -> ReadPlan[list[Guidance]]:
    """All guidance of a rollout; what is queued, in the order in which it will be delivered."""
    return (yield from _read_guidance("rollout = ? ORDER BY place", (rollout,)))


def list_guidance_by_author(author: str, limit: int) -> ReadPlan[list[Guidance]]:
    """What a person said last to any rollout, at most so much, in the order it was queued."""
    newest = "SELECT id FROM guidance WHERE author = ? ORDER BY number DESC LIMIT ?"
    return (yield from _read_guidance(f"id IN ({newest}) ORDER BY number", (author, limit)))


def find_guidance(id: str) -> ReadPlan[Guidance]:
    """The guidance with this id, or unique beginning of one; raises HoustonError."""
    matches = yield from _read_guidance("substr(id, 1, length(?1)) = ?1 ORDER BY place", (id,))
    exact = [message for message in matches if message.id == id]
    if len(exact or matches) == 1 and id:
        return (exact or matches)[0]
    several = f"{len(matches)} messages have an id that begins with {id!r}."
    raise HoustonError(
        several if matches else f"There is no guidance with id {id!r}.",
        "Nothing was done.",
        "houston guidance ROLLOUT, to see the ids",
        ExitCode.USAGE if matches else ExitCode.NOT_FOUND,
    )


def list_delivered_guidance(
    rollout: str, first: int, last: int
) -> ReadPlan[dict[int, tuple[DeliveredGuidance, ...]]]:
    """What was joined to the observations of a range of steps, in order, by step.

    Steps that a branch shares have what was said to the rollout whose steps they are.
    """
    messages: list[Guidance] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        messages += yield from _read_guidance(
            "rollout = ? AND state = 'delivered' AND delivered_step BETWEEN ? AND ? ORDER BY place",
            part,
        )
    by_step: dict[int, tuple[DeliveredGuidance, ...]] = {}
    for message in messages:
        delivered = DeliveredGuidance(id=message.id, author=message.author, text=message.text)
        by_step[message.step or 0] = (*by_step.get(message.step or 0, ()), delivered)
    return by_step


def _read_guidance(condition: str, parameters: tuple[object, ...]) -> ReadPlan[list[Guidance]]:
    rows = yield RunSql(f"SELECT {_GUIDANCE_COLUMNS} FROM guidance WHERE {condition}", parameters)
    erased = _GuidanceTextField(journal_events.ERASED_TEXT)
    texts = yield from journal_events.read_records_at(
        [row[-1] for row in rows], _GuidanceTextField, erased
    )
    return [_build_guidance(row, texts.get(row[-1], erased).text) for row in rows]


def _build_guidance(row: Row, text: str) -> Guidance:
    id_, rollout, author, mode, state, step, queued_at, delivered_at, revision, *more = row
    verified, critic, _ = more
    return Guidance(
        id=id_,
        rollout=rollout,
        author=author,
        text=text,
        mode=mode,
        state=state,
        step=step,
        queued_at=iso_time(queued_at),
        delivered_at=None if delivered_at is None else iso_time(delivered_at),
        revision=revision,
        verified=bool(verified),
        critic=critic,
    )


class BookmarkRow(RowRecord, frozen=True):
    """A step that somebody marked for everybody."""

    rollout: str
    step: int
    author: str
    seq: int
    at: int
    note: str = ""


class NoteRow(RowRecord, frozen=True):
    """A note on a step (0: on the rollout)."""

    seq: int
    rollout: str
    step: int
    author: str
    at: int
    text: str = ""


class AnnotatorRow(RowRecord, frozen=True):
    """Somebody who was here, and what they look at."""

    name: str
    verified: int
    """0 where a shared login claimed the name."""
    rollout: str
    step: int
    last_seen: int


class VerdictRow(RowRecord, frozen=True):
    """Keep or mask for one step, from one source."""

    step: int
    attempt: int
    source: str
    keep: int
    author: str
    seq: int
    at: int
    error: int = 0
    """1 for a rule's mask of an error in what was observed; looked up only beside a judge's keep,
    which it outranks."""

    @property
    def rank(self) -> int:
        """Its place among the verdicts on its attempt: the lowest counts."""
        return verdict_precedence.verdict_rank(self.source, bool(self.keep), bool(self.error))


def list_bookmarks(rollout: str = "") -> ReadPlan[list[BookmarkRow]]:
    """Bookmarks with their notes, by rollout and step; of one rollout when named."""
    rows = yield RunSql(
        "SELECT rollout, step, author, seq, at FROM bookmarks WHERE ?1 = '' OR rollout = ?1"
        " ORDER BY rollout, step, author",
        (rollout,),
    )
    bodies = yield from journal_events.read_fields_at([row[3] for row in rows])
    return [BookmarkRow(*(*row, _field_text(bodies[row[3]], "note"))) for row in rows]


def list_notes(rollout: str) -> ReadPlan[list[NoteRow]]:
    """Notes of a rollout, in the order they were written."""
    rows = yield RunSql(
        "SELECT seq, rollout, step, author, at FROM notes WHERE rollout = ? ORDER BY seq",
        (rollout,),
    )
    bodies = yield from journal_events.read_fields_at([row[0] for row in rows])
    return [NoteRow(*(*row, _field_text(bodies[row[0]], "text", "note"))) for row in rows]


def list_annotators(since_us: int = 0) -> ReadPlan[list[AnnotatorRow]]:
    """Who was seen at or after `since_us` (microseconds UTC), the latest first."""
    source = "annotators WHERE last_seen >= ? ORDER BY last_seen DESC, name"
    return (yield from select_records(AnnotatorRow, source, (since_us,)))


def list_verdicts(rollout: str, first: int = 1, last: int = OPEN_END) -> ReadPlan[list[VerdictRow]]:
    """Every verdict on a range of steps, from all sources, without reasons.

    A step that a branch shares has the verdicts of the rollout whose step it is.
    """
    rows: list[Row] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows += yield RunSql(
            "SELECT step, attempt, source, keep, author, seq, at FROM verdicts WHERE rollout = ?1"
            " AND step >= ?2 AND step <= ?3 ORDER BY step, attempt, at",
            part,
        )
    verdicts = [VerdictRow(*row) for row in rows]
    errors = yield from _error_mask_seqs(verdicts)
    return [replace(verdict, error=1) if verdict.seq in errors else verdict for verdict in verdicts]


def _error_mask_seqs(verdicts: list[VerdictRow]) -> ReadPlan[set[int]]:
    """Events of rules beside a judge's keep that mask an error: only these bodies are read."""
    keeps = {(row.step, row.attempt) for row in verdicts if row.source == "judge" and row.keep}
    masks = [
        row.seq
        for row in verdicts
        if row.source == "rule" and not row.keep and (row.step, row.attempt) in keeps
    ]
    bodies = yield from journal_events.read_fields_at(list(dict.fromkeys(masks)))
    return {
        seq
        for seq, body in bodies.items()
        if verdict_precedence.names_error_rule(str(body.get("reason", "")))
    }


def effective_verdicts(verdicts: list[VerdictRow]) -> dict[tuple[int, int], VerdictRow]:
    """The verdict that counts for each (step, attempt)."""
    ranked = sorted(verdicts, key=lambda verdict: verdict.rank, reverse=True)
    return {(verdict.step, verdict.attempt): verdict for verdict in ranked}


def _field_text(body: dict[str, Any], *names: str) -> str:
    if body.get("erased"):
        return journal_events.ERASED_TEXT
    return next((str(body[name]) for name in names if body.get(name)), "")


class SourceVerdict(NamedTuple):
    """What one source says of one attempt of a step."""

    step: int
    attempt: int
    source: str
    verdict: Judgement
    """Never `undecided`: that is no row."""
    by: str
    reason: str
    at: int
    """UTC microseconds."""
    seq: int


class VerdictHistoryEntry(NamedTuple):
    """One entry: a verdict on steps `first` to `last`, or one taken back."""

    seq: int
    at: int
    first: int
    last: int
    source: str
    verdict: Judgement
    by: str
    verified: bool
    reason: str
    rollout: str
    """Whose steps they are."""


def read_verdicts_with_reasons(
    rollout: str, first: int = 1, last: int = OPEN_END
) -> ReadPlan[dict[int, list[SourceVerdict]]]:
    """By step, what its sources say of the attempt that counts; the first of them counts."""
    every = yield from list_verdicts(rollout, first, last)
    counted = yield from _current_attempts(rollout, first, last)
    rows = [row for row in every if (row.step, row.attempt) in counted]
    bodies = yield from journal_events.read_fields_at(list(dict.fromkeys(row.seq for row in rows)))
    by_step: dict[int, list[SourceVerdict]] = {}
    for row in sorted(rows, key=lambda row: (row.step, row.rank)):
        verdict = SourceVerdict(
            step=row.step,
            attempt=row.attempt,
            source=row.source,
            verdict="keep" if row.keep else "mask",
            by=row.author,
            reason=str(bodies[row.seq].get("reason", "")),
            at=row.at,
            seq=row.seq,
        )
        by_step.setdefault(row.step, []).append(verdict)
    return by_step


def _current_attempts(rollout: str, first: int, last: int) -> ReadPlan[set[tuple[int, int]]]:
    """Steps that have a verdict, with the attempt that counts: no other speaks for a step."""
    attempts: set[tuple[int, int]] = set()
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows = yield RunSql(
            "SELECT DISTINCT s.step, s.attempt FROM verdicts v JOIN steps s"
            " ON s.rollout = v.rollout AND s.step = v.step AND s.attempt = v.attempt"
            " WHERE v.rollout = ? AND v.step BETWEEN ? AND ? AND s.current",
            part,
        )
        attempts.update(rows)
    return attempts


def read_verdict_history(
    rollout: str, first: int = 1, last: int = OPEN_END
) -> ReadPlan[list[VerdictHistoryEntry]]:
    """Everything that was said of a range of steps, oldest first, also what was taken back."""
    entries: list[VerdictHistoryEntry] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        records = yield from read_out_of_step_records(part.rollout, "verdict", VerdictGiven)
        for seq, step, at, body in records:
            if step <= part.last and body.last >= part.first:
                entries.append(
                    VerdictHistoryEntry(
                        seq, at, step, body.last, body.source, body.verdict, body.by,
                        body.verified, body.reason, part.rollout,
                    )
                )  # fmt: skip
    return sorted(entries)


def read_human_verdict_ranges(
    rollout: str, first: int, last: int
) -> ReadPlan[tuple[JudgedSteps, ...]]:
    """What people's verdicts on a range stand, as `wire.GiveVerdicts` gives them back to undo."""
    by_step = yield from read_verdicts_with_reasons(rollout, first, last)
    return tuple(_human_verdict_ranges(by_step, first, last))


def _human_verdict_ranges(
    by_step: dict[int, list[SourceVerdict]], first: int, last: int
) -> Iterator[JudgedSteps]:
    numbers = range(first, last + 1)
    for (verdict, reason), group in groupby(
        numbers, key=lambda step: _human_verdict(by_step.get(step, []))
    ):
        steps = list(group)
        yield JudgedSteps(first=steps[0], last=steps[-1], verdict=verdict, reason=reason)


def _human_verdict(verdicts: list[SourceVerdict]) -> tuple[Judgement, str]:
    human = next((verdict for verdict in verdicts if verdict.source == "human"), None)
    return (human.verdict, human.reason) if human else ("undecided", "")
