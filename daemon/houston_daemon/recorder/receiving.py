"""What comes in: from both sockets to work that can be done, also while a commit runs.

Knows sockets, bodies on their way to disk and the limits of a batch; nothing of transactions and
answers. All calls belong to the recorder's thread.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import zmq

from houston_daemon.recorder.holding import Holding
from houston_daemon.recorder.intake import Intake
from houston_daemon.recorder.people.identity import Identities
from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.sockets import Frames, Live, Router
from houston_daemon.recorder.wakes import Wakes
from houston_daemon.recorder.work import Work
from houston_shared.home import Home

T = TypeVar("T")

BATCH = 32
"""Messages of workers in one transaction at most: while it is committed, the next are received.

Without it whatever waits goes into one commit, and then nobody is left to be heard meanwhile.
"""
PEOPLE = 64
"""Messages of people in one transaction at most."""
TICK_MS = 250
"""Longest sleep; maintenance runs at least as often."""


class Receiving:
    """`ingest` and `control`, read."""

    def __init__(
        self,
        home: Home,
        context: "zmq.Context[zmq.Socket[bytes]]",
        identities: Identities,
        intake: Intake,
        unstorable: Callable[[], Refusal | None],
        wakes: Wakes,
    ) -> None:
        """unstorable: why nothing of a worker can be stored now."""
        self.ingest = Router(context, identities)
        self.control = Router(context, identities)
        self._intake = intake
        self._unstorable = unstorable
        self._wakes = wakes
        self._holding = Holding(home, wakes.wake)
        self._workers = self._poller(self.ingest)
        self._early: list[Work] = []
        """Messages of workers that came while a commit ran."""
        self._early_since = 0.0

    @property
    def crowded(self) -> bool:
        """Whether workers are not listened to for now."""
        return self._holding.crowded

    @property
    def count(self) -> int:
        """Messages that wait to be done."""
        return len(self._early) + self._holding.count

    def waiter(self, live: Live) -> Callable[[], None]:
        """What sleeps until something comes, also on `live`, or a tick is over."""
        calm = self._poller(self.control, live)
        usual = self._poller(self.control, live, self.ingest)

        def sleep() -> None:
            (calm if self.crowded else usual).poll(TICK_MS)

        return sleep

    def since(self) -> float:
        """When the oldest message of the next batch came, as `time.perf_counter` says it."""
        return self._early_since if self._early else time.perf_counter()

    def people(self) -> list[Work]:
        """What people said."""
        return _take(self.control, PEOPLE, self._intake.from_person)

    def waiting(self) -> list[Work]:
        """What came during a commit, then what was held and is ready now, which is younger."""
        early, self._early = self._early, []
        return early + self._holding.ready()

    def workers(self, most: int) -> list[Work]:
        """What workers said and can be done now."""
        if self.crowded:
            return []
        ready: list[Work] = []
        for work in _take(self.ingest, most, self._intake.from_worker):
            if work.slot is not None:
                work.unwritten = self._unstorable()
            now = self._holding.put(work)
            if now is not None:
                ready.append(now)
        return ready

    def until(self, done: "Future[Any]") -> None:
        """Take in what workers say while a commit runs: receiving and decoding cost as much."""
        self._early_since = time.perf_counter()
        done.add_done_callback(lambda _: self._wakes.wake())
        while not done.done():
            room = BATCH - len(self._early)
            if room <= 0 or self.crowded:
                wait([done])
                return
            self._early += self.workers(room)
            self._workers.poll(TICK_MS)
            self._wakes.hear()  # whoever woke us is heard in the next turn, which follows at once

    def close(self) -> None:
        """Wait for bodies that are being written; no more are taken."""
        self._holding.close()

    def _poller(self, *parts: Router | Live) -> zmq.Poller:
        poller = zmq.Poller()
        for part in parts:
            poller.register(part.socket, zmq.POLLIN)
        poller.register(self._wakes.descriptor, zmq.POLLIN)
        return poller


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
