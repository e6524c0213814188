"""What people left in the journal for each other: bookmarks, notes, presence; and verdicts."""

from typing import Any

from msgspec.structs import replace

from houston_shared import verdict_order
from houston_shared.store import journal
from houston_shared.store.plan import END, Ask, Plan, Row, RowRecord, columns, from_rows
from houston_shared.store.queries import lineage


class Bookmark(RowRecord, frozen=True):
    """A step that somebody marked for everybody."""

    rollout: str
    step: int
    author: str
    seq: int
    at: int
    note: str = ""


class Note(RowRecord, frozen=True):
    """A note on a step (0: on the rollout)."""

    seq: int
    rollout: str
    step: int
    author: str
    at: int
    text: str = ""


class Annotator(RowRecord, frozen=True):
    """Somebody who was here, and what they look at."""

    name: str
    verified: int
    """0 where a shared login claimed the name."""
    rollout: str
    step: int
    last_seen: int


class Verdict(RowRecord, frozen=True):
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
        return verdict_order.rank(self.source, bool(self.keep), bool(self.error))


def bookmarks(rollout: str = "") -> Plan[list[Bookmark]]:
    """Bookmarks with their notes, by rollout and step; of one rollout when named."""
    rows = yield Ask(
        "SELECT rollout, step, author, seq, at FROM bookmarks WHERE ?1 = '' OR rollout = ?1"
        " ORDER BY rollout, step, author",
        (rollout,),
    )
    bodies = yield from _bodies([row[3] for row in rows])
    return [Bookmark(*(*row, _text(bodies[row[3]], "note"))) for row in rows]


def notes(rollout: str) -> Plan[list[Note]]:
    """Notes of a rollout, in the order they were written."""
    rows = yield Ask(
        "SELECT seq, rollout, step, author, at FROM notes WHERE rollout = ? ORDER BY seq",
        (rollout,),
    )
    bodies = yield from _bodies([row[0] for row in rows])
    return [Note(*(*row, _text(bodies[row[0]], "text", "note"))) for row in rows]


def annotators(since_us: int = 0) -> Plan[list[Annotator]]:
    """Who was seen at or after `since_us` (microseconds UTC), the latest first."""
    rows = yield Ask(
        f"SELECT {columns(Annotator)} FROM annotators WHERE last_seen >= ?"
        " ORDER BY last_seen DESC, name",
        (since_us,),
    )
    return from_rows(Annotator, rows)


def verdicts(rollout: str, first: int = 1, last: int = END) -> Plan[list[Verdict]]:
    """Every verdict on a range of steps, from all sources, without reasons (see `verdicts`).

    A step that a branch shares has the verdicts of the rollout whose step it is.
    """
    rows: list[Row] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        rows += yield Ask(
            "SELECT step, attempt, source, keep, author, seq, at FROM verdicts WHERE rollout = ?1"
            " AND step >= ?2 AND step <= ?3 ORDER BY step, attempt, at",
            part,
        )
    found = [Verdict(*row) for row in rows]
    errors = yield from _errors(found)
    return [replace(one, error=1) if one.seq in errors else one for one in found]


def _errors(found: list[Verdict]) -> Plan[set[int]]:
    """Events of rules beside a judge's keep that mask an error: only these bodies are read."""
    kept = {(one.step, one.attempt) for one in found if one.source == "judge" and one.keep}
    masks = [
        one.seq
        for one in found
        if one.source == "rule" and not one.keep and (one.step, one.attempt) in kept
    ]
    bodies = yield from _bodies(list(dict.fromkeys(masks)))
    return {
        seq
        for seq, body in bodies.items()
        if verdict_order.names_error(str(body.get("reason", "")))
    }


def standing(found: list[Verdict]) -> dict[tuple[int, int], Verdict]:
    """The verdict that counts for each (step, attempt)."""
    ranked = sorted(found, key=lambda one: one.rank, reverse=True)
    return {(one.step, one.attempt): one for one in ranked}


def _bodies(seqs: list[int]) -> Plan[dict[int, dict[str, Any]]]:
    found: dict[int, dict[str, Any]] = {seq: {"erased": True} for seq in seqs}
    for seq, event in (yield from journal.by_seq(seqs)).items():
        found[seq] = yield from journal.fields(event)
    return found


def _text(body: dict[str, Any], *names: str) -> str:
    if body.get("erased"):
        return journal.ERASED
    return next((str(body[name]) for name in names if body.get(name)), "")
