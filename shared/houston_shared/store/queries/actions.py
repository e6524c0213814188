"""The last action of rollouts, in a few words, read from its sample without token ids."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.store import journal, told
from houston_shared.store.journal import Event
from houston_shared.store.plan import Ask, Plan

WIDTH = 160
"""Characters of an action's words."""


class Acted(NamedTuple):
    """What a rollout did last, or does."""

    step: int
    at: int
    """When it was sampled, UTC microseconds."""
    open: bool
    """Whether the step is under way."""
    text: str


class _Action(msgspec.Struct, frozen=True):
    thought: str = ""
    calls: tuple[dict[str, Any], ...] = ()


_NOTHING = _Action(thought=journal.ERASED)


def last(rollouts: Sequence[str]) -> Plan[dict[str, Acted]]:
    """By rollout; those without a step of their own are left out."""
    newest: list[tuple[str, int, int, bool]] = []
    for rollout in rollouts:
        rows = yield Ask(
            "SELECT step, sample_seq, observation_seq IS NULL FROM steps"
            " WHERE rollout = ? AND current ORDER BY step DESC LIMIT 1",
            (rollout,),
        )
        newest += [(rollout, step, seq, bool(open)) for step, seq, open in rows]
    events = yield from journal.by_seq([seq for _, _, seq, _ in newest])
    found: dict[str, Acted] = {}
    for rollout, step, seq, open in newest:
        if event := events.get(seq):
            found[rollout] = Acted(step, event.at, open, (yield from text(event)))
    return found


def of_step(rollout: str, step: int) -> Plan[Acted | None]:
    """What one step did; None where there is no such step."""
    rows = yield Ask(
        "SELECT sample_seq, observation_seq IS NULL FROM steps WHERE rollout = ? AND step = ?"
        " AND current",
        (rollout, step),
    )
    for seq, open in rows:
        for event in (yield from journal.by_seq([seq])).values():
            return Acted(step, event.at, bool(open), (yield from text(event)))
    return None


def text(sample: Event) -> Plan[str]:
    """The calls of a sample's event, or the beginning of its thought where it has none."""
    try:
        action = yield from journal.record(sample, _Action, _NOTHING)
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return ""
    said = "; ".join(told.call(one) for one in action.calls) or action.thought
    line = " ".join(said[: 4 * WIDTH].split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
