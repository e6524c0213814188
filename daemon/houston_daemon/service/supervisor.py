"""The supervisor's loop: keeps workers, engines and trainers going until the daemon ends.

One loop on the main thread takes events (signals, ends of children, reports of the recorder and the
engines) and acts on them; it also shuts the daemon down in phases: drain, TERM, KILL. A worker
decides what its rollout does, the recorder what is stored. `daemon_process` handles lock, log and
readiness.
"""

import signal
import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from houston_daemon.agent.shared_worker_line import RolloutExited
from houston_daemon.recorder.recorder_handle import (
    RecorderFailed,
    RecorderHandle,
    RunnableChanged,
    StopRequested,
    SupervisorReport,
)
from houston_daemon.service.daemon_log import LOGGER, DaemonLogs
from houston_daemon.service.daemon_reload import EditReloader, FilesTouched
from houston_daemon.service.engine_restarts import EngineState
from houston_daemon.service.engine_supervisor import EngineSupervisor
from houston_daemon.service.force_exit import EXIT_CUT_SHORT, ForceExit
from houston_daemon.service.fork_server import WorkerEnded, WorkerStarted
from houston_daemon.service.gpu_ledger import RolloutGpus
from houston_daemon.service.orphaned_terminals import OrphanCleanupEnded, OrphanedTerminals
from houston_daemon.service.periodic_backup import PeriodicBackup
from houston_daemon.service.policy_activation import ActivationResult, PolicyActivations
from houston_daemon.service.ray_spawner import RaySpawner
from houston_daemon.service.review_processes import (
    artifact_copier_process,
    live_drafts_process,
    live_rules_process,
    live_scores_process,
    notifier_process,
    span_export_process,
)
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import (
    PersistentReader,
    ResumableRollout,
    find_failing_engines,
    read_paused_rollouts,
    read_resumable_rollouts,
)
from houston_daemon.service.systemd_service import (
    feed_watchdog,
    notify_systemd,
    own_unit,
    send_changed_state,
    watchdog_seconds,
)
from houston_daemon.service.trainers import TrainerEnded, Trainers
from houston_daemon.service.worker_pool import WorkerPool
from houston_daemon.service.worker_spawner import WorkerLost, WorkerSpawner
from houston_shared import atomic_file
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import NodeStatus, ReplicaStatus
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.faults import point
from houston_shared.records import RolloutSpec
from houston_shared.wire import EngineReplica
from houston_shared.worker_waits import WorkerWaits, worker_waits_file

EXIT_RECORDER_FAILED = 70
DRAIN_PART = 0.6
"""Part of the time for leaving in which workers come to a safe point by themselves."""
TERM_PART = 0.4
"""Part of what is then left, between TERM and KILL for workers that did not; the rest is for the
store and the engines."""
KILL_SECONDS = 0.5
IDLE_SECONDS = 5.0
"""Longest wait of the loop: health of engines and backoffs are looked at this often."""
ROUND_SECONDS = 0.01
"""From one round to the next at least."""
FULL_ROUND_SECONDS = 0.25
"""Of those in which all is looked at: each reads the database ten times."""
MIN_PAUSE_SECONDS = 0.25
"""However little patience the configuration has."""


@dataclass(slots=True)
class _Shutdown:
    """How the daemon goes down."""

    keep_engine: bool
    phase: Literal["drain", "term", "kill"]
    until: float
    end: float
    """Monotonic time by which all is over, engines too."""
    code: int = 0


