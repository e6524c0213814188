"""The recorder as the supervisor holds it: opened, run in a thread, called from others, stopped.

`Recorder.start` returns when database and sockets are open: the epoch is raised and leftovers of a
crash are settled. If the thread ends by an exception, nothing further is acked, waiting calls fail,
and the supervisor gets `RecorderFailed`. `recorder_handle` defines the interface; `recorder_loop`
does the work.
"""

import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import version
from typing import TypeVar

import msgspec

from houston_daemon.maintenance.damage_report import UNKNOWN_SEQ, describe_damage
from houston_daemon.recorder import rollout_assignment
from houston_daemon.recorder.disk import disk_space_watch, home_files
from houston_daemon.recorder.disk.writer_connection import open_writer
from houston_daemon.recorder.handlers import erase_handlers, policy_handlers, training_handlers
from houston_daemon.recorder.identity_and_roles import PeerIdentities
from houston_daemon.recorder.journal_writer import EventKey, JournalWriter
from houston_daemon.recorder.live_workers import LiveWorkers, WorkerSilence
from houston_daemon.recorder.message_dispatch import SupervisorCall
from houston_daemon.recorder.recorder_handle import (
    Assignment,
    NotifySupervisor,
    RecorderFailed,
    SupervisorReport,
)
from houston_daemon.recorder.recorder_loop import RecorderLoop
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import is_disk_full
from houston_shared.config import Configuration, fingerprint
from houston_shared.config_sections import RoleSettings
from houston_shared.control_messages import ReplicaStatus, Status
from houston_shared.errors import Damaged, HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.store.event_bodies import DaemonDied, DaemonStarted
from houston_shared.store.training_event_bodies import RunState
from houston_shared.wire import EngineReplica, ReplicaUse

_OPEN_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""How a database or a disk says no; SQLite's words about damage may quote the damage."""


def _redact_replicas(replicas: tuple[ReplicaStatus, ...]) -> tuple[ReplicaStatus, ...]:
    return tuple(msgspec.structs.replace(each, state=redact(each.state)) for each in replicas)


def begin_epoch(
    home: Home, configuration: str = "", died: DaemonDied | None = None
) -> tuple[Store, int]:
    """Open the home for writing; returns the store and its epoch. Raises HoustonError.

    configuration: fingerprint of what the daemon runs with; died: the daemon before it. Both for
    the audit.
    """
    try:
        return _try_begin_epoch(home, configuration, died)
    except _OPEN_ERRORS as problem:
        if not is_disk_full(problem, home.path) or not disk_space_watch.release_ballast(home):
            raise _database_unusable(home, problem) from problem
    try:
        return _try_begin_epoch(home, configuration, died)
    except _OPEN_ERRORS as problem:
        raise _database_unusable(home, problem) from problem


def _try_begin_epoch(home: Home, configuration: str, died: DaemonDied | None) -> tuple[Store, int]:
    point("recorder.open.before")
    connection = open_writer(home)
    try:
        store = Store(home, connection, JournalWriter(connection), LiveWorkers())
        if not home.head_file.exists():  # a new home: from now on a missing one is noticed
            home_files.write_chain_head(home, store.journal.seq, store.journal.chain)
        epoch = _append_epoch(store, configuration, died)
        erase_handlers.finish_erasures(store)
        return store, epoch
    except BaseException:
        connection.close()
        raise


def _append_epoch(store: Store, configuration: str, died: DaemonDied | None) -> int:
    connection = store.connection
    connection.execute("BEGIN IMMEDIATE")
    row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    epoch = int(row[0]) + 1 if row else 1
    started = DaemonStarted(
        epoch=epoch,
        pid=os.getpid(),
        version=version("houston-agents"),
        configuration=configuration,
        uid=os.geteuid(),
        died=died,
    )
    store.journal.append(EventKey(), "daemon", started)
    rollout_assignment.settle_at_start(store)
    point("recorder.epoch.before")
    connection.execute("COMMIT")
    point("recorder.epoch.after")
    store.journal.appended.clear()
    store.supervisor_events.clear()
    return epoch


