"""Receiving from both sockets, also while a commit runs; large bodies go to disk meanwhile.

Messages of one rollout keep their order: while a body of it is being written by a thread, later
ones wait. A message is ready only when its blob is synced. Knows the limits of a batch, nothing of
transactions and answers.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import zmq

from houston_daemon.recorder import journal_writer
from houston_daemon.recorder.identity_and_roles import PeerIdentities
from houston_daemon.recorder.journal_writer import INLINE_BODY_LIMIT, EventBody
from houston_daemon.recorder.message_dispatch import DISK_FULL_REASON, WorkerMessage, WorkItem
from houston_daemon.recorder.message_intake import MessageIntake
from houston_daemon.recorder.recorder_sockets import (
    LiveSocket,
    ReceivedFrames,
    RouterSocket,
    WakeupPipe,
)
from houston_daemon.recorder.request_checks import Refusal, is_disk_full
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store.store_reader import blob_path

MAX_HELD_BYTES = 256 * 1024 * 1024
"""Bytes of messages held; beyond, `ingest` is not read until some are done."""


class BlobWriteQueue:
    """Gives work its body: small ones at once, large ones from a thread."""

    def __init__(self, home: Home, wake: Callable[[], None]) -> None:
        """wake: called from the thread when something has become ready."""
        self._home = home
        self._wake = wake
        self._writer = ThreadPoolExecutor(1, "houston-blobs")
        self._queues: dict[str, deque[WorkerMessage]] = {}
        """By rollout; the first of each is being written."""
        self._written: deque[tuple[WorkerMessage, Future[EventBody]]] = deque()
        self.count = 0
        self._bytes = 0
        self._closed = False

    @property
    def crowded(self) -> bool:
        """Whether `ingest` should not be read for now."""
        return self._closed or self._bytes > MAX_HELD_BYTES

    def put(self, work: WorkerMessage) -> WorkItem | None:
        """The work if it can be done now; else it comes back from `ready`."""
        if work.unwritten:
            return work
        queue = self._queues.get(work.message.rollout)
        if queue is not None:
            queue.append(work)
            self._hold(work, 1)
            return None
        if work.slot is None or work.size <= INLINE_BODY_LIMIT:
            return _attach_inline_body(work)
        self._queues[work.message.rollout] = deque([work])
        self._hold(work, 1)
        self._submit(work)
        return None

    def ready(self) -> list[WorkItem]:
        """Work that was held and can be done now, in order."""
        done: list[WorkItem] = []
        while self._written:
            work, outcome = self._written.popleft()
            done.append(self._finished(work, outcome))
            queue = self._queues[work.message.rollout]
            self._hold(queue.popleft(), -1)
            while queue and (queue[0].slot is None or queue[0].size <= INLINE_BODY_LIMIT):
                done.append(_attach_inline_body(queue[0]))
                self._hold(queue.popleft(), -1)
            if queue and not self._closed:
                self._submit(queue[0])
            else:  # at the end, what was not begun stays unanswered: its worker says it again
                del self._queues[work.message.rollout]
        return done

    def close(self) -> None:
        """Wait for what is being written; nothing more can be put in."""
        self._closed = True
        self._writer.shutdown(wait=True)

    def _hold(self, work: WorkerMessage, sign: int) -> None:
        self.count += sign
        self._bytes += sign * work.size

    def _submit(self, work: WorkerMessage) -> None:
        assert work.slot is not None
        future = self._writer.submit(journal_writer.prepare_body, self._home, work.slot.record)
        future.add_done_callback(lambda done: self._come_back(work, done))

    def _come_back(self, work: WorkerMessage, outcome: "Future[EventBody]") -> None:
        point("recorder.blob.back")
        self._written.append((work, outcome))
        self._wake()

    def _finished(self, work: WorkerMessage, outcome: "Future[EventBody]") -> WorkItem:
        problem = outcome.exception()
        if problem is None:
            try:
                work.body = self._there(outcome.result())
                return work
            except OSError as again:
                problem = again
        if is_disk_full(problem, self._home.path):
            work.unwritten = Refusal("DISK_FULL", DISK_FULL_REASON)
            return work
        raise problem

    def _there(self, body: EventBody) -> EventBody:
        """Written again where an erasure has removed a file of the same content meanwhile."""
        if body.blob is None or blob_path(self._home, body.blob).exists():
            return body
        return journal_writer.prepare_body(self._home, body.record)


def _attach_inline_body(work: WorkerMessage) -> WorkerMessage:
    if work.slot is not None:
        work.body = journal_writer.prepare_inline_body(work.slot.record)
    return work


T = TypeVar("T")

WORKER_BATCH_SIZE = 32
"""Messages of workers in one transaction at most: while it is committed, the next are received.

