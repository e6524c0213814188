"""What happened in a rollout behind an event: "since you were here", in one short read.

Counts and lists for a glance, and `events`: everything worth a stop, in order, to be walked with
one key. A branch has only what is its own here: the past that it shares happened before it was.
"""

from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.store import in_order, journal, told
from houston_shared.store.journal import Event
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import actions, guidance
from houston_shared.store.queries.actions import Acted

PEOPLE = ("state", "cancel", "verdict", "bookmark", "claim", "fork")
"""Kinds of events, besides those of steps, that are worth a stop."""
FILES = 12
"""Files that are named at most: those changed most."""
READ = 200
"""Marked steps whose reasons are read: the newest."""


class Happening(NamedTuple):
    """One thing worth a stop."""

    seq: int
    step: int
    """0 where it belongs to no step."""
    at: int
    """UTC microseconds."""
    kind: str
    """`error`, `attention`, `evaluation`, `guidance`, or one of `PEOPLE`."""
    text: str


class Heard(NamedTuple):
    """Guidance that was delivered meanwhile, and what the agent did next."""

    id: str
    author: str
    text: str
    step: int
    """The step whose observation it was joined to."""
    at: int
    followed: Acted | None
    """The step after; None while there is none."""


class Touched(NamedTuple):
    """A file that steps changed."""

    path: str
    times: int
    added: int
    removed: int
    step: int
    """The last that did."""


class Scored(NamedTuple):
    """An evaluation."""

    step: int
    score: float | None
    """None when the evaluator failed or the format was wrong."""
    state: str
    at: int
    seq: int


class Since(NamedTuple):
    """All of it."""

    rollout: str
    after: int
    """The event behind which it begins."""
    seq: int
    """The newest event of the rollout."""
    first: int
    """First step that was closed meanwhile; 0 for none."""
    last: int
    steps: int
    errors: int
    """Of these steps, those in which a call failed."""
    active_us: int
    """Active time that they took, microseconds."""
    evaluations: tuple[Scored, ...]
    best_before: float | None
    guidance: tuple[Heard, ...]
    files: tuple[Touched, ...]
    more_files: int
    events: tuple[Happening, ...]


class _Step(NamedTuple):
    step: int
    errors: int
    attention: str
    tools: str
    seq: int
    at: int
    active_us: int


def happened(rollout: str, after: int) -> Plan[Since]:
    """What came behind the sequence `after` (0: everything)."""
    begun = yield from in_order.step_at(rollout, after)
    steps = yield from _steps(rollout, begun, after)
    scored = yield from _scored(rollout, after)
    heard = yield from _heard(rollout, after)
    files = yield from _files(rollout, begun, after)
    events = [*(yield from _marked(steps)), *(yield from _people(rollout, after))]
    events += [_evaluated(one) for one in scored]
    events += [
        Happening(seq, one.step, one.at, "guidance", f"{one.author}: {one.text}")
        for seq, one in heard
    ]
    rows = yield Ask("SELECT last_seq FROM rollouts WHERE id = ?", (rollout,))
    return Since(
        rollout=rollout,
        after=after,
        seq=rows[0][0] if rows else 0,
        first=steps[0].step if steps else 0,
        last=steps[-1].step if steps else 0,
        steps=len(steps),
        errors=sum(one.errors > 0 for one in steps),
        active_us=(yield from _active(rollout, steps)),
        evaluations=tuple(scored),
        best_before=(yield from _best(rollout, after)),
        guidance=tuple(one for _, one in heard),
        files=tuple(files[:FILES]),
        more_files=max(0, len(files) - FILES),
        events=tuple(sorted(events)),
    )


def _steps(rollout: str, begun: int, after: int) -> Plan[list[_Step]]:
    rows = yield Ask(
        "SELECT step, errors, attention, tools, observation_seq, closed_at, active_us FROM steps"
        " WHERE rollout = ? AND step >= ? AND current AND observation_seq > ? ORDER BY step",
        (rollout, begun, after),
    )
    return [_Step(*row) for row in rows]


def _active(rollout: str, steps: list[_Step]) -> Plan[int]:
    if not steps:
        return 0
    rows = yield Ask(
        "SELECT active_us FROM steps WHERE rollout = ? AND step = ? AND current",
        (rollout, steps[0].step - 1),
    )
    return max(0, steps[-1].active_us - (rows[0][0] if rows else 0))


def _scored(rollout: str, after: int) -> Plan[list[Scored]]:
    rows = yield Ask(
        "SELECT step, score, state, at, seq FROM evaluations WHERE rollout = ? AND seq > ?"
        " ORDER BY number",
        (rollout, after),
    )
    return [Scored(*row) for row in rows]


def _best(rollout: str, after: int) -> Plan[float | None]:
    rows = yield Ask(
        "SELECT max(score) FROM evaluations WHERE rollout = ? AND seq <= ?", (rollout, after)
    )
    best: float | None = rows[0][0]
    return best


def _evaluated(one: Scored) -> Happening:
    text = f"score {one.score:.4g}" if one.score is not None else f"no score ({one.state})"
    return Happening(one.seq, one.step, one.at, "evaluation", text)


