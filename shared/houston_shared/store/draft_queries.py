"""Guidance that a critic drafted for running rollouts, and what people made of it."""

from typing import Any

import msgspec

from houston_shared.records import Record
from houston_shared.store import journal_events
from houston_shared.store.event_bodies import DraftWritten
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.times_and_counts import iso_time


class CriticDraft(Record, frozen=True):
    """One draft."""

    id: str
    rollout: str
    step: int
    """The last closed step that the critic read."""
    critic: str
    """Its policy, else its engine."""
    text: str
    reason: str
    state: str
    """`open`, `accepted`, `edited` (said in other words) or `rejected`."""
    by: str
    """Who decided; empty while it is open."""
    guidance: str
    """Id of what was said; empty where nothing was."""
    at: str


def list_drafts(rollout: str) -> ReadPlan[list[CriticDraft]]:
    """Of a rollout (a whole id), the oldest first; texts that were erased say so."""
    return (yield from _read_drafts("rollout = ? ORDER BY seq", rollout))


def find_open_draft(rollout: str) -> ReadPlan[CriticDraft | None]:
    """The newest draft of a rollout that nobody has decided."""
    newest = "rollout = ? AND state = 'open' ORDER BY seq DESC LIMIT 1"
    return next(iter((yield from _read_drafts(newest, rollout))), None)


def _read_drafts(condition: str, rollout: str) -> ReadPlan[list[CriticDraft]]:
    rows = yield RunSql(
        "SELECT id, step, critic, state, by, guidance, at, seq FROM critic_drafts WHERE "
        + condition,
        (rollout,),
    )
    erased = DraftWritten(id="", critic="", text=journal_events.ERASED_TEXT)
    bodies = yield from journal_events.read_records_at(
        [row[-1] for row in rows], DraftWritten, erased
    )
    return [
        CriticDraft(
            id=id_, rollout=rollout, step=step, critic=critic,
            text=bodies.get(seq, erased).text, reason=bodies.get(seq, erased).reason,
            state=state, by=by, guidance=guidance, at=iso_time(at),
        )
        for id_, step, critic, state, by, guidance, at, seq in rows
    ]  # fmt: skip


def draft_json(draft: CriticDraft) -> dict[str, Any]:
    """A line of `houston guidance R --drafts --json`."""
    fields: dict[str, Any] = msgspec.to_builtins(draft)
    return fields
