"""The recorder as the supervisor holds it: a thread, and calls that it answers.

`start` returns when database and sockets are open. When the thread ends by an exception, nothing
further is acked, waiting calls fail, and the supervisor hears `RecorderFailed`.
"""

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from houston_daemon.recorder.begin import begin
from houston_daemon.recorder.disk import folders
from houston_daemon.recorder.disk.damage import UNKNOWN, sentence
from houston_daemon.recorder.loop import Loop
from houston_daemon.recorder.people import policies, training
from houston_daemon.recorder.people.identity import Identities
from houston_daemon.recorder.protocol import Assignment, RecorderFailed, Reported, Tell
from houston_daemon.recorder.steps import assignments
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.work import FromSupervisor
from houston_daemon.recorder.workers import Silence
from houston_shared.config import Configuration, Roles, fingerprint
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.secret_values import redact, redact_all
from houston_shared.store.bodies import DaemonDied
from houston_shared.store.bodies_training import RunState
from houston_shared.wire_status import Status

LOGGER = logging.getLogger("houston.recorder")
T = TypeVar("T")


class Recorder:
    """Implements `protocol.RecorderHandle`."""

    def __init__(
        self, home: Home, config: Configuration, tell: Tell, died: DaemonDied | None = None
    ) -> None:
        """tell: called from the recorder's thread; must not block. Nothing is opened yet.

        died: the daemon before this one, where it did not come to its own end.
        """
        self.epoch = 0
        self._home = home
        self._group = config.daemon.group
        self._roles = config.roles
        self._fingerprint = fingerprint(config)
        self._tell = tell
        self._died = died
        self._calls: deque[FromSupervisor] = deque()
        self._guard = threading.Lock()
        self._ready: Future[Loop] = Future()
        self._loop: Loop | None = None
        self._over = "The recorder was not started."
        """Why calls cannot be answered; empty while they can."""
        self._thread = threading.Thread(target=self._main, name="houston-recorder", daemon=True)

    def start(self) -> None:
        """Open and migrate the database, bind the sockets; raises HoustonError with the cause."""
        self._thread.start()
        self._loop = self._ready.result()

    def runnable(self) -> list[str]:
        """Rollouts in `queued` or `running` without a live worker, oldest first."""
        return self._call(assignments.runnable)

    def assign(self, rollout: str) -> Assignment:
        """Raise the lease, move to `running` if queued, and give the spec; raises HoustonError."""
        given = self._call(lambda store: assignments.assign(store, rollout))
        if isinstance(given, str):
            raise HoustonError(given, f"{rollout} is paused.", "houston verify", ExitCode.DAMAGED)
        return given

    def worker_ended(self, rollout: str, lease: int, failure: str) -> None:
        """A worker process ended; with `failure`, the rollout fails with that reason."""
        self._call(lambda store: assignments.worker_ended(store, rollout, lease, failure))

    def silences(self) -> dict[str, Silence]:
        """Rollout → how long its worker has said nothing."""
        return self._call(lambda store: store.workers.silences())

    def report(self, said: Reported) -> None:
        """What `Status` says about workers and engines from now on."""
        said = replace(
            said,
            engines=redact_all(dict(said.engines)),
            error=redact(said.error),
            troubles=redact_all(dict(said.troubles)),
            training=redact_all(dict(said.training)),
        )
        self._call(lambda _: setattr(self._running().board, "reported", said))

    def status(self, patience: float) -> Status:
        """How the daemon stands. Raises TimeoutError when the recorder is silent for so long."""
        return self._call(lambda store: self._running().board.status(store), patience)

    def use_roles(self, roles: Roles) -> None:
        """Who may do what from now on. Raises ConfigurationError, and keeps what it was."""
        self._call(lambda _: self._identities.use(roles))

    def pause_for_engine(self, engine: str, down: bool, reason: str = "") -> None:
        """Pause (by `engine`), or resume, the rollouts that sample from `engine`."""
        self._call(lambda store: assignments.pause_for_engine(store, engine, down, reason))

    def training_moved(
        self, run: str, state: RunState, reason: str = "", start: bool = False
    ) -> None:
        """How a training run stands; start: a process for it began. Nothing of an ended one."""
        self._call(lambda store: training.note(store, run, state, reason, start))

    def activation_ended(
        self, asked: int, ok: bool, reason: str = "", unloaded: tuple[str, ...] = ()
    ) -> None:
        """What came of the activation that the event `asked` asked for."""
        self._call(lambda store: policies.note(store, asked, ok, reason, unloaded))

    def drain(self) -> None:
        """Tell every worker to leave at the next safe point."""
        self._call(lambda store: self._running().drain(store))

    def stop(self) -> None:
        """Answer what is queued, checkpoint, close the database, unbind. Idempotent."""
        try:
            self._call(lambda _: setattr(self._running(), "stopping", True))
        except HoustonError as already:
            LOGGER.debug("stop: %s", already)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _running(self) -> Loop:
        assert self._loop is not None
        return self._loop

    def _call(self, act: Callable[[Store], T], patience: float | None = None) -> T:
        """Have the recorder's thread do something in a transaction; returns after the commit.

        Raises TimeoutError after `patience` seconds.
        """
        call = FromSupervisor(act)
        with self._guard:
            if self._over:
                raise HoustonError(self._over, "Nothing was changed.", "houston daemon restart")
            self._calls.append(call)
            self._running().wakes.wake()
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
        with self._guard:
            self._loop = loop
            self._over = ""
        self._ready.set_result(loop)
        self._turn(loop)

    def _turn(self, loop: Loop) -> None:
        try:
            loop.run()
            self._end(loop, "The recorder has stopped.")
            loop.close(clean=True)
        except Exception as problem:  # whatever it is, the supervisor must hear it
            cause = f"{type(problem).__name__}: {problem}"
            damaged = type(problem) is sqlite3.DatabaseError
            if damaged:
                cause = f"{sentence(self._home, '', UNKNOWN)} ({cause})"
            LOGGER.exception("writer failed: %s", cause)
            self._end(loop, f"The recorder has failed ({cause}).")
            loop.close(clean=False)
            self._tell(RecorderFailed(cause, damaged))
        loop.wakes.close()

    def _end(self, loop: Loop, why: str) -> None:
        """From now on calls are refused; those that wait are, too."""
        with self._guard:
            self._over = why
            waiting = [work for work in loop.works if isinstance(work, FromSupervisor)]
            waiting += self._calls
            self._calls.clear()
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(HoustonError(why, "It is not known to be done."))

    def _open(self) -> Loop:
        folders.prepare(self._home, self._group)
        self._identities = identities = Identities(self._group, self._roles)
        store, self.epoch = begin(self._home, self._fingerprint, self._died)
        loop = Loop(store, identities, self.epoch, self._tell, self._calls)
        try:
            loop.open(self._group)
        except BaseException:
            loop.close(clean=True)
            loop.wakes.close()
            raise
        return loop
