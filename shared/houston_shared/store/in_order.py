"""A rollout's events in the order in which they were stored, from two indexes.

What a worker stores of its steps comes step by step: steps and sequences rise together, so the
index of the keys has that order. Everything else (what people and the daemon do, a judge's sample
for an old step) is rare and has an index of its own. A third index, on every event of a rollout,
would be read by less than this and written with each: it was a third of the WAL.
"""

from collections.abc import Sequence

from houston_shared.store.plan import END, Ask, Plan, Row

ASIDE = "kind <> 'intent' AND kind <> 'result' AND kind <> 'observation' AND part IS NOT 'sample'"
"""Events that need not come in the order of steps: what the index `events_aside` holds."""
OF_ROLLOUT = (
    "seq IN (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
    f" UNION ALL SELECT seq FROM events WHERE rollout = ?1 AND {ASIDE})"
)
"""Condition for all events of the rollout `?1`."""
_MIDDLE = "(low + high + 1) / 2"
_SHARED = "coalesce((SELECT parent_step FROM rollouts WHERE id = ?1 AND parent <> ''), 0)"
"""The last step that the rollout `?1` shares with its parent; up to it, it has no rows."""
_STEP_AT = f"""
WITH RECURSIVE near (low, high) AS (
    SELECT {_SHARED}, coalesce((SELECT max(step) FROM steps WHERE rollout = ?1), 0)
    UNION ALL
    SELECT iif(sample_seq <= ?2, {_MIDDLE}, low), iif(sample_seq <= ?2, high, {_MIDDLE} - 1)
    FROM near LEFT JOIN steps ON rollout = ?1 AND step = {_MIDDLE} AND attempt = 1
    WHERE low < high
) SELECT low FROM near WHERE low >= high
"""
"""The newest step of the rollout `?1` that was begun by the sequence `?2`, by halving; else the
last that it shares, or 0."""
TOUCHED = (
    f"SELECT step FROM events WHERE rollout = ?1 AND part IS NOT NULL AND step >= ({_STEP_AT})"
    f" AND seq > ?2 UNION SELECT step FROM events WHERE rollout = ?1 AND {ASIDE} AND seq > ?2"
)
"""Steps of the rollout `?1` with events behind the sequence `?2`, each once; 0 for its own."""
_WINDOW = (
    "seq IN (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
    " AND step BETWEEN ?4 AND ?5 AND seq > ?2 AND seq < ?3"
    f" UNION ALL SELECT seq FROM events WHERE rollout = ?1 AND {ASIDE} AND seq > ?2 AND seq < ?3)"
)
_GROWTH = 4
"""A window in which too little was found is followed by one so many times as long."""


def forward(
    what: str, rollout: str, after: int, limit: int, kinds: Sequence[str] = ()
) -> Plan[list[Row]]:
    """Columns `what` of the first `limit` events behind the sequence `after`, oldest first."""
    last = yield from _newest_step(rollout)
    first, size = (yield from step_at(rollout, after)), limit
    found: list[Row] = []
    while len(found) < limit:
        until = first + size
        high = yield from _begun(rollout, until + 1)
        window = (after, high, first, until)
        found += yield from _read(what, rollout, window, limit - len(found), kinds, "ASC")
        if until >= last:
            break
        after, first, size = high - 1, until + 1, size * _GROWTH
    return found


def backward(
    what: str, rollout: str, before: int, limit: int, kinds: Sequence[str] = (), after: int = 0
) -> Plan[list[Row]]:
    """As `forward`, of the last events ahead of `before` and behind `after`, newest first."""
    until, size = (yield from step_at(rollout, before - 1)), limit
    found: list[Row] = []
    while len(found) < limit:
        first = until - size
        low = (yield from _begun(rollout, first)) - 1 if first > 0 else 0
        window = (max(low, after), before, first, until)
        found += yield from _read(what, rollout, window, limit - len(found), kinds, "DESC")
        if low <= after:
            break
        before, until, size = low + 1, first - 1, size * _GROWTH
    return found


def _read(
    what: str,
    rollout: str,
    window: tuple[int, int, int, int],
    limit: int,
    kinds: Sequence[str],
    direction: str,
) -> Plan[list[Row]]:
    """window: sequences after and before which, and steps from and to which."""
    wanted = f"AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows: list[Row] = yield Ask(
        f"SELECT {what} FROM events e WHERE {_WINDOW} {wanted} ORDER BY seq {direction} LIMIT ?",
        (rollout, *window, *kinds, limit),
    )
    return rows


def _newest_step(rollout: str) -> Plan[int]:
    rows = yield Ask("SELECT max(step) FROM steps WHERE rollout = ?", (rollout,))
    return rows[0][0] or 0


def step_at(rollout: str, seq: int) -> Plan[int]:
    """The newest step that was begun by the sequence; 0 when none was."""
    rows = yield Ask(_STEP_AT, (rollout, seq))
    return int(rows[0][0])


def _begun(rollout: str, step: int) -> Plan[int]:
    """The sequence with which the step began: `END` when it did not, 1 when it is shared."""
    rows = yield Ask(
        "SELECT coalesce((SELECT sample_seq FROM steps WHERE rollout = ?1 AND step = ?2"
        f" AND attempt = 1), iif(?2 <= {_SHARED}, 1, ?3))",
        (rollout, step, END),
    )
    return int(rows[0][0])
