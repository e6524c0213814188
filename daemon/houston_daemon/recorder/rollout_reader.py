"""What a worker is told about its rollout, read on the writer's own connection.

The control state (guidance waiting, pause, cancel, drain), the welcome that a worker starts or
resumes from, and its steps in pages. It uses the same queries as every reader, so a resumed worker
and `houston context` read the same bytes. Changes nothing.
"""

import os
from collections.abc import Iterable, Sequence

import msgspec

from houston_daemon.hosts.sandbox.sandbox_profile import hidden_paths
from houston_daemon.hosts.ssh.remote_part import name_home
from houston_daemon.recorder import guidance_delivery
from houston_daemon.recorder.handlers.policy_handlers import build_own_engine_settings
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import Refusal
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.records import (
    CallIntent,
    ContextHead,
    ForkBody,
    GuidanceMode,
    RoleEngine,
    RolloutSpec,
    SampleBody,
    StepRecord,
    spec_of_role,
)
from houston_shared.sample_roles import SampleRole
from houston_shared.store import policy_queries, rollout_queries, step_queries, workspace_queries
from houston_shared.store.rollout_queries import ScorePoint
from houston_shared.wire import (
    EngineReplica,
    QueuedGuidance,
    SideSample,
    Steps,
    Welcome,
    WorkerControl,
    encode_message,
)

_MODES_BY_URGENCY: tuple[GuidanceMode, ...] = ("interrupt", "wake", "next")
NO_CONTROL = WorkerControl()
KNOWN_CONTROLS_LIMIT = 10_000
"""More than that are mostly of rollouts that have ended."""


class ControlStateCache:
    """The control state of every worker, cached until an event changes it.

    For committed state only: ask between transactions, and call `forget` after each.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, WorkerControl] = {}

    def get(self, rollout: str) -> WorkerControl:
        """The control state of one rollout."""
        control = self._known.get(rollout)
        if control is None:
            if len(self._known) >= KNOWN_CONTROLS_LIMIT:
                self._known.clear()  # whoever lives is read again
            control = self._known[rollout] = read_control_state(self._store, rollout)
        return control

    def forget(self, rollouts: Iterable[str]) -> None:
        """Events of these rollouts may have changed it."""
        for rollout in rollouts:
            self._known.pop(rollout, None)

    def forget_all(self) -> None:
        """Something changed it for everybody."""
        self._known.clear()


def read_control_state(store: Store, rollout: str) -> WorkerControl:
    """The control state of one rollout, from the database."""
    row = store.read_rollout(rollout)
    if row is None:
        return NO_CONTROL
    return WorkerControl(
        waiting=count_waiting_guidance(store, rollout),
        pause=row.state == "paused",
        cancel=row.state == "cancelled" or bool(row.cancelling),
        drain=store.draining,
        replicas=_replicas_of(store, row),
    )


def _replicas_of(store: Store, row: RolloutRow) -> dict[str, tuple[EngineReplica, ...]]:
    """The servers of those of a rollout's engines that have several."""
    if not store.replicas:
        return {}
    own = "SELECT json_extract(value, '$.engine') FROM rollouts, json_each(role_engines)"
    roles = store.connection.execute(f"{own} WHERE rollouts.id = ?", (row.id,)).fetchall()
    names = {row.engine, *(engine for (engine,) in roles)}
    return {name: store.replicas[name] for name in sorted(names & store.replicas.keys())}


def count_waiting_guidance(store: Store, rollout: str) -> QueuedGuidance:
    """How much guidance is queued, and how urgent the most urgent is."""
    counts: dict[str, int] = dict(
        store.connection.execute(
            "SELECT mode, count(*) FROM guidance WHERE rollout = ? AND state = 'queued'"
            " GROUP BY mode",
            (rollout,),
        ).fetchall()
    )
    if not counts:
        return QueuedGuidance()
    urgency = next(mode for mode in _MODES_BY_URGENCY if mode in counts)
    return QueuedGuidance(count=sum(counts.values()), urgency=urgency)


def is_call_allowed(intent: CallIntent, control: WorkerControl) -> bool:
    """Whether a call may still run: a wake cancels a sleep or wait, an interrupt any call."""
    urgency = control.waiting.urgency
    if urgency == "interrupt":
        return False
    return not (urgency == "wake" and intent.deadline > 0)


SCORES_LIMIT = 1_000_000
"""More scores than a rollout has."""
STEPS_PAGE_BYTES = 4 * 1024 * 1024
"""A page of steps ends once it has this many bytes; one step is always in it."""


