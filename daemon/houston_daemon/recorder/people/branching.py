"""Branching a rollout: a sibling that goes on from after one of its steps (DESIGN §1, §6).

Nothing of the shared past is stored again: the new rollout's spec names parent and step, and how
the parent stood then. Whose steps a rollout shares is told by `queries.lineage`. The workspace is
made by the branch's own worker, from the parent's shadow repository.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from houston_daemon.recorder.disk import blobs
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.operate import free_id
from houston_daemon.recorder.people.say import guide, rollout
from houston_daemon.recorder.protocol import Wanted
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import past, rebuild
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.records import ObservationBody, Origin, Result, RolloutSpec
from houston_shared.store.bodies import StoredSpec
from houston_shared.store.queries import cleaned, lineage
from houston_shared.task import parse_task
from houston_shared.terminal_folder import rollout_folder
from houston_shared.wire import Done, Guide
from houston_shared.wire_operators import Branch

WITHOUT_SNAPSHOTS = frozenset({"null", "python", "search_qa", "scienceworld", "textworld", "http"})
"""Environments that a branch needs no snapshot of: there is no world, or it is made again from what
the parent did in it."""
NOTHING = "No branch was started."


class _Step(NamedTuple):
    """The step that both will share last."""

    observation_seq: int
    snapshot: str
    active_us: int


def branch(store: Store, message: Branch, author: Author) -> Done:
    """Queue a branch, with its first guidance; the same request again gives the same one."""
    if not 0 < len(message.request) <= 64:
        raise denial("A branch needs a request key.", effect=NOTHING, code=ExitCode.USAGE)
    before = store.connection.execute(
        "SELECT id, spec_seq FROM rollouts WHERE request = ?", (message.request,)
    ).fetchone()
    if before:
        return Done(seq=before[1], rollouts=(before[0],))
    asked = rollout(store, message.rollout)
    step = message.step
    if not 1 <= step <= asked.steps:
        there = f"steps 1 to {asked.steps}" if asked.steps else "no step yet"
        raise denial(
            f"{asked.id} has {there} that are closed, and no step {step}.",
            f"houston steps {asked.id}",
            NOTHING,
        )
    # A step that the named rollout shares itself is its parent's: the branch is a sibling of both.
    owner = rebuild.run(store, lineage.owner(asked.id, step))
    parent = rollout(store, owner)
    spec = rebuild.record(store, parent.spec_seq, RolloutSpec)
    if spec is None:
        raise denial(f"What {owner} was started with was erased.", effect=NOTHING)
    shared = _shared(store, owner, step)
    origin = _origin(store, owner, step, shared)
    _possible(store, spec, origin, step)
    id = free_id(store, spec.task.name)
    fields = {name: getattr(spec, name) for name in RolloutSpec.__struct_fields__}
    changed = {
        "rollout": id,
        "parent": owner,
        "parent_step": step,
        "origin": origin,
    }
    body = StoredSpec(
        **{**fields, **changed},
        by=author.by,
        request=message.request,
        sandbox=parse_task(spec.task).mapped.kind,
        **author.fields,
    )
    store.journal.append(Key(id), "spec", blobs.stored(store.home, body))
    said = None
    if message.text:
        said = guide(store, Guide(id=message.id, rollout=id, text=message.text), author).guidance
    store.tells.append(Wanted())
    return Done(seq=store.journal.seq, rollouts=(id,), guidance=said)


def _shared(store: Store, owner: str, step: int) -> _Step:
    found = store.connection.execute(
        "SELECT observation_seq, snapshot, active_us FROM steps"
        " WHERE rollout = ? AND step = ? AND current",
        (owner, step),
    ).fetchone()
    if found is None or found[0] is None:
        raise denial(
            f"Step {step} of {owner} was set aside by a repair.", f"houston steps {owner}", NOTHING
        )
    return _Step(*found)


def _possible(store: Store, spec: RolloutSpec, origin: Origin, step: int) -> None:
    """Refuse what could not go on: no steps left, no workspace, or a context with holes in it."""
    task = parse_task(spec.task)
    if step >= task.budget.steps:
        raise denial(
            f"The task has {task.budget.steps} steps: none is left after step {step}.",
            "Name an earlier step.",
            NOTHING,
        )
    if not origin.snapshot and task.environment not in WITHOUT_SNAPSHOTS:
        raise _no_world(store, spec.rollout, task.environment, step)
    if task.environment not in WITHOUT_SNAPSHOTS and (gone := _gone(store, spec, task.hosts[0])):
        raise denial(
            f"The snapshots of {spec.rollout} {gone}: no step's workspace can be brought back.",
            f"houston rollout start {shlex.quote(spec.task.folder)}",
            NOTHING,
        )
    last, first = origin.seq, max(1, origin.first_step - 1)  # with oₖ, which stands in a fork
    if past.lost_of(store, spec.rollout, first, step, last):
        raise denial(
            f"Something of steps {first} to {step} was set aside by a repair.",
            f"houston steps {spec.rollout}",
            NOTHING,
        )
    for part in rebuild.run(store, lineage.stretches(spec.rollout, first, step)):
        erased = store.connection.execute(
            "SELECT 1 FROM events WHERE rollout = ? AND step BETWEEN ? AND ? AND part IS NOT NULL"
            " AND erased AND seq <= ? LIMIT 1",
            (part.rollout, part.first, part.last, last),
        ).fetchone()
        if erased:
            raise denial(
                f"Texts of {part.rollout} were erased: its context cannot be made again.",
                effect=NOTHING,
            )


def _gone(store: Store, spec: RolloutSpec, host: str) -> str:
    """Why there are no snapshots (any more); empty where there are some, as far as is known here.

    A cleaning that was cut short, or a home that was restored elsewhere, leaves no word of it.
    """
    freed = rebuild.run(store, cleaned.of(spec.rollout))
    if freed and freed.body.snapshots:
        return "were freed (houston rollout clean --snapshots)"
    folder = rollout_folder(Path(spec.host_root), spec.rollout) / "shadow"
    return f"are not here ({folder})" if host == LOCAL and not folder.is_dir() else ""


def _no_world(store: Store, rollout: str, environment: str, step: int) -> HoustonError:
    any_other = store.connection.execute(
        "SELECT 1 FROM steps WHERE rollout = ? AND snapshot <> '' LIMIT 1", (rollout,)
    ).fetchone()
    if any_other is None:
        return denial(
            f"The world of {environment} keeps no snapshots, so no step of it can be brought back.",
            effect=NOTHING,
        )
    return denial(
        f"Step {step} has no snapshot of its workspace, so it cannot be brought back.",
        "Name the step before, or the one after.",
        NOTHING,
    )


def _origin(store: Store, owner: str, step: int, shared: _Step) -> Origin:
    """How the parent stood after the step; what it inherited itself counts too."""
    row = rollout(store, owner)
    spec = rebuild.record(store, row.spec_seq, RolloutSpec)
    earlier = spec.origin if spec and spec.origin else Origin(seq=0, head_seq=0)
    assert row.head_seq is not None  # a step is closed, so there was a prompt
    forks = store.connection.execute(
        "SELECT seq, first_kept_step FROM forks WHERE rollout = ? AND step <= ? ORDER BY number",
        (owner, step),
    ).fetchall()
    begun = (earlier.fork_seq, earlier.first_step)
    fork_seq, first_step = forks[-1] if forks else begun
    (errors,) = store.connection.execute(
        "SELECT count(*) FROM steps WHERE rollout = ? AND step <= ? AND current AND errors > 0",
        (owner, step),
    ).fetchone()
    used, best, last = _scores(store, owner, step, earlier)
    seen = rebuild.record(store, shared.observation_seq, ObservationBody)
    return Origin(
        seq=shared.observation_seq,
        head_seq=row.head_seq,
        snapshot=shared.snapshot,
        snapshots=dict(seen.snapshots) if seen else {},
        fork_seq=fork_seq,
        forks=earlier.forks + len(forks),
        first_step=first_step,
        active_us=shared.active_us,
        evaluations=used,
        best_score=best,
        last_score=last,
        errors=earlier.errors + errors,
    )


def _scores(
    store: Store, owner: str, step: int, earlier: Origin
) -> tuple[int, float | None, float | None]:
    """Submissions used, best and last score up to a step."""
    rows = store.connection.execute(
        "SELECT seq, score FROM evaluations WHERE rollout = ? AND step <= ? ORDER BY number",
        (owner, step),
    ).fetchall()
    used, best, last = earlier.evaluations, earlier.best_score, earlier.last_score
    for seq, score in rows:
        result = rebuild.record(store, seq, Result)
        used += bool(result is None or result.fields.get("counted", True))
        if score is not None:
            best, last = score if best is None else max(best, score), score
    return used, best, last
