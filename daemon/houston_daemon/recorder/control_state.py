"""What is wanted of a worker, computed from the database: guidance waiting, pause, cancel, drain.

It is state, not an event: every ack and heartbeat repeats it, so nothing depends on a push.
"""

from collections.abc import Iterable

from houston_daemon.recorder.store import Store
from houston_shared.records import GuidanceMode, Intent
from houston_shared.wire import Control, Waiting

_URGENCY: tuple[GuidanceMode, ...] = ("interrupt", "wake", "next")
NOTHING = Control()


class Controls:
    """What is wanted of every worker, remembered until an event changes it.

    Only for committed state: ask between transactions, `forget` after each.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Control] = {}

    def of(self, rollout: str) -> Control:
        """The control state of one rollout."""
        found = self._known.get(rollout)
        if found is None:
            found = self._known[rollout] = control(self._store, rollout)
        return found

    def forget(self, rollouts: Iterable[str]) -> None:
        """Events of these rollouts may have changed it."""
        for rollout in rollouts:
            self._known.pop(rollout, None)

    def forget_all(self) -> None:
        """Something changed it for everybody."""
        self._known.clear()


def control(store: Store, rollout: str) -> Control:
    """The control state of one rollout, from the database."""
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
