"""Branches a rollout: a sibling continues after one of its steps.

Nothing of the shared past is stored again: the new spec names parent and step, and the parent's
state at that point (`BranchPoint`). Refuses steps whose workspace or context cannot be restored.
The branch's worker makes the workspace from the parent's shadow repository.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.artifacts import store_owner
from houston_daemon.recorder import rollout_assignment
from houston_daemon.recorder.handlers.guidance_handlers import queue_guidance
from houston_daemon.recorder.handlers.rollout_handlers import (
    SELECT_REQUESTED,
    append_spec,
    refuse_sampled_elsewhere,
)
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.recorder_handle import RunnableChanged
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import check_request_key, denial, require_rollout
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.control_messages import BranchRollout
from houston_shared.errors import HoustonError, NotFound
from houston_shared.records import BranchPoint, ObservationBody, RolloutSpec, ToolResult
from houston_shared.store import removed_data_queries, rollout_queries
from houston_shared.task import parse_task_record
from houston_shared.terminal_log_files import rollout_folder
from houston_shared.wire import Guide, RequestStored

SNAPSHOTLESS_ENVIRONMENTS = frozenset(
    {"null", "python", "search_qa", "research", "scienceworld", "textworld", "http"}
    | {"word_world", "small_workstation", "openenv", "verifiers", "reasoning_gym"}
)
"""Environments that a branch needs no snapshot of: there is no world, or it is made again from what
the parent did in it."""
NO_BRANCH_STARTED = "No branch was started."


class _SharedStep(NamedTuple):
    """The step that both will share last."""

    observation_seq: int
    snapshot: str
    active_us: int


def branch_rollout(store: Store, message: BranchRollout, author: Author) -> RequestStored:
    """Queue a branch, with its first guidance; the same request again gives the same one."""
    request = check_request_key(message.request)
    if before := store.connection.execute(SELECT_REQUESTED, (request,)).fetchone():
        return RequestStored(seq=before[1], rollouts=(before[0],))
    step = message.step
    owner = _step_owner(store, message.rollout, step)
    parent = require_rollout(store, owner)
    spec = store.read_record(parent.spec_seq, RolloutSpec)
    if spec is None:
        raise denial(
            f"The settings that {owner} was started with were erased.", effect=NO_BRANCH_STARTED
        )
    refuse_sampled_elsewhere(spec, NO_BRANCH_STARTED)
    shared = _read_shared_step(store, owner, step)
    origin = _build_origin(store, owner, step, shared)
    _check_can_branch(store, spec, origin, step)
    spec = msgspec.structs.replace(spec, parent=owner, parent_step=step, origin=origin)
    sandbox = parse_task_record(spec.task).mapped.kind
    id = append_spec(store, spec, request, sandbox, author)
    guidance = None
    if message.text:
        guidance = queue_guidance(
            store, Guide(id=message.id, rollout=id, text=message.text), author
        ).guidance
    store.supervisor_events.append(RunnableChanged())
    return RequestStored(seq=store.journal.seq, rollouts=(id,), guidance=guidance)


def _step_owner(store: Store, rollout: str, step: int) -> str:
    """Whose a closed step is: one that the named rollout shares itself is its parent's, and the
    branch is a sibling of both."""
    named = require_rollout(store, rollout)
    if not 1 <= step <= named.steps:
        steps = (
            f"only steps 1 to {named.steps} are closed" if named.steps else "no step is closed yet"
        )
        raise NotFound(
            f"{named.id} has no closed step {step}: {steps}.",
            NO_BRANCH_STARTED,
            f"houston steps {named.id}",
        )
    return store.read(rollout_queries.owner_of_step(named.id, step))


def _read_shared_step(store: Store, owner: str, step: int) -> _SharedStep:
    row = store.connection.execute(
        "SELECT observation_seq, snapshot, active_us FROM steps"
        " WHERE rollout = ? AND step = ? AND current",
        (owner, step),
    ).fetchone()
    if row is None or row[0] is None:
        raise denial(
            f"Step {step} of {owner} was set aside by a repair.",
            f"houston steps {owner}",
            NO_BRANCH_STARTED,
        )
    return _SharedStep(*row)


def _check_can_branch(store: Store, spec: RolloutSpec, origin: BranchPoint, step: int) -> None:
    """Refuse what could not go on: no steps left, no workspace, or a context with holes in it."""
    task = parse_task_record(spec.task)
    if step >= task.budget.steps:
        raise denial(
            f"The task allows {task.budget.steps} steps: none is left after step {step}.",
            "Name an earlier step.",
            NO_BRANCH_STARTED,
        )
    if not origin.snapshot and task.environment not in SNAPSHOTLESS_ENVIRONMENTS:
        raise _no_snapshot_denial(store, spec.rollout, task.environment, step)
    if task.environment not in SNAPSHOTLESS_ENVIRONMENTS and (
        absence := _explain_missing_snapshots(store, spec, task.hosts[0])
    ):
        raise denial(
            f"The snapshots of {spec.rollout} {absence}: the workspace of a step cannot be "
            "restored.",
            f"houston rollout start {shlex.quote(spec.task.folder)}",
            NO_BRANCH_STARTED,
        )
    last, first = origin.seq, max(1, origin.first_step - 1)  # with oₖ, which stands in a fork
    if rollout_assignment.find_incomplete_ancestor(store, spec.rollout, first, step, last):
        raise denial(
            f"A repair set aside parts of steps {first} to {step}.",
            f"houston steps {spec.rollout}",
            NO_BRANCH_STARTED,
        )
    for part in store.read(rollout_queries.step_ranges(spec.rollout, first, step)):
        erased = store.connection.execute(
            "SELECT 1 FROM events WHERE rollout = ? AND step BETWEEN ? AND ? AND part IS NOT NULL"
            " AND erased AND seq <= ? LIMIT 1",
            (part.rollout, part.first, part.last, last),
        ).fetchone()
        if erased:
            raise denial(
                f"Texts of {part.rollout} were erased: its context cannot be rebuilt.",
                effect=NO_BRANCH_STARTED,
            )


def _explain_missing_snapshots(store: Store, spec: RolloutSpec, host: str) -> str:
    """Why there are no snapshots (any more); empty where there are some, as far as is known here.

    A cleaning that was cut short, or a home that was restored elsewhere, leaves no word of it. Of a
    home that copies into a store the branch's worker fetches them.
    """
    if host == LOCAL_HOST and store_owner.read_note(store.home):
        return ""
    freed = store.read(removed_data_queries.find_last_cleaning(spec.rollout))
    if freed and freed.body.snapshots:
        return "were freed (houston rollout clean --snapshots)"
    folder = rollout_folder(Path(spec.host_root), spec.rollout) / "shadow"
    return (
        f"are not on this machine ({folder})" if host == LOCAL_HOST and not folder.is_dir() else ""
    )


def _no_snapshot_denial(store: Store, rollout: str, environment: str, step: int) -> HoustonError:
    any_other = store.connection.execute(
        "SELECT 1 FROM steps WHERE rollout = ? AND snapshot <> '' LIMIT 1", (rollout,)
    ).fetchone()
    if any_other is None:
        return denial(
            f"The environment {environment} keeps no snapshots, so none of its steps can be "
            "restored.",
            effect=NO_BRANCH_STARTED,
        )
    return denial(
        f"Step {step} has no snapshot of its workspace, so it cannot be restored.",
        "Name the step before or after it.",
        NO_BRANCH_STARTED,
    )


def _build_origin(store: Store, owner: str, step: int, shared: _SharedStep) -> BranchPoint:
    """How the parent stood after the step; what it inherited itself counts too."""
    row = require_rollout(store, owner)
    spec = store.read_record(row.spec_seq, RolloutSpec)
    earlier = spec.origin if spec and spec.origin else BranchPoint(seq=0, head_seq=0)
    if row.head_seq is None:  # of a home that is damaged, or made by other means
        raise denial(
            f"{owner} has no stored prompt, so no agent can continue from its steps.",
            f"houston steps {owner}",
            NO_BRANCH_STARTED,
        )
    forks = store.connection.execute(
        "SELECT seq, first_kept_step FROM forks WHERE rollout = ? AND step <= ? ORDER BY number",
        (owner, step),
    ).fetchall()
    inherited_fork = (earlier.fork_seq, earlier.first_step)
    fork_seq, first_step = forks[-1] if forks else inherited_fork
    (errors,) = store.connection.execute(
        "SELECT count(*) FROM steps WHERE rollout = ? AND step <= ? AND current AND errors > 0",
        (owner, step),
    ).fetchone()
    used, best, last = _scores_up_to(store, owner, step, earlier)
    observation = store.read_record(shared.observation_seq, ObservationBody)
    return BranchPoint(
        seq=shared.observation_seq,
        head_seq=row.head_seq,
        snapshot=shared.snapshot,
        snapshots=dict(observation.snapshots) if observation else {},
        fork_seq=fork_seq,
        forks=earlier.forks + len(forks),
        first_step=first_step,
        active_us=shared.active_us,
        evaluations=used,
        best_score=best,
        last_score=last,
        errors=earlier.errors + errors,
    )


def _scores_up_to(
    store: Store, owner: str, step: int, earlier: BranchPoint
) -> tuple[int, float | None, float | None]:
    """Submissions used, best and last score up to a step."""
    rows = store.connection.execute(
        "SELECT seq, score FROM evaluations WHERE rollout = ? AND step <= ? ORDER BY number",
        (owner, step),
    ).fetchall()
    used, best, last = earlier.evaluations, earlier.best_score, earlier.last_score
    for seq, score in rows:
        result = store.read_record(seq, ToolResult)
        used += bool(result is None or result.fields.get("counted", True))
        if score is not None:
            best, last = score if best is None else max(best, score), score
    return used, best, last
