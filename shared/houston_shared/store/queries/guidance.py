"""Guidance: the queue of a rollout and what was delivered at which step."""

import msgspec

from houston_shared.clock import iso
from houston_shared.errors import HoustonError
from houston_shared.records import Delivered, Guidance
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan, Row
from houston_shared.store.queries import lineage

_COLUMNS = (
    "id, rollout, author, mode, state, delivered_step, queued_at, delivered_at, revision,"
    " verified, text_seq"
)


class _Said(msgspec.Struct, frozen=True):
    """The part of an event's body that every event with guidance text has."""

    text: str


def of_rollout(rollout: str) -> Plan[list[Guidance]]:
    """All guidance of a rollout; what is queued, in the order in which it will be delivered."""
    return (yield from _read("rollout = ? ORDER BY place", (rollout,)))


def waiting() -> Plan[list[Guidance]]:
    """Everything that is queued, in any rollout."""
    return (yield from _read("state = 'queued' ORDER BY place", ()))


def of_author(author: str, most: int) -> Plan[list[Guidance]]:
    """What a person said last to any rollout, at most so much, in the order it was queued."""
    newest = "SELECT id FROM guidance WHERE author = ? ORDER BY number DESC LIMIT ?"
    return (yield from _read(f"id IN ({newest}) ORDER BY number", (author, most)))


def one(id: str) -> Plan[Guidance]:
    """The guidance with this id, or unique beginning of one; raises HoustonError."""
    found = yield from _read("substr(id, 1, length(?1)) = ?1 ORDER BY place", (id,))
    exact = [each for each in found if each.id == id]
    if len(exact or found) == 1 and id:
        return (exact or found)[0]
    several = f"{len(found)} messages have an id that begins with {id!r}."
    raise HoustonError(
        several if found else f"There is no guidance with id {id!r}.",
        "Nothing was done.",
        "houston guidance ROLLOUT, to see the ids",
    )


def delivered(rollout: str, first: int, last: int) -> Plan[dict[int, tuple[Delivered, ...]]]:
    """What was joined to the observations of a range of steps, in order, by step.

    Steps that a branch shares have what was said to the rollout whose steps they are.
    """
    found: list[Guidance] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        found += yield from _read(
            "rollout = ? AND state = 'delivered' AND delivered_step BETWEEN ? AND ? ORDER BY place",
            part,
        )
    by_step: dict[int, tuple[Delivered, ...]] = {}
    for each in found:
        said = Delivered(id=each.id, author=each.author, text=each.text)
        by_step[each.step or 0] = (*by_step.get(each.step or 0, ()), said)
    return by_step


def _read(condition: str, parameters: tuple[object, ...]) -> Plan[list[Guidance]]:
    rows = yield Ask(f"SELECT {_COLUMNS} FROM guidance WHERE {condition}", parameters)
    texts = yield from _texts([row[-1] for row in rows])
    return [_guidance(row, texts.get(row[-1], journal.ERASED)) for row in rows]


def _texts(seqs: list[int]) -> Plan[dict[int, str]]:
    texts: dict[int, str] = {}
    for seq, event in (yield from journal.by_seq(seqs)).items():
        said = yield from journal.record(event, _Said, _Said(journal.ERASED))
        texts[seq] = said.text
    return texts


def _guidance(row: Row, text: str) -> Guidance:
    id_, rollout, author, mode, state, step, queued_at, delivered_at, revision, verified, _ = row
    return Guidance(
        id=id_,
        rollout=rollout,
        author=author,
        text=text,
        mode=mode,
        state=state,
        step=step,
        queued_at=iso(queued_at),
        delivered_at=None if delivered_at is None else iso(delivered_at),
        revision=revision,
        verified=bool(verified),
    )
