"""The recorder's loop: poll, take what is ready, store it in one transaction, then answer.

One thread runs `Loop.run` from start to end and owns connection and sockets. Order within a turn:
supervisor, people, workers, so that a flood of steps never delays a word of guidance.
"""

import contextlib
import gc
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

import zmq

from houston_daemon.recorder import notices, wall_clock
from houston_daemon.recorder.answers import Answers
from houston_daemon.recorder.batch import Batch
from houston_daemon.recorder.control_state import Controls
from houston_daemon.recorder.disk_room import DiskRoom
from houston_daemon.recorder.holding import Holding
from houston_daemon.recorder.identity import Identities
from houston_daemon.recorder.intake import Intake
from houston_daemon.recorder.maintenance import Maintenance
from houston_daemon.recorder.protocol import Tell
from houston_daemon.recorder.search_process import SearchProcess
from houston_daemon.recorder.sockets import Frames, Live, Router, bind
from houston_daemon.recorder.status import Gauges, StatusBoard
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.wall_clock import WallClock
from houston_daemon.recorder.work import FromSupervisor, FromWorker, Work
from houston_shared.faults import point

T = TypeVar("T")

BATCH = 256
"""Messages of workers in one transaction at most."""
PEOPLE = 64
"""Messages of people in one transaction at most."""
TICK_MS = 250
"""Longest sleep; maintenance runs at least as often."""
STOP_TURNS = 100
"""Turns that a stop gives to what is already queued."""


