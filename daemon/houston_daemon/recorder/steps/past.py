"""Whether the past that a branch shares is still what it was: a repair may have taken from it.

What is unsound in it is found like any damage (`resumable`); here is what a repair has set aside.
"""

from houston_daemon.recorder.steps import rebuild
from houston_daemon.recorder.store import Store
from houston_shared.store.bodies import ASIDE as KIND
from houston_shared.store.in_order import ASIDE
from houston_shared.store.queries import lineage

_CLOSED = (
    "SELECT count(*) FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current"
    " AND observation_seq <= ?4"
)
_HOLE = (
    f"SELECT 1 FROM events e WHERE rollout = ?1 AND {ASIDE} AND kind = '{KIND}' AND seq <= ?4"
    " AND seq >= (SELECT min(sample_seq) FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    " AND current) AND (step = 0 OR step BETWEEN ?2 AND ?3 AND seq >= coalesce((SELECT sample_seq"
    " FROM steps s WHERE s.rollout = ?1 AND s.step = e.step AND s.current), 0)) LIMIT 1"
)
"""Something of these steps, as they were run last, or of nobody knows which step."""


def lost_of(store: Store, rollout: str, first: int, last: int, seq: int) -> str:
    """The rollout of which steps `first` to `last`, shared by `rollout`, are not whole; else empty.

    seq: the observation that closed the last of them; what ran after it is another run.
    """
    for part in rebuild.run(store, lineage.stretches(rollout, first, last)):
        (closed,) = store.connection.execute(_CLOSED, (*part, seq)).fetchone()
        hole = store.connection.execute(_HOLE, (*part, seq)).fetchone()
        if hole is not None or closed != part.last - part.first + 1:
            return part.rollout
    return ""
