"""How a rollout moves from state to state: the one door, which knows the table of transitions.

A pause has an owner: `person:<name>`, `engine`, …; who may resume is decided by the caller, who
moves is written down here.
"""

from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.protocol import Wanted
from houston_daemon.recorder.steps import open_step
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.faults import point
from houston_shared.records import ENDED, STANDS, TRANSITIONS, RolloutState
from houston_shared.secret_values import redact
from houston_shared.store.bodies import StoredState

ENGINE = "engine"
"""Owner of a pause because an engine is down, or refuses what it is asked."""
HOST_AWAY = "host-away"
"""Owner of a pause because a machine that the rollout begins on cannot be reached now."""
DISK = "disk"
"""Owner of a pause because the home's disk is full."""
ASKED_AGAIN = frozenset({ENGINE, HOST_AWAY})
"""Owners whose pauses a worker may end, by asking or looking again."""
BY_ITSELF = ASKED_AGAIN | {DISK}
"""Owners whose pauses end by themselves."""
REPAIR = "repair"
"""Owner of a pause because what is stored of the rollout is, or was, damaged."""
HOST = "host"
"""Owner of a pause because another home drives the rollout's folder, or it is not there."""
RESTORE = "restore"
"""Owner of a pause because the home was made out of a backup: the one before may still run."""
FOR_PEOPLE = frozenset({REPAIR, HOST, RESTORE})
"""Owners whose pauses a person ends."""
REASON_LIMIT = 2_000
"""Characters of a reason that are stored: an engine may answer with a whole page."""


def move(
    store: Store,
    row: Rollout,
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
    if state not in TRANSITIONS[row.state] and not _takes_over(row, state, author):
        raise ValueError(f"{row.id} is {row.state} and cannot become {state}")
    if state in ("cancelled", "failed"):
        how = f"cancelled by {by}" if state == "cancelled" else "the rollout failed"
        open_step.close(store, row, how, active_us)
        if state == "cancelled":
            reason = f"{how}: {reason}" if reason else how
    if len(reason) > REASON_LIMIT:
        reason = f"{reason[: REASON_LIMIT - 2]} …"
    who = author.fields if author else {}
    change = StoredState(state=state, by=by, reason=reason, active_us=active_us, **who)
    point("recorder.state.before")
    seq = store.journal.append(Key(row.id), "state", change)
    point("recorder.state.after")
    if state == "paused" and store.workers.of(row.id) is None:
        stands(store, row.id)
    if state in ("queued", "running"):
        store.tells.append(Wanted())
    return seq


def _takes_over(row: Rollout, state: RolloutState, author: Author | None) -> bool:
    """Whether a person's pause takes the place of one that would end by itself."""
    return author is not None and row.state == state == "paused" and row.paused_by in BY_ITSELF


def stands(store: Store, rollout: str) -> None:
    """Note that nobody works on a paused rollout; a live worker says so itself, by heartbeat."""
    store.connection.execute("UPDATE rollouts SET activity = ? WHERE id = ?", (STANDS, rollout))


def resume(
    store: Store, row: Rollout, by: str, reason: str = "", author: Author | None = None
) -> int:
    """End a pause: the worker goes on, or the rollout waits for one."""
    state: RolloutState = "running" if store.workers.of(row.id) else "queued"
    return move(store, row, state, by, reason, author=author)


def ended(row: Rollout) -> bool:
    """Whether nothing can happen to the rollout any more."""
    return row.state in ENDED
