"""The recorder's loop: poll, take what is ready, store it in one transaction, then answer.

One thread runs `Loop.run` from start to end and owns connection and sockets. Order within a turn:
supervisor, people, workers, so that a flood of steps never delays a word of guidance.
"""

import gc
import sys
import time
from collections import deque
from functools import partial

import zmq

from houston_daemon.recorder import notices, wall_clock
from houston_daemon.recorder.answers import Answers
from houston_daemon.recorder.batch import Batch
from houston_daemon.recorder.control_state import Controls
from houston_daemon.recorder.disk.disk_room import DiskRoom
from houston_daemon.recorder.disk.maintenance import Maintenance
from houston_daemon.recorder.doors import Doors
from houston_daemon.recorder.intake import Intake
from houston_daemon.recorder.people import cleaning
from houston_daemon.recorder.people.identity import Identities
from houston_daemon.recorder.protocol import Tell
from houston_daemon.recorder.receiving import BATCH, Receiving
from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.searching.process import SearchProcess
from houston_daemon.recorder.sockets import Live
from houston_daemon.recorder.status import Gauges, StatusBoard
from houston_daemon.recorder.steps import assignments
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.upkeep.cleaner import Cleaner
from houston_daemon.recorder.wakes import Wakes
from houston_daemon.recorder.wall_clock import WallClock
from houston_daemon.recorder.work import FromSupervisor, FromWorker, Work
from houston_shared.faults import point

LAST_TURNS = 8
"""Turns that a stop gives to what workers have said already."""
STOP_TURNS = 100
"""Turns that it gives to what else is queued, and to bodies on their way to disk."""


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
        """calls: the supervisor's calls, filled from any thread; follow each with a wake."""
        self._store = store
        self._epoch = epoch
        self._tell = tell
        self._calls = calls
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = Live(self._context)
        self._maintenance = Maintenance(store)
        self._room = DiskRoom(store.home)
        self._answers = Answers()
        self._controls = Controls(store)
        self._search = SearchProcess(store.home)
        self._cleaner = Cleaner(store.home)
        self._freeing: dict[str, cleaning.Asked] = {}
        self._held: list[Work] = []
        """What the state of the disk asks for, in the next batch."""
        self._clock = WallClock()
        self.board = StatusBoard(epoch, self._gauges())
        self._intake = Intake(self.board.status, identities.book)
        self.wakes = Wakes()
        """Ends the loop's sleep; to be closed by whoever could still wake it."""
        self._receiving = Receiving(
            store.home, self._context, identities, self._intake, self._unstorable, self.wakes
        )
        self._doors = Doors(
            store.home,
            {
                "ingest": self._receiving.ingest.socket,
                "control": self._receiving.control.socket,
                "live": self._live.socket,
            },
        )
        self._batch = Batch(store, self._receiving.until)
        self.works: list[Work] = []
        """What is in hand; not empty after a failure."""
        self.stopping = False
        """Set by a call of the supervisor; the loop then ends when nothing is queued."""

    def open(self, group: str) -> None:
        """Bind the sockets; raises HoustonError."""
        self._doors.open(group)

    def run(self) -> None:
        """Turn until stopped. Raises what must end the recorder."""
        # Acks wait for nothing: what the daemon is made of is never looked through for garbage
        # (10 ms), and a commit that is done waits 1 ms at most for the interpreter, not 5.
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        sys.setswitchinterval(0.001)
        sleep = self._receiving.waiter(self._live)
        more = False
        while not self.stopping:
            if not more:
                sleep()
            more = self._turn()
        self._turn_out(LAST_TURNS)
        self._receiving.close()
        self._turn_out(STOP_TURNS)

    def close(self, clean: bool) -> None:
        """Let everything go; with `clean`, the last checkpoint and head are written first."""
        self._search.stop()
        self._cleaner.stop()
        self._receiving.close()
        self._batch.close()
        if clean:
            point("recorder.close.before")
            self._maintenance.close()
        point("recorder.close.after")
        self._store.connection.close()
        self._doors.close()
        self._context.destroy(linger=500 if clean else 0)

    def _turn_out(self, most: int) -> None:
        """Do what is queued, but not for ever."""
        for _ in range(most):
            if not self._turn():
                return

    def _turn(self) -> bool:
        """One batch and what follows it; whether there may be more at once."""
        self.wakes.hear()
        self._store.workers.turn(listening=not self._receiving.crowded)
        began = self._receiving.since()
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
        if self._room.look():
            self._hold_for_disk()
        self._maintenance.run()
        self._doors.look(time.monotonic())
        self._search.tend()
        return bool(works)

    def _collect(self) -> list[Work]:
        works: list[Work] = []
        while self._calls:
            works.append(self._calls.popleft())
        works += self._held
        self._held = []
        works += self._receiving.people()
        works += self._intake.refused(last=self.stopping)
        waiting = self._receiving.waiting()
        works += waiting
        works += self._freed()
        if jumped := self._clock.look():
            works.append(FromSupervisor(partial(wall_clock.note, seconds=jumped)))
        if self._store.presence.due(last=self.stopping):
            works.append(FromSupervisor(self._store.presence.write))
        works += self._receiving.workers(BATCH - len(waiting))
        return works

    def _freed(self) -> list[Work]:
        """Hosts are freed beside the recorder; what came of it is stored with the batch."""
        if self._cleaner.free and not self._freeing and self._store.cleaning:
            self._freeing = cleaning.portion(self._store.cleaning)
            self._cleaner.begin([one.order for one in self._freeing.values()])
        found: list[Work] = []
        for report in self._cleaner.hear():
            asked = self._freeing.pop(report.rollout)
            found.append(FromSupervisor(partial(cleaning.note, asked=asked, report=report)))
        return found

    def _hold_for_disk(self) -> None:
        """Pause rollouts while the disk is full; tried again where even that found no room."""
        reason = self._room.reason
        if assignments.disk_differs(self._store, bool(reason)):
            act = partial(assignments.pause_for_disk, reason=reason)
            self._held = [FromSupervisor(act)]

    def _unstorable(self) -> Refusal | None:
        return self._room.refusal() or self._maintenance.checkpoints.refusal()

    def _after(self, works: list[Work]) -> None:
        """Everything here happens because the batch is on disk."""
        store = self._store
        touched = notices.touched(store)
        self._controls.forget(touched)
        for work in works:
            point("recorder.answer.before")
            work.answer(store, self._controls.of)
        point("recorder.push.before")
        notices.push(store, self._receiving.ingest, touched, self._controls.of)
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
        notices.push(self._store, self._receiving.ingest, rollouts, self._controls.of)

    def _gauges(self) -> Gauges:
        return Gauges(
            queue=lambda: max(0, len(self.works) - 1) + self._receiving.count,  # less the asker
            commits=lambda: self._batch.commits,
            p99_ms=lambda: self._batch.p99_ms(),
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
