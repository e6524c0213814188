"""What is wanted of a worker, computed from the database: guidance waiting, pause, cancel, drain.

It is state, not an event: every ack and heartbeat repeats it, so nothing depends on a push.
"""

from houston_daemon.recorder.store import Store
from houston_shared.records import GuidanceMode, Intent
from houston_shared.wire import Control, Waiting

_URGENCY: tuple[GuidanceMode, ...] = ("interrupt", "wake", "next")
NOTHING = Control()


def control(store: Store, rollout: str) -> Control:
    """The control state of one rollout."""
    row = store.rollout(rollout)
    if row is None:
        return NOTHING
    return Control(
        waiting=waiting(store, rollout),
        pause=row.state == "paused",
        cancel=row.state == "cancelled" or bool(row.cancelling),
        drain=store.draining,
    )


def waiting(store: Store, rollout: str) -> Waiting:
    """How much guidance is queued, and how urgent the most urgent is."""
    counts: dict[str, int] = dict(
        store.connection.execute(
            "SELECT mode, count(*) FROM guidance WHERE rollout = ? AND state = 'queued'"
            " GROUP BY mode",
            (rollout,),
        ).fetchall()
    )
    if not counts:
        return Waiting()
    urgency = next(mode for mode in _URGENCY if mode in counts)
    return Waiting(count=sum(counts.values()), urgency=urgency)


def may_act(intent: Intent, control: Control) -> bool:
    """Whether a call may still run: a wake cancels a sleep or wait, an interrupt any call."""
    urgency = control.waiting.urgency
    if urgency == "interrupt":
        return False
    return not (urgency == "wake" and intent.deadline > 0)
