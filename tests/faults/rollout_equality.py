"""Everything that a home holds of one rollout, in a form in which two rollouts can be equal.

What must differ is named by what it means: a sequence number is the (step, attempt, part) of its
event, the rollout's own name is "R". Left out are leases, which count deaths, and what a start
draws by lot (spec, group and seed). Nothing else is.
"""

from typing import Any

import msgspec

from houston_shared.store import store_reader
from tests.faults.daemon_under_test import Ground

OWN = ("events", "rollouts", "guidance", "notes", "bookmarks", "tasks", "annotators")
"""Tables that are compared otherwise, or that no worker fills."""
ITS_OWN = ("lease", "last_seq", "activity", "seed", "group_id", "request")
"""Columns: deaths counted, presence, and what was drawn by lot."""


def journal(ground: Ground, rollout: str) -> list[tuple[Any, ...]]:
    """Every event but spec and assignments: key, kind, time and body, byte for byte."""
    meaning = _meaning(ground, rollout)
    rows = ground.query(
        "SELECT step, attempt, part, kind, at, body, blob FROM events"
        " WHERE rollout = ? AND kind NOT IN ('spec', 'assigned') ORDER BY seq",
        rollout,
    )
    found = []
    for *header, body, blob in rows:
        data = body if body is not None else store_reader.read_blob(ground.home, blob)
        value = msgspec.msgpack.decode(data)
        for name in ("parent_seq", "sample_seq"):
            if isinstance(value, dict) and value.get(name) is not None:
                value[name] = meaning[value[name]]
        found.append((*header, msgspec.msgpack.encode(value).replace(rollout.encode(), b"R")))
    return found


def tables(ground: Ground, rollout: str) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of every derived table, sequence numbers by what they mean."""
    meaning = _meaning(ground, rollout)
    found = {"rollouts": _rows(ground, "rollouts", "id", rollout, meaning)}
    names = ground.query(
        "SELECT m.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c"
        " ON c.name = 'rollout' WHERE m.type = 'table'"
    )
    for (name,) in names:
        if name not in OWN:
            found[name] = _rows(ground, name, "rollout", rollout, meaning)
    return found


def _rows(
    ground: Ground, table: str, key: str, rollout: str, meaning: dict[int, Any]
) -> list[tuple[Any, ...]]:
    columns = [name for (name,) in ground.query(f"SELECT name FROM pragma_table_info('{table}')")]
    kept = [name for name in columns if name not in ITS_OWN]
    rows = ground.query(f"SELECT {', '.join(kept)} FROM {table} WHERE {key} = ?", rollout)

    def told(name: str, value: Any) -> Any:
        if value is not None and (name == "seq" or name.endswith("_seq")):
            return meaning[value]
        return "R" if value == rollout else value

    return sorted((tuple(map(told, kept, row)) for row in rows), key=repr)


def _meaning(ground: Ground, rollout: str) -> dict[int, Any]:
    rows = ground.query(
        "SELECT seq, step, attempt, part, kind FROM events WHERE rollout=?", rollout
    )
    return {seq: list(rest) for seq, *rest in rows}