class Supervisor:
    """The loop of one daemon; `run` returns its exit code."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recorder: RecorderHandle,
        inbox: SupervisorInbox,
        spawner: WorkerSpawner,
        workers: WorkerPool,
        engines: EngineSupervisor,
        orphans: OrphanedTerminals,
        logs: DaemonLogs,
        force_exit: ForceExit,
        rollout_gpus: RolloutGpus,
        trainers: Trainers,
        activations: PolicyActivations,
        edits: EditReloader,
    ) -> None:
        self._loaded = loaded
        self._recorder = recorder
        self._inbox = inbox
        self._spawner = spawner
        self._workers = workers
        self._engines = engines
        self._orphans = orphans
        self._logs = logs
        self._backup = PeriodicBackup(loaded)
        self._copier = artifact_copier_process(loaded)
        self._reviews = (
            live_rules_process(loaded),
            live_scores_process(loaded),
            live_drafts_process(loaded),
            span_export_process(loaded),
            notifier_process(loaded),
            self._copier,
        )
        self._force_exit = force_exit
        self._rollout_gpus = rollout_gpus
        self._trainers = trainers
        self._activations = activations
        self._edits = edits
        self._shutdown: _Shutdown | None = None
        self.failure = ""
        """What ended the recorder; empty while it lives."""
        self._error = ""
        self._training_problem = ""
        """Why policies and training could not be looked at; said once."""
        self._reader = PersistentReader(loaded.home.database)
        self._resumable: dict[str, ResumableRollout] = {}
        self._full_round_due = 0.0
        """When to look at all that there is, monotonic; before, only at workers."""
        self._needs_full_round = False
        """Whether anything has happened since the last look at all."""
        self._worker_waits: WorkerWaits | None = None
        """Why rollouts have no worker, as it was written down; None before the first look."""
        self._wait_problem = ""
        """Why that could not be written down; said once."""
        self._specs: dict[str, RolloutSpec] = {}
        """What rollouts were started with that wait for a node of a cluster, or run on one."""
        self._replicas: dict[str, tuple[ReplicaStatus, ...]] = {}
        """Engine that has several servers → how each stands."""
        self._announced_replicas: dict[str, tuple[EngineReplica, ...]] = {}
        """What workers were told of them."""

    def run(self) -> int:
        """Supervise until the end."""
        while True:
            now = time.monotonic()
            if self._shutdown and not self._advance_shutdown(self._shutdown, now):
                return self._shutdown.code
            if self._shutdown is None:
                self._supervise()
            point("supervisor.round.before")
            for event in self._inbox.wait(self._seconds_to_wait(now)):
                self._needs_full_round = True
                self._handle(event)
            if self._shutdown is None:
                # What comes within a moment is looked at together.
                time.sleep(max(0.0, now + ROUND_SECONDS - time.monotonic()))
            # Here only after the recorder's thread has answered: one that hangs starves systemd.
            feed_watchdog()

    def _supervise(self) -> None:
        """Bring rollouts, workers and engines to where they should be.

        Short rollouts end many times a second and want nothing but a worker for the next: all else
        is looked at four times a second.
        """
        full = time.monotonic() >= self._full_round_due
        try:
            if full:
                self._full_round()
            else:
                self._start_workers()
        except (HoustonError, OSError) as problem:
            # A full disk or one that went away, or a recorder that has just failed and says so
            # itself: tried again.
            LOGGER.warning("not now: %s", problem)
        if full:
            self._full_round_due, self._needs_full_round = (
                time.monotonic() + FULL_ROUND_SECONDS,
                False,
            )

    def _full_round(self) -> None:
        now = time.monotonic()
        self._backup.update(now)
        for review in self._reviews:
            review.update(now)
        self._edits.update(now, self._engines_in_use)
        self._engines.pause_and_resume(now)
        self._free_ended()
        self._start_workers()
        self._note_worker_wait()
        self._look_at_replicas(now)
        self._update_training(now)
        self._spawner.check_alive(now)
        if isinstance(self._spawner, RaySpawner):
            self._spawner.expire_places(now)
            for rollout in self._specs.keys() - self._resumable.keys():
                del self._specs[rollout]
                self._spawner.forget(rollout)
        self._workers.end_silent(self._recorder.silences(), now)
        self._logs.rotate_long_logs(now, self._pids)
        self._recorder.report(self._report(now))

    def _note_worker_wait(self) -> None:
        """Write down for listings why queued rollouts have no worker: engines that do not answer,
        or paused ones that hold the workers."""
        wait_reason = ""
        try:
            if self._workers.is_full:
                with self._reader.reading() as reader:
                    wait_reason = self._workers.wait_reason(read_paused_rollouts(reader))
            states = self._engines.states.items()
            unready_engines = {name: state for name, state in states if state != "ready"}
            waits = WorkerWaits(wait_reason, unready_engines)
            if waits != self._worker_waits:
                file = worker_waits_file(self._loaded.home)
                if wait_reason or unready_engines:
                    atomic_file.write_atomically(file, msgspec.json.encode(waits), durable=False)
                else:
                    file.unlink(missing_ok=True)
                self._worker_waits, self._wait_problem = waits, ""
        except (OSError, sqlite3.OperationalError) as problem:  # a full disk: tried again
            if str(problem) != self._wait_problem:
                LOGGER.warning("why rollouts wait could not be written: %s", problem)
            self._wait_problem = str(problem)

    def _look_at_replicas(self, now: float) -> None:
        """Which servers rollouts keep to, of engines that have several; let those go that were
        taken away."""
        if not self._engines.is_any_replicated:
            self._replicas = {}
            return
        uses = self._recorder.replica_uses()
        self._engines.end_drained(uses, now)
        self._replicas = self._engines.replica_statuses(uses)

    def _announce_replicas(self) -> None:
        """Tell workers of the servers of their engines, where anything changed."""
        replicas = self._engines.announced_replicas()
        if replicas != self._announced_replicas:
            self._recorder.use_replicas(replicas)
            self._announced_replicas = replicas

    def _update_training(self, now: float) -> None:
        """Policies and training; a home that cannot be read now keeps nothing else from going."""
        try:
            self._activations.update()
            self._trainers.update(now)
            self._training_problem = ""
        except (HoustonError, OSError) as problem:
            if str(problem) != self._training_problem:
                LOGGER.warning("policies and training wait: %s", problem)
            self._training_problem = str(problem)

    def _handle(self, event: object) -> None:
        match event:
            case WorkerStarted():
                self._workers.on_started(event)
            case WorkerEnded():
                self._workers.on_ended(event, time.monotonic(), self._read_resumable())
            case RolloutExited():
                resumable = self._read_resumable() if event.code else self._resumable
                self._workers.on_left(event, time.monotonic(), resumable)
            case WorkerLost():
                self._workers.on_lost(event, time.monotonic())
            case EngineState():
                self._engine_changed(event)
            case TrainerEnded():
                self._trainers.on_ended(event, time.monotonic())
            case ActivationResult():
                self._activations.on_result(event)
            case OrphanCleanupEnded():
                self._orphans.on_ended()
            case StopRequested(keep_engine):
                self._begin_shutdown(keep_engine, "a person asked")
            case RecorderFailed(cause, damaged):
                self._recorder_failed(cause, ExitCode.DAMAGED if damaged else EXIT_RECORDER_FAILED)
            case signal.SIGHUP:
                self._reopen_logs()
            case signal.Signals():
                # systemd says TERM for stop and restart; after a stop its unit ends the engines.
                self._begin_shutdown(own_unit() is not None, event.name)
            case RunnableChanged() | FilesTouched():
                LOGGER.debug("rollouts may be runnable, or files changed")  # each round looks

    def _report(self, now: float) -> SupervisorReport:
        """What the status says of the processes here; systemd shows the shortest form."""
        wait_reason = self._worker_waits.workers if self._worker_waits else ""
        troubles = {
            **self._workers.troubles(now, self._resumable),
            **({"queue": wait_reason} if wait_reason else {}),
            **self._spawner.troubles(now),
            **self._engines.troubles(now),
            **self._backup.troubles(now),
            **{name: text for review in self._reviews for name, text in review.troubles().items()},
            **self._trainers.troubles(now),
            **self._edits.troubles(),
        }
        restarts = {
            "workers": self._workers.restarts,
            "engines": self._engines.restarts,
            "fork_servers": self._spawner.restarts,
        }
        waiting = f", {len(troubles)} in trouble" if troubles else ""
        send_changed_state(f"STATUS={len(self._workers)} workers{waiting}")
        states = self._engines.states
        states |= find_failing_engines(states, self._resumable)
        return SupervisorReport(
            len(self._workers),
            states,
            self._error,
            restarts,
            troubles,
            self._backup.newest,
            self._rollout_gpus.describe(),
            self._trainers.describe(),
            self._activations.active,
            self._replicas,
            *self._cluster_report(),
        )

    def _cluster_report(self) -> tuple[tuple[NodeStatus, ...], dict[str, str]]:
        """The nodes of the cluster, and who waits for one; nothing where there is none."""
        if not isinstance(self._spawner, RaySpawner):
            return (), {}
        return self._spawner.node_statuses(self._workers.places), self._spawner.unplaced

    def _reopen_logs(self) -> None:
        """SIGHUP: somebody moved logs away; ours and our children's go on in new files."""
        notify_systemd(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._logs.reopen(self._pids)
        notify_systemd("READY=1")

    @property
    def _pids(self) -> dict[str, int]:
        """Processes whose logs are ours to turn over, by whose log it is."""
        return {**self._workers.pids, **self._spawner.pids}

    def _start_workers(self) -> None:
        resumable = self._read_resumable()
        self._engines.watch(self._engines_in_use)
        self._announce_replicas()
        now, gpus = time.monotonic(), self._rollout_gpus
        try:
            self._workers.start_runnable(
                now, resumable, self._engines.reachable, self._has_resources
            )
        finally:
            gpus.end_round()

    def _has_resources(self, rollout: str) -> bool:
        """Whether a rollout has its GPUs, and in a cluster a place on a node."""
        if not self._rollout_gpus.try_lease(rollout):
            return False
        if not isinstance(self._spawner, RaySpawner):
            return True
        spec = self._specs.get(rollout) or self._rollout_gpus.read_spec(rollout)
        if spec is None:
            return True  # its worker will be told the same, and says it
        self._specs[rollout] = spec
        shares, shared = self._workers.may_share(spec), self._workers.shared
        if shares and shared is not None and shared.has_room:
            return True
        room = self._workers.limit - len(self._workers)
        return self._spawner.has_place(spec, shares, room)

    @property
    def _engines_in_use(self) -> set[str]:
        return {name for candidate in self._resumable.values() for name in candidate.engines}

    def _read_resumable(self) -> dict[str, ResumableRollout]:
        """How rollouts stand; as last read while the disk is too full to read."""
        try:
            with self._reader.reading() as reader:
                self._resumable = read_resumable_rollouts(reader)
        except sqlite3.OperationalError as problem:
            LOGGER.warning("rollouts could not be read: %s", problem)
        return self._resumable

    def _free_ended(self) -> None:
        """Terminals and GPUs of rollouts that have ended."""
        try:
            # First: of all that this names, the orphans know then.
            ended = self._rollout_gpus.ended_holders()
            self._orphans.update(self._workers)
        except sqlite3.OperationalError as problem:
            LOGGER.warning("rollouts could not be read: %s", problem)
            return
        at_work = (
            rollout
            for rollout in ended
            if rollout in self._workers or self._orphans.may_run(rollout)
        )
        self._rollout_gpus.release(ended.difference(at_work))

    def _engine_changed(self, event: EngineState) -> None:
        self._engines.on_state(event, time.monotonic())
        if event.state == "ready" and not event.replica:
            # A new port: workers would ask whoever listens at the old one.
            self._workers.end(signal.SIGTERM, event.name, other_than=event.url)
        if event.state.startswith("down"):
            self._error = f"engine {event.replica or event.name} {event.state}"

    def _seconds_to_wait(self, now: float) -> float:
        dues = (self._workers.next_due(now), self._trainers.next_due(now), self._edits.due(now))
        settings = self._loaded.config.daemon
        ends = [IDLE_SECONDS, watchdog_seconds() or IDLE_SECONDS]
        ends += [
            settings.silent_seconds / 4,
            max(MIN_PAUSE_SECONDS, settings.engine_patience_seconds),
        ]
        ends += [due - now for due in dues if due]
        ends += [self._full_round_due - now] if self._needs_full_round else []
        ends += [self._shutdown.until - now] if self._shutdown else []
        return max(0.0, min(ends))

    # --- going down -----------------------------------------------------------------------------

    def _begin_shutdown(self, keep_engine: bool, reason: str) -> None:
        if self._shutdown is None:
            end = self._force_exit.begin_shutdown()
            seconds, count = end - time.monotonic(), len(self._workers)
            LOGGER.info("draining (%s): %s workers, at most %.1f s", reason, count, seconds)
            self._shutdown = _Shutdown(keep_engine, "drain", end - seconds * (1 - DRAIN_PART), end)
            notify_systemd("STOPPING=1\nSTATUS=draining")
            self._drain()
            self._trainers.begin_shutdown()
            self._backup.stop()
            for review in self._reviews:
                if review is not self._copier:  # `finish_copies` ends it
                    review.stop()
            self._edits.close()
        elif reason.startswith("SIG"):
            LOGGER.warning("a second signal: leaving at once; the next start continues from here")
            self._shutdown = _Shutdown(True, "kill", 0.0, 0.0, EXIT_CUT_SHORT)
            self._force_exit.end_soon()
            self._workers.end(signal.SIGKILL)
            self._trainers.kill()

    def _drain(self) -> None:
        try:
            point("supervisor.drain.before")
            self._recorder.drain()
        except HoustonError as problem:
            LOGGER.warning("workers could not be told to leave: %s", problem)

    def _recorder_failed(self, cause: str, code: int) -> None:
        LOGGER.critical("writer failed: %s", cause)
        self.failure = cause
        until = time.monotonic() + KILL_SECONDS
        self._force_exit.begin_shutdown()
        self._shutdown = _Shutdown(True, "kill", until, until, int(code))
        self._workers.end(signal.SIGKILL)
        self._trainers.kill()

    def _advance_shutdown(self, shutdown: _Shutdown, now: float) -> bool:
        """Take the next phase when its time has come; False when nothing is left to wait for."""
        if not len(self._workers) and not len(self._trainers):
            return False
        if now < shutdown.until:
            return True
        if shutdown.phase == "kill":
            return False  # what a kill has not ended yet ends with this process
        first = shutdown.phase == "drain"
        number = signal.SIGTERM if first else signal.SIGKILL
        point("supervisor.drain.late")
        LOGGER.warning("%s workers did not leave: %s", len(self._workers), number.name)
        self._workers.end(number)
        if not first:
            self._trainers.kill()
        if first:
            shutdown.phase, shutdown.until = "term", now + (shutdown.end - now) * TERM_PART
        else:
            shutdown.phase, shutdown.until = "kill", now + KILL_SECONDS
        return True

    def close(self) -> None:
        """Close the reader: the last one to close the database empties its WAL."""
        self._reader.close()

    def finish_copies(self) -> None:
        """Once the database is closed: have the store get the rest, in what is left of the time."""
        self._copier.finish(max(0.0, self.seconds_left))

    @property
    def keeps_engine(self) -> bool:
        """Whether engines go on after the end."""
        return self._shutdown is not None and self._shutdown.keep_engine

    @property
    def seconds_left(self) -> float:
        """What is left of the time for shutdown."""
        return self._shutdown.end - time.monotonic() if self._shutdown else 0.0