def _heard(rollout: str, after: int) -> Plan[list[tuple[int, Heard]]]:
    """With the sequence of each delivery."""
    rows = yield Ask(
        "SELECT id, delivered_seq, delivered_at FROM guidance WHERE rollout = ?"
        " AND state = 'delivered' AND delivered_seq > ? ORDER BY place",
        (rollout, after),
    )
    said = {one.id: one for one in (yield from guidance.of_rollout(rollout))} if rows else {}
    found: list[tuple[int, Heard]] = []
    for id, seq, at in rows:
        one = said[id]
        step = one.step or 0
        followed = yield from actions.of_step(rollout, step + 1)
        found.append((seq, Heard(id, one.author, one.text, step, at, followed)))
    return found


def _files(rollout: str, begun: int, after: int) -> Plan[list[Touched]]:
    """Changed most often first."""
    rows = yield Ask(
        "SELECT path, count(*), sum(added), sum(removed), max(step) FROM file_changes c"
        " JOIN steps s USING (rollout, step, attempt) WHERE rollout = ? AND step >= ?"
        " AND s.current AND c.seq > ? GROUP BY path"
        " ORDER BY count(*) DESC, sum(added) + sum(removed) DESC, path",
        (rollout, begun, after),
    )
    return [Touched(*row) for row in rows]


class _Reasons(msgspec.Struct, frozen=True):
    reasons: dict[str, str] = {}


def _marked(steps: list[_Step]) -> Plan[list[Happening]]:
    """Steps with signals or failed calls; the reasons of old ones among many are not read."""
    marked = [one for one in steps if one.attention or one.errors]
    events = yield from journal.by_seq([one.seq for one in marked[-READ:] if one.attention])
    found: list[Happening] = []
    for run in _runs(marked):
        one, last = run[0], run[-1]
        reasons: dict[str, str] = {}
        if event := events.get(last.seq):
            reasons = yield from _reasons(event)
        names = one.attention.split(",") if one.attention else ["error"]
        kind = "error" if one.errors else "attention"
        text = _said(kind, names, reasons, one.tools)
        if last is not one:
            text += f", to step {last.step}"
        found.append(Happening(one.seq, one.step, one.at, kind, text))
    return found


def _runs(marked: list[_Step]) -> list[list[_Step]]:
    """Steps behind each other with the same signals are one stop, at their first."""
    runs: list[list[_Step]] = []
    for one in marked:
        before = runs[-1][-1] if runs else None
        if (
            before is not None
            and one.step == before.step + 1
            and (one.attention, one.errors > 0) == (before.attention, before.errors > 0)
        ):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _reasons(event: Event) -> Plan[dict[str, str]]:
    try:
        return (yield from journal.record(event, _Reasons, _Reasons())).reasons
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return {}


def _said(kind: str, names: list[str], reasons: dict[str, str], tools: str) -> str:
    """The signals with their reasons; the tools where no reason names one."""
    words = []
    for name in names:
        called = "" if name == kind else name.replace("_", " ")
        words.append(": ".join(filter(None, (called, reasons.get(name)))))
    return "; ".join(filter(None, words)) or tools


def _people(rollout: str, after: int) -> Plan[list[Happening]]:
    marks = ", ".join("?" * len(PEOPLE))
    found = yield from journal.events(
        f"rollout = ? AND {in_order.ASIDE} AND seq > ? AND kind IN ({marks}) ORDER BY seq",
        (rollout, after, *PEOPLE),
    )
    happenings: list[Happening] = []
    judged: dict[str, list[tuple[Event, dict[str, Any]]]] = {}
    for event in found:
        fields = yield from journal.fields(event)
        if fields.get("asked"):  # a run of rules or a judge says much at once: it is one stop
            judged.setdefault(str(fields.get("request")), []).append((event, fields))
            continue
        who = str(fields.get("by") or fields.get("author") or "").removeprefix("person:")
        text = told.said(event.kind, fields, event.step)
        lead = f"{who}: " if who and event.kind not in ("state", "fork") else ""
        line = " ".join(f"{lead}{text}".split())
        happenings.append(Happening(event.seq, event.step, event.at, event.kind, line))
    return [*happenings, *map(_judged, judged.values())]


def _judged(said: list[tuple[Event, dict[str, Any]]]) -> Happening:
    """A run of rules or a judge: how many steps it keeps and masks; leads to the first masked."""
    counts: dict[str, int] = {}
    for event, fields in said:
        many = int(fields.get("last", event.step)) - event.step + 1
        verdict = str(fields.get("verdict"))
        counts[verdict] = counts.get(verdict, 0) + many
    first = next((one for one, fields in said if fields.get("verdict") == "mask"), said[0][0])
    last, fields = said[-1]
    words = ", ".join(f"{name} {told.many(counts[name])}" for name in sorted(counts))
    text = f"{fields.get('asked')}: {words} by {fields.get('by')}"
    return Happening(last.seq, first.step, last.at, "verdict", text)
