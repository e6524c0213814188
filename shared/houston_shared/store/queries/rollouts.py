"""Rollouts and tasks: lists, one of them, and the meaning of an abbreviated id."""

from typing import NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.records import AWAY, STANDS, Head, RolloutSpec, TaskRecord
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan, RowRecord, columns, from_rows

_NAMED = 5
"""Ids that an error names at most."""


class Rollout(RowRecord, frozen=True):
    """A row of `rollouts`; times in microseconds UTC."""

    id: str
    task: str
    state: str
    paused_by: str
    reason: str
    engine: str
    policy: str
    group_id: str
    parent: str
    parent_step: int | None
    sandbox: str
    forks: int
    first_step: int
    """First step of the current context."""
    steps: int
    """Closed steps."""
    active_us: int
    evaluations: int
    best_score: float | None
    last_score: float | None
    errors: int
    activity: str
    created_at: int
    updated_at: int
    last_seq: int
    spec_seq: int
    head_seq: int | None
    cancelling: str = ""
    """Who asked to cancel it while a worker still runs it."""


def stands(one: Rollout) -> bool:
    """Whether a rollout is paused and nothing of it runs any more: no step is under way.

    A worker that an engine refused asks it again, and does nothing else.
    """
    return one.state == "paused" and (one.activity == STANDS or one.activity.startswith(AWAY))


class Waiting(NamedTuple):
    """An engine that workers cannot sample from."""

    engine: str
    activity: str
    """What one of the workers says of it; cut."""
    rollouts: int

    @property
    def said(self) -> str:
        """Both, as a sentence."""
        who = "1 rollout is" if self.rollouts == 1 else f"{self.rollouts} rollouts are"
        return f"{who} {self.activity}"


class Task(RowRecord, frozen=True):
    """A row of `tasks`, with how many rollouts it has."""

    name: str
    seq: int
    first_seen: int
    rollouts: int
    running: int
    """Rollouts that have not ended."""
    best_score: float | None


def all_rollouts(task: str = "", state: str = "") -> Plan[list[Rollout]]:
    """Every rollout, newest first; of one task or in one state when named."""
    rows = yield Ask(
        f"SELECT {columns(Rollout)} FROM rollouts"
        " WHERE (?1 = '' OR task = ?1) AND (?2 = '' OR state = ?2)"
        " ORDER BY created_at DESC, id DESC",
        (task, state),
    )
    return from_rows(Rollout, rows)


def waiting() -> Plan[list[Waiting]]:
    """Engines that rollouts wait for, by name, as their workers said last."""
    rows = yield Ask(
        "SELECT engine, max(activity), count(*) FROM rollouts"
        " WHERE (state = 'running' OR paused_by = 'engine') AND substr(activity, 1, ?) = ?"
        " GROUP BY engine ORDER BY engine",
        (len(AWAY), AWAY),
    )
    return [Waiting(engine, activity, count) for engine, activity, count in rows]


def rollout(name: str) -> Plan[Rollout]:
    """The rollout with this id, or a unique beginning or else ending of one.

    Raises HoustonError naming those that are meant, or near ones.
    """
    rows = yield Ask(f"SELECT {columns(Rollout)} FROM rollouts WHERE id = ?", (name,))
    if rows:
        return Rollout(*rows[0])
    rows = yield Ask("SELECT id FROM rollouts ORDER BY created_at DESC, id DESC")
    ids = [row[0] for row in rows]
    how = "begin"
    matching = [one for one in ids if name and one.startswith(name)]
    if not matching:
        how, matching = "end", [one for one in ids if name and one.endswith(name)]
    if len(matching) == 1:
        return (yield from rollout(matching[0]))
    raise _unknown(name, ids, matching, how)


def resolve(name: str) -> Plan[str]:
    """The full id that `name` stands for; raises HoustonError naming near ones."""
    found = yield from rollout(name)
    return found.id


def spec(one: Rollout) -> Plan[RolloutSpec]:
    """What the rollout was started with; raises HoustonError when it was erased."""
    event = (yield from journal.by_seq([one.spec_seq])).get(one.spec_seq)
    raw = None if event is None else (yield from journal.body(event))
    if raw is None:
        raise HoustonError(f"What rollout {one.id} was started with was erased.")
    return msgspec.msgpack.decode(raw, type=RolloutSpec)


def workspace(one: Rollout) -> Plan[str | None]:
    """Folder of the workspace on the rollout's host; None where that was erased or is none."""
    event = (yield from journal.by_seq([one.spec_seq])).get(one.spec_seq)
    raw = None if event is None else (yield from journal.body(event))
    root = "" if raw is None else msgspec.msgpack.decode(raw, type=RolloutSpec).host_root
    return f"{root}/rollouts/{one.id}/workspace" if root else None


def head(one: Rollout) -> Plan[Head | None]:
    """The head of the rollout's contexts as rendered; None before its first prompt."""
    if one.head_seq is None:
        return None
    event = (yield from journal.by_seq([one.head_seq]))[one.head_seq]
    return (yield from journal.record(event, Head, ERASED_HEAD))


def tasks() -> Plan[list[Task]]:
    """Every task of the home, by name."""
    rows = yield Ask(
        "SELECT name, t.seq, first_seen, count(r.id),"
        " count(r.id) FILTER (WHERE r.state IN ('queued', 'running', 'paused')),"
        " max(r.best_score) FROM tasks t LEFT JOIN rollouts r ON r.task = t.name"
        " GROUP BY name ORDER BY name"
    )
    return from_rows(Task, rows)


def task(one: Task) -> Plan[TaskRecord]:
    """The newest definition of a task."""
    event = (yield from journal.by_seq([one.seq]))[one.seq]
    return (yield from journal.record(event, TaskRecord, _erased_task(one.name)))


ERASED_HEAD = Head(
    system=journal.ERASED,
    task=journal.ERASED,
    tools=(),
    rendered="",
    token_ids=None,
    dialect="",
    tokenizer="",
)


def _erased_task(name: str) -> TaskRecord:
    return TaskRecord(name=name, folder="", definition="", instructions=journal.ERASED)


def _unknown(name: str, ids: list[str], matching: list[str], how: str) -> HoustonError:
    if matching:
        named = ", ".join(matching[:_NAMED]) + (", …" if len(matching) > _NAMED else "")
        cause = f"{len(matching)} rollouts {how} with {name!r}: {named}."
    else:
        import difflib

        near = difflib.get_close_matches(name, ids, _NAMED, 0.6)
        cause = f"There is no rollout {name!r} in this home."
        if near:
            cause += f" Near it: {', '.join(near)}."
    return HoustonError(cause, "Nothing was done.", "houston rollout list")