def _database_unusable(home: Home, problem: Exception) -> HoustonError:
    if is_disk_full(problem, home.path):
        return HoustonError(
            f"The disk of {home.path} is full.", "The daemon was not started.", "Make room there."
        )
    return HoustonError(
        f"The database {home.database} cannot be opened ({problem}).",
        "The daemon was not started and nothing was changed.",
        "houston verify",
    )


LOGGER = logging.getLogger("houston.recorder")
T = TypeVar("T")


class Recorder:
    """Implements `RecorderHandle`."""

    def __init__(
        self,
        home: Home,
        config: Configuration,
        tell: NotifySupervisor,
        died: DaemonDied | None = None,
    ) -> None:
        """tell: called from the recorder's thread; must not block. Nothing is opened yet.

        died: the daemon before this one, where it did not come to its own end.
        """
        self.epoch = 0
        self._home = home
        self._group = config.daemon.group
        self._roles = config.roles
        self._remote = config.recorder
        self._fingerprint = fingerprint(config)
        self._tell = tell
        self._died = died
        self._calls: deque[SupervisorCall] = deque()
        self._lock = threading.Lock()
        self._ready: Future[RecorderLoop] = Future()
        self._loop: RecorderLoop | None = None
        self._closed_reason = "The recorder was not started."
        """Why calls cannot be answered; empty while they can."""
        self._thread = threading.Thread(target=self._main, name="houston-recorder", daemon=True)

    def start(self) -> None:
        """Open and migrate the database, bind the sockets; raises HoustonError with the cause."""
        self._thread.start()
        self._loop = self._ready.result()

    def runnable(self) -> list[str]:
        """Rollouts in `queued` or `running` without a live worker, oldest first."""
        return self._call(rollout_assignment.list_runnable_rollouts)

    def assign(self, rollout: str) -> Assignment:
        """Raise the lease, move to `running` if queued, and give the spec; raises HoustonError."""
        assigned = self._call(lambda store: rollout_assignment.assign_rollout(store, rollout))
        if isinstance(assigned, str):
            raise Damaged(assigned, f"{rollout} is paused.", "houston verify")
        return assigned

    def worker_ended(self, rollout: str, lease: int, failure: str) -> None:
        """A worker process ended; with `failure`, the rollout fails with that reason."""
        self._call(
            lambda store: rollout_assignment.handle_worker_end(store, rollout, lease, failure)
        )

    def silences(self) -> dict[str, WorkerSilence]:
        """Rollout → how long its worker has reported nothing."""
        return self._call(lambda store: store.workers.silences())

    def report(self, report: SupervisorReport) -> None:
        """What `Status` says about workers and engines from now on."""
        report = replace(
            report,
            engines=redact_all(dict(report.engines)),
            error=redact(report.error),
            troubles=redact_all(dict(report.troubles)),
            training=redact_all(dict(report.training)),
            unplaced=redact_all(dict(report.unplaced)),
            replicas={
                name: _redact_replicas(replicas) for name, replicas in report.replicas.items()
            },
        )
        self._call(lambda _: setattr(self._require_loop(), "reported", report))

    def status(self, patience: float) -> Status:
        """How the daemon stands. Raises TimeoutError when the recorder is silent for so long."""
        return self._call(lambda store: self._require_loop().status(store), patience)

    def use_roles(self, roles: RoleSettings) -> None:
        """Set who may do what. Raises ConfigurationError, and then keeps the previous roles."""
        self._call(lambda _: self._identities.use_roles(roles))

    def pause_for_engine(self, engine: str, down: bool, reason: str = "") -> None:
        """Pause (by `engine`), or resume, the rollouts that sample from `engine`."""
        self._call(lambda store: rollout_assignment.pause_for_engine(store, engine, down, reason))

    def use_replicas(self, replicas: Mapping[str, tuple[EngineReplica, ...]]) -> None:
        """Engine that has several servers → those servers: workers are told at once."""
        self._call(lambda store: self._require_loop().use_replicas(store, replicas))

    def replica_uses(self) -> list[tuple[str, ReplicaUse]]:
        """Engine and replica, once for each rollout that keeps to it."""
        return self._call(lambda store: store.workers.replica_uses())

    def report_training_state(
        self, run: str, state: RunState, reason: str = "", start: bool = False
    ) -> None:
        """Store the state of a training run; start: a process for it began. Ignores ended runs."""
        self._call(
            lambda store: training_handlers.store_run_state(store, run, state, reason, start)
        )

    def report_activation(
        self, asked: int, ok: bool, reason: str = "", unloaded: tuple[str, ...] = ()
    ) -> None:
        """What came of the activation that the event `asked` asked for."""
        self._call(
            lambda store: policy_handlers.store_activation_result(
                store, asked, ok, reason, unloaded
            )
        )

    def drain(self) -> None:
        """Tell every worker to leave at the next safe point."""
        self._call(lambda store: self._require_loop().drain(store))

    def stop(self) -> None:
        """Answer what is queued, checkpoint, close the database, unbind. Idempotent."""
        try:
            self._call(lambda _: setattr(self._require_loop(), "stopping", True))
        except HoustonError as already:
            LOGGER.debug("stop: %s", already)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _require_loop(self) -> RecorderLoop:
        assert self._loop is not None
        return self._loop

    def _call(self, act: Callable[[Store], T], patience: float | None = None) -> T:
        """Have the recorder's thread do something in a transaction; returns after the commit.

        Raises TimeoutError after `patience` seconds.
        """
        call = SupervisorCall(act)
        with self._lock:
            if self._closed_reason:
                raise HoustonError(
                    self._closed_reason, "Nothing was changed.", "houston daemon restart"
                )
            self._calls.append(call)
            self._require_loop().wakeup_pipe.wake()
        result: T = call.future.result(patience)
        return result

    def _main(self) -> None:
        try:
            loop = self._open()
        except HoustonError as problem:
            self._ready.set_exception(problem)
            return
        except BaseException as problem:
            LOGGER.exception("the recorder cannot start")
            self._ready.set_exception(problem)
            raise
        with self._lock:
            self._loop = loop
            self._closed_reason = ""
        self._ready.set_result(loop)
        self._run_loop(loop)

    def _run_loop(self, loop: RecorderLoop) -> None:
        try:
            loop.run()
            self._refuse_calls(loop, "The recorder has stopped.")
            loop.close(clean=True)
        except Exception as problem:  # whatever it is, the supervisor must hear it
            cause = f"{type(problem).__name__}: {problem}"
            damaged = type(problem) is sqlite3.DatabaseError
            if damaged:
                cause = f"{describe_damage(self._home, '', UNKNOWN_SEQ)} ({cause})"
            LOGGER.exception("writer failed: %s", cause)
            self._refuse_calls(loop, f"The recorder has failed ({cause}).")
            loop.close(clean=False)
            self._tell(RecorderFailed(cause, damaged))
        loop.wakeup_pipe.close()

    def _refuse_calls(self, loop: RecorderLoop, reason: str) -> None:
        """From now on calls are refused; those that wait are, too."""
        with self._lock:
            self._closed_reason = reason
            waiting = [work for work in loop.current_batch if isinstance(work, SupervisorCall)]
            waiting += self._calls
            self._calls.clear()
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(
                    HoustonError(reason, "It is not known whether it was done.")
                )

    def _open(self) -> RecorderLoop:
        home_files.prepare_home(self._home, self._group)
        self._identities = identities = PeerIdentities(self._group, self._roles)
        store, self.epoch = begin_epoch(self._home, self._fingerprint, self._died)
        loop = RecorderLoop(store, identities, self.epoch, self._tell, self._calls, self._remote)
        try:
            loop.open(self._group)
        except BaseException:
            loop.close(clean=True)
            loop.wakeup_pipe.close()
            raise
        return loop
