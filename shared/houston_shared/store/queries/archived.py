"""Whether a rollout was archived, and where it is now."""

import msgspec

from houston_shared.store.bodies import Erased
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import Ask, Plan


def place(rollout: str) -> Plan[str]:
    """The file that holds the rollout as it was; empty when it was not archived to the end."""
    told = yield from _told(rollout)
    return next((one.archive for one in told if one.archive and not one.more), "")


def all_places() -> Plan[dict[str, str]]:
    """The files of all rollouts that were archived to the end, by rollout."""
    # In no order and `>`: else SQLite looks at every event of the home instead of the few aside.
    rows = yield Ask(
        f"SELECT seq, rollout, body FROM events WHERE {ASIDE} AND kind = 'erased'"
        " AND rollout > '' AND body IS NOT NULL"
    )
    told = (
        (rollout, msgspec.msgpack.decode(body, type=Erased)) for _, rollout, body in sorted(rows)
    )
    return {rollout: one.archive for rollout, one in told if one.archive and not one.more}


def begun(rollout: str) -> Plan[str]:
    """The newest file of the rollout for which texts were taken out, also where some remain."""
    told = yield from _told(rollout)
    return next((one.archive for one in told if one.archive), "")


def _told(rollout: str) -> Plan[list[Erased]]:
    rows = yield Ask(
        f"SELECT body FROM events WHERE rollout = ? AND {ASIDE} AND kind = 'erased'"
        " AND body IS NOT NULL"
        " ORDER BY seq DESC",
        (rollout,),
    )
    return [msgspec.msgpack.decode(body, type=Erased) for (body,) in rows]


def sentence(rollout: str) -> Plan[str]:
    """What is said where texts of an archived rollout would stand; empty for all others."""
    where = yield from place(rollout)
    if not where:
        return ""
    read = f"houston rollout archive --read {where}"
    return f"{rollout} was archived: its texts are in {where}. next: {read}"
