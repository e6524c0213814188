"""Verdicts with their reasons: what stands at a step, what was said before, and how to undo.

`people.verdicts` has the same rows without their reasons: for columns of many steps. Which of them
counts is `verdict_order`'s to say.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from houston_shared.store import journal
from houston_shared.store.bodies import VerdictGiven
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import END, Ask, Plan
from houston_shared.store.queries import lineage, people
from houston_shared.wire_people import JudgedSteps, Judgement


class Given(NamedTuple):
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


class Said(NamedTuple):
    """One deed: a verdict on steps `first` to `last`, or one taken back."""

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


def standing(rollout: str, first: int = 1, last: int = END) -> Plan[dict[int, list[Given]]]:
    """By step, what its sources say of the attempt that counts; the first of them counts."""
    found = yield from people.verdicts(rollout, first, last)
    counts = yield from _counting(rollout, first, last)
    mine = [one for one in found if (one.step, one.attempt) in counts]
    bodies = yield from journal.by_seq(list(dict.fromkeys(one.seq for one in mine)))
    reasons: dict[int, str] = {}
    for seq, event in bodies.items():
        reasons[seq] = str((yield from journal.fields(event)).get("reason", ""))
    by: dict[int, list[Given]] = {}
    for one in sorted(mine, key=lambda one: (one.step, one.rank)):
        verdict: Judgement = "keep" if one.keep else "mask"
        given = Given(
            one.step, one.attempt, one.source, verdict, one.author, reasons.get(one.seq, ""),
            one.at, one.seq,
        )  # fmt: skip
        by.setdefault(one.step, []).append(given)
    return by


def _counting(rollout: str, first: int, last: int) -> Plan[set[tuple[int, int]]]:
    """Steps that have a verdict, with the attempt that counts: no other speaks for a step."""
    found: set[tuple[int, int]] = set()
    for part in (yield from lineage.stretches(rollout, first, last)):
        rows = yield Ask(
            "SELECT DISTINCT s.step, s.attempt FROM verdicts v JOIN steps s"
            " ON s.rollout = v.rollout AND s.step = v.step AND s.attempt = v.attempt"
            " WHERE v.rollout = ? AND v.step BETWEEN ? AND ? AND s.current",
            part,
        )
        found.update(rows)
    return found


def history(rollout: str, first: int = 1, last: int = END) -> Plan[list[Said]]:
    """Everything that was said of a range of steps, oldest first, also what was taken back."""
    found: list[Said] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        rows = yield Ask(
            f"SELECT seq, at, step, body FROM events WHERE rollout = ? AND {ASIDE}"
            " AND kind = 'verdict' AND step <= ? AND body IS NOT NULL ORDER BY seq",
            (part.rollout, part.last),
        )
        for seq, at, step, raw in rows:
            one = msgspec.msgpack.decode(raw, type=VerdictGiven)
            if one.last >= part.first:
                found.append(
                    Said(
                        seq, at, step, one.last, one.source, one.verdict, one.by, one.verified,
                        one.reason, part.rollout,
                    )
                )  # fmt: skip
    return sorted(found)


def runs(rollout: str, first: int, last: int) -> Plan[tuple[JudgedSteps, ...]]:
    """What people's verdicts on a range stand, as `wire.GiveVerdicts` gives them back to undo."""
    by = yield from standing(rollout, first, last)
    return tuple(_runs(by, first, last))


def _runs(by: dict[int, list[Given]], first: int, last: int) -> Iterator[JudgedSteps]:
    said = [(step, _human(by.get(step, []))) for step in range(first, last + 1)]
    for (verdict, reason), group in groupby(said, key=lambda one: one[1]):
        mine = [step for step, _ in group]
        yield JudgedSteps(first=mine[0], last=mine[-1], verdict=verdict, reason=reason)


def _human(given: list[Given]) -> tuple[Judgement, str]:
    found = next((one for one in given if one.source == "human"), None)
    return (found.verdict, found.reason) if found else ("undecided", "")
