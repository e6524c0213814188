"""What is read to list every rollout: those that changed, never more."""

from typing import NamedTuple

from houston_shared.store.plan import Ask, Plan, columns, from_rows
from houston_shared.store.queries.rollouts import Rollout


class Overview(NamedTuple):
    """The rollouts that changed, guidance waiting for each, and the newest sequence."""

    rollouts: list[Rollout]
    waiting: dict[str, int]
    seq: int


def overview(since: int) -> Plan[Overview]:
    """Rollouts changed after `since`, and all that have not ended (their activity has no event)."""
    rows = yield Ask(
        f"SELECT {columns(Rollout)} FROM rollouts"
        " WHERE last_seq > ? OR state IN ('queued', 'running', 'paused')",
        (since,),
    )
    waiting = yield Ask("SELECT rollout, count(*) FROM guidance WHERE state='queued' GROUP BY 1")
    seq = yield Ask("SELECT coalesce(max(seq), 0) FROM events")
    return Overview(from_rows(Rollout, rows), dict(waiting), seq[0][0])
