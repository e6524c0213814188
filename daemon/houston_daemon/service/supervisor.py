"""The supervisor's loop: keeps workers, engines and trainers going until the daemon ends.

One loop on the main thread takes events (signals, ends of children, what the recorder and the
engines say) and acts on them; it also brings the daemon down in phases: drain, TERM, KILL. What a
rollout does is the worker's business, what is stored the recorder's. Lock, log and readiness
around it are `daemon_process`.
"""

import signal
import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

from houston_daemon.recorder.recorder_handle import (
    RecorderFailed,
    RecorderHandle,
    RunnableChanged,
    StopRequested,
    SupervisorReport,
)
from houston_daemon.service.daemon_log import LOGGER, DaemonLogs
from houston_daemon.service.daemon_reload import EditReloader, FilesTouched
from houston_daemon.service.engine_servers import EnginePool, EngineState
from houston_daemon.service.force_exit import EXIT_CUT_SHORT, ForceExit
from houston_daemon.service.fork_server import WorkerEnded, WorkerStarted
from houston_daemon.service.gpu_ledger import RolloutGpus
from houston_daemon.service.live_rules_process import LiveRulesProcess
from houston_daemon.service.orphaned_terminals import OrphanCleanupEnded, OrphanedTerminals
from houston_daemon.service.periodic_backup import PeriodicBackup
from houston_daemon.service.policy_activation import ActivationResult, PolicyActivations
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import (
    ResumableRollout,
    find_failing_engines,
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
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.faults import point

EXIT_RECORDER_FAILED = 70
DRAIN_PART = 0.6
"""Part of the time for leaving in which workers come to a safe point by themselves."""
TERM_PART = 0.4
"""Part of what is then left, between TERM and KILL for workers that did not; the rest is for the
store and the engines."""
KILL_SECONDS = 0.5
IDLE_SECONDS = 5.0
"""Longest wait of the loop: health of engines and backoffs are looked at this often."""
LEAST_PAUSE_SECONDS = 0.25
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
        births: WorkerSpawner,
        workers: WorkerPool,
        engines: EnginePool,
        leftovers: OrphanedTerminals,
        logs: DaemonLogs,
        forcing: ForceExit,
        gpus: RolloutGpus,
        trainers: Trainers,
        activations: PolicyActivations,
        edits: EditReloader,
    ) -> None:
        self._loaded = loaded
        self._recorder = recorder
        self._inbox = inbox
        self._births = births
        self._workers = workers
        self._engines = engines
        self._leftovers = leftovers
        self._logs = logs
        self._nightly = PeriodicBackup(loaded)
        self._rules = LiveRulesProcess(loaded)
        self._forcing = forcing
        self._gpus = gpus
        self._trainers = trainers
        self._activations = activations
        self._edits = edits
        self._leaving: _Shutdown | None = None
        self.failure = ""
        """What ended the recorder; empty while it lives."""
        self._error = ""
        self._untrained = ""
        """Why policies and training could not be looked at; said once."""
        self._standings: dict[str, ResumableRollout] = {}

    def run(self) -> int:
        """Supervise until the end."""
        while True:
            now = time.monotonic()
            if self._leaving and not self._still_leaving(self._leaving, now):
                return self._leaving.code
            if self._leaving is None:
                self._supervise()
            point("supervisor.round.before")
            for event in self._inbox.take(self._pause(now)):
                self._handle(event)
            # Here only after the recorder's thread has answered: one that hangs starves systemd.
            feed_watchdog()

    def _supervise(self) -> None:
        """Bring rollouts, workers and engines to where they should be."""
        self._nightly.look(time.monotonic())
        self._rules.look(time.monotonic())
        try:
            now = time.monotonic()
            self._edits.look(now, {standing.engine for standing in self._standings.values()})
            self._engines.pause_and_resume(now)
            self._fill()
            self._train(now)
            self._births.look(now)
            self._workers.end_silent(self._recorder.silences())
            self._logs.look(now, self._pids)
            self._recorder.report(self._report(now))
        except HoustonError as problem:
            # A full disk, or a recorder that has just failed and says so itself: tried again.
            LOGGER.warning("not now: %s", problem)

    def _train(self, now: float) -> None:
        """Policies and training; a home that cannot be read now keeps nothing else from going."""
        try:
            self._activations.look()
            self._trainers.look(now)
            self._untrained = ""
        except HoustonError as problem:
            if str(problem) != self._untrained:
                LOGGER.warning("policies and training wait: %s", problem)
            self._untrained = str(problem)

    def _handle(self, event: object) -> None:
        match event:
            case WorkerStarted():
                self._workers.born(event)
            case WorkerEnded():
                self._workers.died(event, time.monotonic(), self._read())
            case WorkerLost():
                self._workers.lost(event, time.monotonic())
            case EngineState():
                self._engine_changed(event)
            case TrainerEnded():
                self._trainers.ended(event, time.monotonic())
            case ActivationResult():
                self._activations.tried(event)
            case OrphanCleanupEnded():
                self._leftovers.ended()
            case StopRequested(keep_engine):
                self._leave(keep_engine, "a person asked")
            case RecorderFailed(cause, damaged):
                self._recorder_failed(cause, ExitCode.DAMAGED if damaged else EXIT_RECORDER_FAILED)
            case signal.SIGHUP:
                self._hung_up()
            case signal.Signals():
                # systemd says TERM for stop and restart; after a stop its unit ends the engines.
                self._leave(own_unit() is not None, event.name)
            case RunnableChanged() | FilesTouched():
                LOGGER.debug("rollouts may be runnable, or files changed")  # each round looks

    def _report(self, now: float) -> SupervisorReport:
        """What the status says of the processes here; systemd shows the shortest form."""
        troubles = {
            **self._workers.troubles(now, self._standings),
            **self._births.troubles(now),
            **self._engines.troubles(now),
            **self._nightly.troubles(now),
            **self._rules.troubles(),
            **self._trainers.troubles(now),
            **self._edits.troubles(),
        }
        restarts = {
            "workers": self._workers.restarts,
            "engines": self._engines.restarts,
            "nursery": self._births.restarts,
        }
        waiting = f", {len(troubles)} in trouble" if troubles else ""
        send_changed_state(f"STATUS={len(self._workers)} workers{waiting}")
        states = self._engines.states
        states |= find_failing_engines(states, self._standings)
        return SupervisorReport(
            len(self._workers),
            states,
            self._error,
            restarts,
            troubles,
            self._nightly.newest,
            self._gpus.told(),
            self._trainers.told(),
            self._activations.active,
        )

    def _hung_up(self) -> None:
        """SIGHUP: somebody moved logs away; ours and our children's go on in new files."""
        notify_systemd(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._logs.reopen(self._pids)
        notify_systemd("READY=1")

    @property
    def _pids(self) -> dict[str, int]:
        """Processes whose logs are ours to turn over, by whose log it is."""
        return {**self._workers.pids, **self._births.pids}

    def _fill(self) -> None:
        standings = self._read()
        self._engines.use(standing.engine for standing in standings.values())
        self._workers.fill(time.monotonic(), standings, self._engines.reachable, self._gpus.ready)

    def _read(self) -> dict[str, ResumableRollout]:
        """How rollouts stand; as last read while the disk is too full to read."""
        try:
            over = self._gpus.over()  # asked first: of all that it names, the leftovers know then
            self._leftovers.look(self._workers)
            at_work = (one for one in over if one in self._workers or self._leftovers.may_run(one))
            self._gpus.free(over.difference(at_work))
            self._standings = read_resumable_rollouts(self._loaded.home.database)
        except sqlite3.OperationalError as problem:
            LOGGER.warning("rollouts could not be read: %s", problem)
        return self._standings

    def _engine_changed(self, event: EngineState) -> None:
        self._engines.changed(event, time.monotonic())
        if event.state == "ready":
            # A new port: workers would ask whoever listens at the old one.
            self._workers.end(signal.SIGTERM, event.name, other_than=event.url)
        elif event.state.startswith("down"):
            self._error = f"engine {event.name} {event.state}"

    def _pause(self, now: float) -> float:
        dues = (self._workers.next_due(now), self._trainers.next_due(now), self._edits.due(now))
        settings = self._loaded.config.daemon
        ends = [IDLE_SECONDS, watchdog_seconds() or IDLE_SECONDS]
        ends += [
            settings.silent_seconds / 4,
            max(LEAST_PAUSE_SECONDS, settings.engine_patience_seconds),
        ]
        ends += [due - now for due in dues if due]
        ends += [self._leaving.until - now] if self._leaving else []
        return max(0.0, min(ends))

    # --- going down -----------------------------------------------------------------------------

    def _leave(self, keep_engine: bool, why: str) -> None:
        if self._leaving is None:
            end = self._forcing.leaving()
            seconds, count = end - time.monotonic(), len(self._workers)
            LOGGER.info("draining (%s): %s workers, at most %.1f s", why, count, seconds)
            self._leaving = _Shutdown(keep_engine, "drain", end - seconds * (1 - DRAIN_PART), end)
            notify_systemd("STOPPING=1\nSTATUS=draining")
            self._drain()
            self._trainers.leave()
            self._nightly.stop()
            self._rules.stop()
            self._edits.close()
        elif why.startswith("SIG"):
            LOGGER.warning("a second signal: leaving at once; the next start goes on from here")
            self._leaving = _Shutdown(True, "kill", 0.0, 0.0, EXIT_CUT_SHORT)
            self._forcing.cut_short()
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
        self._forcing.leaving()
        self._leaving = _Shutdown(True, "kill", until, until, int(code))
        self._workers.end(signal.SIGKILL)
        self._trainers.kill()

    def _still_leaving(self, leaving: _Shutdown, now: float) -> bool:
        """Take the next phase when its time has come; False when nothing is left to wait for."""
        if not len(self._workers) and not len(self._trainers):
            return False
        if now < leaving.until:
            return True
        if leaving.phase == "kill":
            return False  # what a kill has not ended yet ends with this process
        first = leaving.phase == "drain"
        number = signal.SIGTERM if first else signal.SIGKILL
        point("supervisor.drain.late")
        LOGGER.warning("%s workers did not leave: %s", len(self._workers), number.name)
        self._workers.end(number)
        if not first:
            self._trainers.kill()
        if first:
            leaving.phase, leaving.until = "term", now + (leaving.end - now) * TERM_PART
        else:
            leaving.phase, leaving.until = "kill", now + KILL_SECONDS
        return True

    @property
    def keeps_engine(self) -> bool:
        """Whether engines go on after the end."""
        return self._leaving is not None and self._leaving.keep_engine

    @property
    def seconds_left(self) -> float:
        """What is left of the time for leaving."""
        return self._leaving.end - time.monotonic() if self._leaving else 0.0
