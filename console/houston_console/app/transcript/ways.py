"""Ways through a trajectory: the nearest step of a kind, one indexed query for each kind.

A branch's shared past is looked at where it lies. A step that purification replaced is no place.
"""

from typing import NamedTuple

from houston_shared.store.plan import END, Ask, Plan
from houston_shared.store.queries import lineage

_STEPS = "SELECT step FROM steps s WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1"
AIMS = 8
"""Tools of one step that are looked for at most."""
_DROPS = (
    "SELECT step FROM (SELECT step, score, lag(score) OVER (ORDER BY number) AS before"
    " FROM evaluations WHERE rollout = ?1 AND score IS NOT NULL)"
    " WHERE score < before AND step BETWEEN ?2 AND ?3"
)
_MARKED = (
    "SELECT step FROM (SELECT step, rollout FROM bookmarks UNION SELECT step, rollout FROM notes)"
    " WHERE rollout IN (?1, ?4) AND step BETWEEN ?2 AND ?3"
)


class Way(NamedTuple):
    """One kind of step to go to."""

    word: str
    """What such a step has, for `No … after step 7.`"""
    select: str
    """Parameters: rollout, first and last step, `extra`."""
    extra: str = ""
    """`tools`: those that are looked for; `open`: the rollout that is open."""


WAYS = {
    "error": Way("error", f"{_STEPS} AND errors > 0"),
    "guidance": Way("guidance", f"{_STEPS} AND guided > 0"),
    "attention": Way("attention mark", f"{_STEPS} AND attention NOT IN ('', 'error')"),
    "tool": Way("step with the same tool", _STEPS, "tools"),
    "file": Way(
        "change of a file",
        "SELECT f.step FROM file_changes f JOIN steps USING (rollout, step, attempt)"
        " WHERE f.rollout = ?1 AND f.step BETWEEN ?2 AND ?3 AND current = 1",
    ),
    "evaluation": Way(
        "evaluation",
        "SELECT step FROM evaluations WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3",
    ),
    "drop": Way("fall of the score", _DROPS),
    "fork": Way(
        "new context", "SELECT step FROM forks WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    ),
    "bookmark": Way("bookmark or note", _MARKED, "open"),
    "verdict": Way(
        "verdict", "SELECT step FROM verdicts WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    ),
}


def nearest(rollout: str, step: int, kind: str, forward: bool, tools: str = "") -> Plan[int | None]:
    """The nearest step after (or before) `step` of a kind in `WAYS`; None when there is none.

    tools: for the kind `tool`, comma separated; empty for steps without an action.
    """
    first, last = (step + 1, END) if forward else (1, step - 1)
    parts = yield from lineage.stretches(rollout, first, last)
    way, order = WAYS[kind], f"ORDER BY 1 {'ASC' if forward else 'DESC'} LIMIT 1"
    condition, extra = _extra(way.extra, rollout, tools)
    for part in parts if forward else parts[::-1]:
        rows = yield Ask(f"{way.select} {condition} {order}", (*part, *extra))
        if rows:
            return int(rows[0][0])
    return None


def _extra(kind: str, rollout: str, tools: str) -> tuple[str, tuple[str, ...]]:
    """A condition, and the parameters from the fourth on."""
    if kind == "open":
        return "", (rollout,)
    if kind != "tools":
        return "", ()
    names = tools.split(",")[:AIMS] if tools else []
    same = (f"instr(',' || tools || ',', ?{number + 4}) > 0" for number in range(len(names)))
    condition = " OR ".join(same) or "tools = ''"
    return f"AND ({condition})", tuple(f",{name}," for name in names)


def tools_of(rollout: str, step: int) -> Plan[str]:
    """The tools that a step called, comma separated; empty for none."""
    for part in (yield from lineage.stretches(rollout, step, step)):
        rows = yield Ask(
            "SELECT tools FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1",
            part,
        )
        if rows:
            return str(rows[0][0])
    return ""


def at_time(rollout: str, kind: str, since: int) -> Plan[int | None]:
    """The first step at which `since` microseconds were reached; None when none is that late.

    kind: `active` for active time, `ended` for the wall clock, UTC.
    """
    what = {"active": "active_us", "ended": "coalesce(closed_at, started_at)"}[kind]
    for part in (yield from lineage.stretches(rollout)):
        rows = yield Ask(f"{_STEPS} AND {what} >= ?4 ORDER BY step LIMIT 1", (*part, since))
        if rows:
            return int(rows[0][0])
    return None