class Loop:
    """Everything between the sockets and the database."""

    def __init__(
        self,
        store: Store,
        identities: Identities,
        epoch: int,
        tell: Tell,
        calls: "deque[FromSupervisor]",
    ) -> None:
        """calls: the supervisor's calls, filled from any thread; follow each with `wake`."""
        self._store = store
        self._epoch = epoch
        self._tell = tell
        self._calls = calls
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._ingest = Router(self._context, identities)
        self._control = Router(self._context, identities)
        self._live = Live(self._context)
        self._woken, self._wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._room = DiskRoom(store.home)
        self._holding = Holding(store.home, self.wake)
        self._controls = Controls(store)
        self._batch = Batch(store, self._receive_until)
        self._answers = Answers()
        self._receiving = self._poller(self._ingest)
        self._early: list[Work] = []
        """Messages of workers that came while a commit ran."""
        self._early_since = 0.0
        self._maintenance = Maintenance(store)
        self._clock = WallClock()
        self._search = SearchProcess(store.home)
        self.board = StatusBoard(epoch, self._gauges())
        self._intake = Intake(self.board.status, identities.book)
        self.works: list[Work] = []
        """What is in hand; not empty after a failure."""
        self.stopping = False
        """Set by a call of the supervisor; the loop then ends when nothing is queued."""

    def open(self, group: str) -> None:
        """Bind the sockets; raises HoustonError."""
        named = {"ingest": self._ingest.socket, "control": self._control.socket}
        for name, socket in {**named, "live": self._live.socket}.items():
            bind(socket, self._store.home, name, group)

    def wake(self) -> None:
        """End the sleep; from any thread."""
        try:
            os.write(self._wake_end, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes already

    def run(self) -> None:
        """Turn until stopped. Raises what must end the recorder."""
        # Acks wait for nothing: what the daemon is made of is never looked through for garbage
        # (10 ms), and a commit that is done waits 1 ms at most for the interpreter, not 5.
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        sys.setswitchinterval(0.001)
        calm = self._poller(self._control, self._live)
        usual = self._poller(self._control, self._live, self._ingest)
        more = False
        while not self.stopping:
            if not more:
                (calm if self._holding.crowded else usual).poll(TICK_MS)
            more = self._turn()
        self._holding.close()
        for _ in range(STOP_TURNS):
            if not self._turn():
                break

    def _poller(self, *parts: Router | Live) -> zmq.Poller:
        poller = zmq.Poller()
        for part in parts:
            poller.register(part.socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        return poller

    def close(self, clean: bool) -> None:
        """Let everything go; with `clean`, the last checkpoint and head are written first."""
        self._search.stop()
        self._holding.close()
        self._batch.close()
        if clean:
            point("recorder.close.before")
            self._maintenance.close()
        point("recorder.close.after")
        self._store.connection.close()
        for name in ("ingest", "control", "live"):
            (self._store.home.run / f"{name}.sock").unlink(missing_ok=True)
        self._context.destroy(linger=500 if clean else 0)

    def release_wake(self) -> None:
        """Close the pipe that `wake` writes to; nobody may call it afterwards."""
        os.close(self._woken)
        os.close(self._wake_end)

    def _turn(self) -> bool:
        """One batch and what follows it; whether there may be more at once."""
        self._hear_wakes()
        self._store.workers.turn(listening=not self._holding.crowded)
        began = self._early_since if self._early else time.perf_counter()
        works = self._collect()
        self.works = works
        if works:
            point("recorder.batch.before")
            self._batch.run(works)
            if self._batch.full:
                self._batch.full = ""
                self._room.refused()
            point("recorder.batch.after")
            self._after(works)
            self.works = []
            workers = sum(isinstance(work, FromWorker) for work in works)
            self._answers.note(workers, time.perf_counter() - began)
        self._live.count()
        self._room.look()
        self._maintenance.run()
        self._search.tend()
        return bool(works)

    def _hear_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a message or the clock woke us, nobody else
            os.read(self._woken, 65_536)

    def _collect(self) -> list[Work]:
        works: list[Work] = []
        while self._calls:
            works.append(self._calls.popleft())
        works += _take(self._control, PEOPLE, self._intake.from_person)
        works += self._intake.refused(last=self.stopping)
        works += self._early  # older than what was held and is ready now
        self._early = []
        works += self._holding.ready()
        if jumped := self._clock.look():
            works.append(FromSupervisor(partial(wall_clock.note, seconds=jumped)))
        works += self._from_workers(BATCH - len(works))
        return works

    def _from_workers(self, most: int) -> list[Work]:
        """What workers said and can be done now."""
        if self._holding.crowded:
            return []
        ready: list[Work] = []
        for work in _take(self._ingest, most, self._intake.from_worker):
            if work.slot is not None:
                work.unwritten = self._room.refusal() or self._maintenance.checkpoints.refusal()
            now = self._holding.put(work)
            if now is not None:
                ready.append(now)
        return ready

    def _receive_until(self, done: "Future[Any]") -> None:
        """Take in what workers say while a commit runs: receiving and decoding cost as much."""
        self._early_since = time.perf_counter()
        done.add_done_callback(lambda _: self.wake())
        while not done.done():
            room = BATCH - len(self._early)
            if room <= 0 or self._holding.crowded:
                wait([done])
                return
            self._early += self._from_workers(room)
            self._receiving.poll(TICK_MS)
            self._hear_wakes()  # whoever woke us is heard in the next turn, which follows at once

    def _after(self, works: list[Work]) -> None:
        """Everything here happens because the batch is on disk."""
        store = self._store
        touched = notices.touched(store)
        self._controls.forget(touched)
        for work in works:
            point("recorder.answer.before")
            work.answer(store, self._controls.of)
        point("recorder.push.before")
        notices.push(store, self._ingest, touched, self._controls.of)
        if store.journal.appended:
            point("recorder.publish.before")
            notices.publish(store, self._live, self._epoch)
            self._search.wake()
            store.journal.appended.clear()
        point("recorder.tell.before")
        told, store.tells = store.tells, []
        for event in dict.fromkeys(told):
            self._tell(event)

    def drain(self, store: Store) -> None:
        """From now on every worker hears that the daemon stops."""
        store.draining = True
        self._controls.forget_all()
        store.later.append(self._push_all)

    def _push_all(self) -> None:
        rollouts = self._store.workers.rollouts()
        notices.push(self._store, self._ingest, rollouts, self._controls.of)

    def _gauges(self) -> Gauges:
        return Gauges(
            queue=lambda: (
                max(0, len(self.works) - 1) + len(self._early) + self._holding.count
            ),  # less the asker
            commits=lambda: self._batch.commits,
            p99_ms=self._batch.p99_ms,
            acked=lambda: self._answers.count,
            ack_p99_ms=self._answers.p99_ms,
            wal_bytes=self._maintenance.checkpoints.wal_bytes,
            consoles=lambda: self._live.listeners,
            search_seq=lambda: self._search.seq,
            problem=lambda: (
                self._room.problem
                or self._maintenance.problem
                or self._search.problem
                or self._batch.fault
            ),
        )


def _take(router: Router, most: int, understand: Callable[[Router, Frames], T | None]) -> list[T]:
    """What came on a socket, up to `most` messages, as far as it can be understood."""
    taken: list[T] = []
    for _ in range(most):
        frames = router.receive()
        if frames is None:
            break
        work = understand(router, frames)
        if work is not None:
            taken.append(work)
    return taken
