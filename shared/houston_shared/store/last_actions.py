"""The last action of a rollout, or of one step, in a few words.

A body that is damaged, which `houston verify` names, hides no other: its words are empty.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.store import event_text, journal_events
from houston_shared.store.journal_events import JournalEvent, ReadPlan, RunSql

ACTION_CHARACTERS = 160
"""Characters of an action's words."""


class LastAction(NamedTuple):
    """What a rollout did last, or does."""

    step: int
    at: int
    """When it was sampled, UTC microseconds."""
    open: bool
    """Whether the step is under way."""
    text: str


class _SampledAction(msgspec.Struct, frozen=True):
    thought: str = ""
    calls: tuple[dict[str, Any], ...] = ()


_ERASED_ACTION = _SampledAction(thought=journal_events.ERASED_TEXT)


def read_last_actions(rollouts: Sequence[str]) -> ReadPlan[dict[str, LastAction]]:
    """By rollout; those without a step of their own are left out."""
    newest: list[tuple[str, int, int, bool]] = []
    for rollout in rollouts:
        rows = yield RunSql(
            "SELECT step, sample_seq, observation_seq IS NULL FROM steps"
            " WHERE rollout = ? AND current ORDER BY step DESC LIMIT 1",
            (rollout,),
        )
        newest += [(rollout, step, seq, bool(open)) for step, seq, open in rows]
    events = yield from journal_events.events_by_seq([seq for _, _, seq, _ in newest])
    actions: dict[str, LastAction] = {}
    for rollout, step, seq, open in newest:
        if event := events.get(seq):
            actions[rollout] = LastAction(
                step, event.at, open, (yield from read_action_text(event))
            )
    return actions


def read_action_of_step(rollout: str, step: int) -> ReadPlan[LastAction | None]:
    """What one step did; None where there is no such step."""
    rows = yield RunSql(
        "SELECT sample_seq, observation_seq IS NULL FROM steps WHERE rollout = ? AND step = ?"
        " AND current",
        (rollout, step),
    )
    for seq, open in rows:
        for event in (yield from journal_events.events_by_seq([seq])).values():
            return LastAction(step, event.at, bool(open), (yield from read_action_text(event)))
    return None


def read_action_text(sample: JournalEvent) -> ReadPlan[str]:
    """The calls of a sample's event, or the beginning of its thought where it has none."""
    try:
        action = yield from journal_events.read_event_record(sample, _SampledAction, _ERASED_ACTION)
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return ""
    text = "; ".join(event_text.describe_call(call) for call in action.calls) or action.thought
    line = " ".join(text[: 4 * ACTION_CHARACTERS].split())
    return line if len(line) <= ACTION_CHARACTERS else f"{line[: ACTION_CHARACTERS - 1]}…"
