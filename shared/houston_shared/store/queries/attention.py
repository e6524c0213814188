"""Attention: which rollouts ask for a person now, by the signals of their last steps.

The console orders rollouts with it and rules read it; what a signal means is documented in
docs/attention.md.
"""

from typing import NamedTuple

from houston_shared.errors import HoustonError
from houston_shared.records import ObservationBody
from houston_shared.store import journal
from houston_shared.store.journal import Event
from houston_shared.store.plan import Ask, Plan

LAST = 5
"""Closed steps that count as the last ones."""
ALIVE = ("queued", "running", "paused")


class Marked(NamedTuple):
    """A closed step with signals."""

    rollout: str
    step: int
    signals: tuple[str, ...]
    reasons: dict[str, str]
    """By signal; empty where they were not asked for, and for steps of before there were any."""


def recent(
    last: int = LAST,
    states: tuple[str, ...] = ("running",),
    rollout: str = "",
    reasons: bool = True,
) -> Plan[dict[str, list[Marked]]]:
    """By rollout in one of `states`, its steps with signals among the `last` closed ones.

    Newest step first; rollouts without any are left out. Without `reasons` no body is read: only
    the small rows of these steps.
    """
    marks = ",".join(f"?{number}" for number in range(3, 3 + len(states)))
    rows = yield Ask(
        "SELECT s.rollout, s.step, s.attention, s.observation_seq FROM rollouts r JOIN steps s"
        " ON s.rollout = r.id AND s.step > r.steps - ?1 AND s.step <= r.steps AND s.current = 1"
        f" WHERE r.state IN ({marks}) AND (?2 = '' OR r.id = ?2)"
        " AND s.attention <> '' ORDER BY s.rollout, s.step DESC",
        (last, rollout, *states),
    )
    events: dict[int, Event] = {}
    if reasons:
        events = yield from journal.by_seq([row[3] for row in rows])
    found: dict[str, list[Marked]] = {}
    for owner, step, names, seq in rows:
        told = (yield from _reasons(events[seq])) if seq in events else {}
        found.setdefault(owner, []).append(Marked(owner, step, tuple(names.split(",")), told))
    return found


def _reasons(event: Event) -> Plan[dict[str, str]]:
    nothing = ObservationBody(tail="")
    try:
        return (yield from journal.record(event, ObservationBody, nothing)).reasons
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return {}


def need(marked: list[Marked]) -> dict[str, str]:
    """The signals of one rollout's last steps, each once with its newest reason, newest first."""
    found: dict[str, str] = {}
    for one in marked:
        for name in one.signals:
            found.setdefault(name, one.reasons.get(name, ""))
    return found