def build_welcome(store: Store, row: RolloutRow) -> Welcome:
    """Everything a worker starts from. Raises Refusal when the spec was erased."""
    spec = store.read_record(row.spec_seq, RolloutSpec)
    if spec is None:
        raise Refusal("UNKNOWN", f"The settings that {row.id} was started with were erased.")
    fork = store.read_record(row.fork_seq, ForkBody)
    forks, evaluations, best, last = store.connection.execute(
        "SELECT forks, evaluations, best_score, last_score FROM rollouts WHERE id = ?", (row.id,)
    ).fetchone()
    epoch = store.connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    control = read_control_state(store, row.id)
    worker = store.workers.get(row.id)
    if worker:
        worker.told_control = control
    since_gain, gained_us = _measure_gain(
        store.read(rollout_queries.score_history([row.id], SCORES_LIMIT))[row.id], row
    )
    return Welcome(
        spec=_with_places_of_today(store, spec),
        head=store.read_record(row.head_seq, ContextHead),
        fork=fork,
        fork_guidance=guidance_delivery.read_guidance_by_ids(store, row.id, fork.guidance)
        if fork
        else (),
        forks=forks,
        summaries=_read_side_samples(store, row, "summary"),
        flow_samples=_read_side_samples(store, row, "planner", "verifier"),
        attempts=_read_other_attempts(store, row),
        next_step=row.steps + 1,
        first_step=row.first_step,
        active_us=row.active_us,
        evaluations=evaluations,
        best_score=best,
        last_score=last,
        since_gain=since_gain,
        gained_us=gained_us,
        evaluation_seconds=sum(
            evaluation.seconds
            for evaluation in store.read(workspace_queries.list_evaluations(row.id))
        ),
        cost=store.read(rollout_queries.read_token_usage(row.id)).cost or 0.0,
        epoch=int(epoch[0]),
        control=control,
        home=str(store.home.path.resolve()),
        home_elsewhere=name_home(store.home.path.resolve()),
    )


def _with_places_of_today(store: Store, spec: RolloutSpec) -> RolloutSpec:
    """The spec with the policies of its engines where this home has them; what was hidden from its
    sandbox stays so, beside the places of this home.

    It names places of the home that the rollout began in. Meanwhile that one may have been moved,
    copied or restored elsewhere, and this may be another machine.
    """
    roles = {
        role: msgspec.convert(
            _with_policy_here(store, spec_of_role(spec, role)), RoleEngine, from_attributes=True
        )
        for role in spec.role_engines
    }
    hidden = tuple(dict.fromkeys((*hidden_paths(store.home), *spec.hidden)))
    local_spec = _with_policy_here(store, spec)
    return msgspec.structs.replace(local_spec, role_engines=roles, hidden=hidden)


def _with_policy_here(store: Store, spec: RolloutSpec) -> RolloutSpec:
    policy = store.read(policy_queries.find_policy(spec.policy)) if spec.policy else None
    if policy is None or not policy.folder:
        return spec
    folder, settings = str(policies_folder(store.home) / policy.folder), spec.engine_settings
    if "own_policy" in settings:
        before = {os.path.realpath(settings["model"])}
        settings = build_own_engine_settings(settings, policy, folder, before)
    elif "adapters" in settings:
        settings = {**settings, "adapters": {policy.name: folder}}
    return msgspec.structs.replace(spec, engine_settings=settings)


def _measure_gain(scores: Sequence[ScorePoint], row: RolloutRow) -> tuple[int, int]:
    """Scores since the first of the best ones, and the active time at it in microseconds."""
    if not scores:
        return 0, 0
    best = max(point.score for point in scores)
    at = next(number for number, point in enumerate(scores) if point.score == best)
    return len(scores) - at - 1, scores[at].active_us or row.active_us  # its step is open still


def _read_side_samples(store: Store, row: RolloutRow, *roles: SampleRole) -> tuple[SideSample, ...]:
    """What was sampled in these roles beside the step that is open or comes next, in order."""
    rows = store.connection.execute(
        # `IS NOT NULL` for the index: SQLite does not see that GLOB says it, and reads all events.
        "SELECT seq, part FROM events WHERE rollout = ? AND step = ? AND attempt = 1"
        " AND part IS NOT NULL AND part GLOB '*.*' ORDER BY seq",
        (row.id, row.steps + 1),
    ).fetchall()
    samples = (
        (seq, part, store.read_record(seq, SampleBody))
        for seq, part in rows
        if part.partition(".")[0] in roles
    )
    return tuple(
        SideSample(seq=seq, part=part, sample=sample) for seq, part, sample in samples if sample
    )


def _read_other_attempts(store: Store, row: RolloutRow) -> tuple[StepRecord, ...]:
    """Attempts at the open step besides the one that counts, in order."""
    step = row.steps + 1
    rows = store.read(step_queries.list_step_rows(row.id, step, step, attempts=True))
    if len(rows) < 2:
        return ()
    other_attempts = {attempt.attempt for attempt in rows if not attempt.current}
    records = store.read(step_queries.read_steps(row.id, step, step, attempts=True))
    return tuple(record for record in records if record.attempt in other_attempts)


def read_steps_page(store: Store, row: RolloutRow, first: int) -> Steps:
    """Steps from number `first` on, as many as a page holds; the open step too."""
    newest: int = store.read(step_queries.find_last_step(row.id))
    steps: list[StepRecord] = []
    size = 0
    for number in range(max(1, first), newest + 1):
        step = store.read(step_queries.read_step(row.id, number))
        if step is None:
            continue
        size += len(encode_message(step))
        if steps and size > STEPS_PAGE_BYTES:
            return Steps(steps=tuple(steps), more=True)
        steps.append(step)
    return Steps(steps=tuple(steps), more=False)


def read_open_step(store: Store, row: RolloutRow) -> StepRecord | None:
    """The step that was sampled and not closed."""
    step: StepRecord | None = store.read(step_queries.read_step(row.id, row.steps + 1))
    return None if step is None or step.observation is not None else step
