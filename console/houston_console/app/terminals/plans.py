"""What the store says of terminals: which there are, and what each step printed in them."""

from typing import NamedTuple

from houston_shared.records import RolloutSpec
from houston_shared.store.plan import Ask, Plan, RowRecord
from houston_shared.store.queries import lineage, rollouts, world

LOCAL = "local"


class Known(NamedTuple):
    """Terminals of a rollout, and the machines they may be on."""

    names: list[tuple[str, str]]
    """Host and name of those that steps used."""
    spec: RolloutSpec


class Printed(RowRecord, frozen=True):
    """What one terminal printed during a step."""

    step: int
    start: int
    end: int
    at: int
    """When the step was closed; 0 while it is open."""
    rollout: str
    """Whose step, and so whose terminal, it is: a branch shares those of its parent."""


def known(rollout: str) -> Plan[Known]:
    """Terminals that steps used."""
    names = [(one.host, one.name) for one in (yield from world.terminals(rollout))]
    one = yield from rollouts.rollout(rollout)
    return Known(names, (yield from rollouts.spec(one)))


def printed(rollout: str, host: str, name: str, step: int, by: int = 0) -> Plan[Printed | None]:
    """The newest step up to `step` in which a terminal printed; by: 1 the next after, -1 before."""
    later = by > 0
    parts = yield from lineage.stretches(rollout)
    for part in parts if later else reversed(parts):
        rows = yield Ask(
            "SELECT t.step, t.start, t.end, coalesce(s.closed_at, 0), t.rollout"
            " FROM terminal_spans t JOIN steps s USING (rollout, step, attempt)"
            " WHERE t.rollout = ?1 AND s.current = 1 AND t.step BETWEEN ?2 AND ?3"
            f" AND t.host = ?4 AND t.terminal = ?5 AND t.step {'>' if later else '<='} ?6"
            f" ORDER BY t.step {'' if later else 'DESC'} LIMIT 1",
            (*part, host, name, step - 1 if by < 0 else step),
        )
        if rows:
            return Printed(*rows[0])
    return None