Without it whatever waits goes into one commit, and then nobody is left to be heard meanwhile
(docs/decisions.md#a-commit-takes-at-most-32-messages-of-workers).
"""
PEOPLE_BATCH_SIZE = 64
"""Messages of people in one transaction at most."""
POLL_TIMEOUT_MS = 250
"""Longest sleep; maintenance runs at least as often."""


class MessageReceiver:
    """`ingest` and `control`, read."""

    def __init__(
        self,
        home: Home,
        context: "zmq.Context[zmq.Socket[bytes]]",
        identities: PeerIdentities,
        intake: MessageIntake,
        unstorable: Callable[[], Refusal | None],
        wakes: WakeupPipe,
    ) -> None:
        """unstorable: why nothing of a worker can be stored now."""
        self.ingest = RouterSocket(context, identities)
        self.control = RouterSocket(context, identities)
        self._intake = intake
        self._unstorable = unstorable
        self._wakes = wakes
        self._holding = BlobWriteQueue(home, wakes.wake)
        self._workers = self._poller(self.ingest)
        self._early: list[WorkItem] = []
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

    def waiter(self, live: LiveSocket) -> Callable[[], None]:
        """What sleeps until something comes, also on `live`, or a tick is over."""
        calm = self._poller(self.control, live)
        usual = self._poller(self.control, live, self.ingest)

        def sleep() -> None:
            (calm if self.crowded else usual).poll(POLL_TIMEOUT_MS)

        return sleep

    def since(self) -> float:
        """When the oldest message of the next batch came, as `time.perf_counter` says it."""
        return self._early_since if self._early else time.perf_counter()

    def people(self) -> list[WorkItem]:
        """What people said."""
        return _receive_batch(self.control, PEOPLE_BATCH_SIZE, self._intake.from_person)

    def waiting(self) -> list[WorkItem]:
        """What came during a commit, then what was held and is ready now, which is younger."""
        early, self._early = self._early, []
        return early + self._holding.ready()

    def workers(self, most: int) -> list[WorkItem]:
        """What workers said and can be done now."""
        if self.crowded:
            return []
        ready: list[WorkItem] = []
        for work in _receive_batch(self.ingest, most, self._intake.from_worker):
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
            room = WORKER_BATCH_SIZE - len(self._early)
            if room <= 0 or self.crowded:
                wait([done])
                return
            self._early += self.workers(room)
            self._workers.poll(POLL_TIMEOUT_MS)
            self._wakes.hear()  # whoever woke us is heard in the next turn, which follows at once

    def close(self) -> None:
        """Wait for bodies that are being written; no more are taken."""
        self._holding.close()

    def _poller(self, *parts: RouterSocket | LiveSocket) -> zmq.Poller:
        poller = zmq.Poller()
        for part in parts:
            poller.register(part.socket, zmq.POLLIN)
        poller.register(self._wakes.descriptor, zmq.POLLIN)
        return poller


def _receive_batch(
    router: RouterSocket, most: int, understand: Callable[[RouterSocket, ReceivedFrames], T | None]
) -> list[T]:
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
