"""Changes the state of rollouts: the only module that does, following the table of transitions.

A pause has an owner (`person:ada`, `engine`, `disk`, …), which decides who may end it. If a rollout
fails or is cancelled, its open step is closed in the same transaction and every call gets an honest
result. The caller decides who may ask for a change.
"""

from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_handle import RunnableChanged
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.rollout_reader import read_open_step
from houston_shared.faults import point
from houston_shared.guidance_tag import disarm
from houston_shared.records import (
    AT_REST_ACTIVITY,
    STATE_TRANSITIONS,
    CallIntent,
    RolloutState,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact
from houston_shared.store.event_bodies import StoredObservation, StoredState


def close_open_step(store: Store, row: RolloutRow, cause: str, active_us: int = 0) -> None:
    """Close the open step, if there is one. cause: what ended it: `cancelled by person:ada`."""
    step = read_open_step(store, row)
    if step is None:
        return
    running = len(step.intents) > len(step.results)
    cause = disarm(cause).text  # a claimed name is anybody's words
    for index, result in enumerate(_missing_results(step, cause), len(step.results)):
        if index >= len(step.intents):  # it never began: no call without an intent
            intent = CallIntent(call=result.call)
            store.journal.append(_step_key(row, step, f"intent.{index}"), "intent", intent)
        store.journal.append(_step_key(row, step, f"call.{index}"), "result", result)
    observation = StoredObservation(
        tail=f"[{cause} during this step]",
        attention=("interrupted", "error") if running else ("interrupted",),
        reasons={"interrupted": f"{cause} during this step"},
        active_us=max(active_us, row.active_us),
    )
    store.journal.append(_step_key(row, step, "observation"), "observation", observation)


def _missing_results(step: StepRecord, cause: str) -> list[ToolResult]:
    """What the calls without a result come to."""
    begun_calls = [intent.call for intent in step.intents]
    unknown = [
        _interrupted_result(call, f"Interrupted: {cause} while it ran; the outcome is unknown.")
        for call in begun_calls[len(step.results) :]
    ]
    return unknown + [
        _interrupted_result(call, f"[not run: {cause}]")
        for call in step.sample.calls[len(begun_calls) :]
    ]


def _interrupted_result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call=call, kind="interrupted", success=False, text=text)


def _step_key(row: RolloutRow, step: StepRecord, part: str) -> EventKey:
    return EventKey(row.id, step.step, step.attempt, part)


PAUSED_BY_ENGINE = "engine"
"""Owner of a pause because an engine is down, or refuses what it is asked."""
PAUSED_BY_HOST_AWAY = "host-away"
"""Owner of a pause because a machine that the rollout begins on cannot be reached now."""
PAUSED_BY_DISK = "disk"
"""Owner of a pause because the home's disk is full."""
PAUSES_RETRIED_BY_WORKER = frozenset({PAUSED_BY_ENGINE, PAUSED_BY_HOST_AWAY})
"""Owners whose pauses a worker may end, by asking or looking again."""
SELF_ENDING_PAUSES = PAUSES_RETRIED_BY_WORKER | {PAUSED_BY_DISK}
"""Owners whose pauses end by themselves."""
PAUSED_BY_REPAIR = "repair"
"""Owner of a pause because what is stored of the rollout is, or was, damaged."""
PAUSED_BY_HOST = "host"
"""Owner of a pause because another home drives the rollout's folder, or it is not there."""
PAUSED_BY_RESTORE = "restore"
"""Owner of a pause because the home was made out of a backup: the one before may still run."""
PAUSES_ENDED_BY_PEOPLE = frozenset({PAUSED_BY_REPAIR, PAUSED_BY_HOST, PAUSED_BY_RESTORE})
"""Owners whose pauses a person ends."""
STATE_REASON_LIMIT = 2_000
"""Characters of a reason that are stored: an engine may answer with a whole page."""


def change_state(
    store: Store,
    row: RolloutRow,
    state: RolloutState,
    by: str,
    reason: str = "",
    active_us: int = 0,
    author: Author | None = None,
) -> int:
    """Append the change of state and return its sequence; raises ValueError for a wrong one.

    author: the person who asked for it, where there is one.
    """
    reason = redact(reason)
    if state not in STATE_TRANSITIONS[row.state] and not _is_pause_takeover(row, state, author):
        raise ValueError(f"{row.id} is {row.state} and cannot become {state}")
    if state in ("cancelled", "failed"):
        cause = f"cancelled by {by}" if state == "cancelled" else "the rollout failed"
        close_open_step(store, row, cause, active_us)
        if state == "cancelled":
            reason = f"{cause}: {reason}" if reason else cause
    if len(reason) > STATE_REASON_LIMIT:
        reason = f"{reason[: STATE_REASON_LIMIT - 2]} …"
    person = author.event_fields if author else {}
    change = StoredState(state=state, by=by, reason=reason, active_us=active_us, **person)
    point("recorder.state.before")
    seq = store.journal.append(EventKey(row.id), "state", change)
    point("recorder.state.after")
    if state == "paused" and store.workers.get(row.id) is None:
        mark_unattended(store, row.id)
    if state in ("queued", "running") or store.workers.get(row.id) is None:
        store.supervisor_events.append(RunnableChanged())
    return seq


def _is_pause_takeover(row: RolloutRow, state: RolloutState, author: Author | None) -> bool:
    """Whether a person's pause takes the place of one that would end by itself."""
    return (
        author is not None
        and row.state == state == "paused"
        and row.paused_by in SELF_ENDING_PAUSES
    )


def mark_unattended(store: Store, rollout: str) -> None:
    """Record that no worker runs a paused rollout; a live worker reports that by heartbeat."""
    store.connection.execute(
        "UPDATE rollouts SET activity = ? WHERE id = ?", (AT_REST_ACTIVITY, rollout)
    )


def resume_rollout(
    store: Store, row: RolloutRow, by: str, reason: str = "", author: Author | None = None
) -> int:
    """End a pause: the worker goes on, or the rollout waits for one."""
    state: RolloutState = "running" if store.workers.get(row.id) else "queued"
    return change_state(store, row, state, by, reason, author=author)
