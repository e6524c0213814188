"""Who looks after a rollout, since when, and what they left for the next person."""

from typing import NamedTuple

from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan


class Holding(NamedTuple):
    """How a rollout is held, or what was left when it was released."""

    rollout: str
    holder: str
    """Empty when nobody holds it."""
    uid: int | None
    verified: bool
    since: int
    """When it was claimed or released, UTC microseconds."""
    seq: int
    note: str = ""
    note_by: str = ""
    note_at: int = 0


def of(rollout: str) -> Plan[Holding | None]:
    """Of one rollout; None where nobody ever claimed it."""
    return (yield from _read("WHERE rollout = ?", (rollout,))).get(rollout)


def all_claims() -> Plan[dict[str, Holding]]:
    """Of every rollout that was ever claimed."""
    return (yield from _read("", ()))


def _read(condition: str, parameters: tuple[str, ...]) -> Plan[dict[str, Holding]]:
    rows = yield Ask(
        f"SELECT rollout, holder, uid, verified, since, seq, note_seq FROM claims {condition}",
        parameters,
    )
    notes = yield from journal.by_seq([row[6] for row in rows if row[6]])
    found: dict[str, Holding] = {}
    for rollout, holder, uid, verified, since, seq, note_seq in rows:
        one = Holding(rollout, holder, uid, bool(verified), since, seq)
        if event := notes.get(note_seq):
            fields = yield from journal.fields(event)
            text = journal.ERASED if "note" not in fields else str(fields["note"])
            one = one._replace(note=text, note_by=str(fields.get("by", "")), note_at=event.at)
        found[rollout] = one
    return found
