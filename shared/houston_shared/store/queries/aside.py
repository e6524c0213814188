"""What repairs set aside of a rollout: by step, in words, and steps of which only that is left.

A row of kind `aside` keeps the place of an event, with the step where that was known; a `repaired`
event of the home vouches for it and names the folder with what was found.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from houston_shared.plural import many
from houston_shared.records import ENDED, SetAside, StepRecord
from houston_shared.store.bodies import ASIDE as KIND
from houston_shared.store.bodies import Repaired
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import END, Ask, Plan
from houston_shared.store.queries import steps
from houston_shared.store.queries.steps import StepRow


class Hole(NamedTuple):
    """One event that is set aside."""

    seq: int
    step: int
    """0 where it was none of a step, or nobody knows."""
    repair: str
    """Folder in `damaged/`; empty where no `repaired` event is at hand (an archive)."""
    repaired: int
    """Sequence of the event that says so; 0 where there is none."""


class Loss(msgspec.Struct, frozen=True):
    """What one repair set aside of one rollout; the JSON of `rollout show` and `verify`."""

    repair: str
    events: int
    steps: tuple[int, ...]
    """Steps that the events belong to, in order; empty where none is known."""
    rollout: str = ""


def holes(rollout: str) -> Plan[list[Hole]]:
    """Every event of a rollout that is set aside, in order."""
    rows = yield Ask(
        f"SELECT seq, step FROM events WHERE rollout = ? AND {ASIDE} AND kind = '{KIND}'"
        " ORDER BY seq",
        (rollout,),
    )
    if not rows:
        return []
    told = yield Ask(
        f"SELECT seq, body FROM events WHERE rollout = '' AND {ASIDE} AND kind = 'repaired'"
        " AND body IS NOT NULL ORDER BY seq"
    )
    by: dict[int, tuple[str, int]] = {}
    for seq, body in told:
        repaired = msgspec.msgpack.decode(body, type=Repaired)
        for one in repaired.seqs:
            by.setdefault(one, (name(repaired.copies), seq))
    return [Hole(seq, step, *by.get(seq, ("", 0))) for seq, step in rows]


def name(copies: str) -> str:
    """What people call a repair: the last part of its folder."""
    return PurePosixPath(copies).name


def losses(found: Iterable[Hole], rollout: str = "") -> list[Loss]:
    """Holes by repair, in the order of the repairs."""
    by: dict[str, list[Hole]] = {}
    for one in found:
        by.setdefault(one.repair, []).append(one)
    return [
        Loss(repair, len(mine), tuple(sorted({one.step for one in mine if one.step})), rollout)
        for repair, mine in by.items()
    ]


def loss_said(one: Loss) -> str:
    """`3 events of steps 2, 4 were set aside by repair T`."""
    ranges = _ranges(one.steps)
    of = f" of step{'s' if len(one.steps) > 1 else ''} {ranges}" if one.steps else ""
    return f"{many(one.events, 'event')}{of} {_by(one.events, one.repair)}"


def said(one: SetAside) -> str:
    """The mark of a step, in words."""
    of = "an earlier run of this step" if one.again else "this step"
    return f"{many(one.events, 'event')} of {of} {_by(one.events, one.repair)}"


def marked(
    rollout: str, found: Sequence[StepRecord], first: int, last: int
) -> Plan[list[StepRecord]]:
    """`found` (the records of steps `first` to `last`) with marks, and with what is left of steps
    that a repair has left without a row.
    """
    all_holes = yield from holes(rollout)
    mine = [one for one in all_holes if first <= one.step <= last]
    if not mine:
        return list(found)
    by: dict[int, list[Hole]] = {}
    for one in mine:
        by.setdefault(one.step, []).append(one)
    records = {(one.step, one.attempt): _with(one, by.get(one.step, ())) for one in found}
    there = {one.step for one in found}
    for step in (yield from without_row(rollout, by.keys() - there)):
        rest = yield from steps.left(rollout, step)
        records[step, rest.attempt] = _with(rest, by[step])
    return [records[key] for key in sorted(records)]


def without_row(rollout: str, some: Iterable[int]) -> Plan[list[int]]:
    """Of `some` steps, which have events set aside, those that are over and have no row.

    A rollout that goes on has none: what it lost it runs again.
    """
    missing = sorted(some)
    if not missing:
        return []
    ((state,),) = yield Ask("SELECT state FROM rollouts WHERE id = ?", (rollout,))
    rows: list[StepRow] = yield from steps.rows(rollout, missing[0], missing[-1])
    there = {row.step for row in rows}
    newest = END if state in ENDED else (yield from steps.last(rollout))
    return [step for step in missing if step < newest and step not in there]


def _with(record: StepRecord, found: Iterable[Hole]) -> StepRecord:
    counts: dict[tuple[str, bool], int] = {}
    for one in found:
        key = one.repair, 0 < one.repaired < record.sample_seq
        counts[key] = counts.get(key, 0) + 1
    marks = tuple(
        SetAside(events=count, repair=repair, again=again)
        for (repair, again), count in counts.items()
    )
    return msgspec.structs.replace(record, aside=marks)


def _by(count: int, repair: str) -> str:
    who = f"repair {repair}" if repair else "a repair"
    return f"{'was' if count == 1 else 'were'} set aside by {who}"


def _ranges(numbers: Sequence[int]) -> str:
    """`1, 3 to 5`."""
    parts: list[list[int]] = []
    for one in numbers:
        if parts and one == parts[-1][-1] + 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    return ", ".join(f"{one[0]} to {one[-1]}" if len(one) > 1 else str(one[0]) for one in parts)
