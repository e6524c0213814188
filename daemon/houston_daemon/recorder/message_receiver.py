"""Receives from both sockets, also during a commit; large bodies are written to disk meanwhile.

Messages of one rollout keep their order: while a thread writes the body of one, later ones wait. A
message is ready only when its blob is synced. The module knows the limits of a batch, but nothing
of transactions and answers.
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
from houston_daemon.recorder.message_dispatch import (
    DISK_FULL_REASON,
    WorkerHeartbeats,
    WorkerMessage,
    WorkItem,
)
from houston_daemon.recorder.message_intake import MessageIntake
from houston_daemon.recorder.recorder_sockets import (
    LiveSocket,
    ReceivedFrames,
    RouterSocket,
    WakeupPipe,
    kernel_identity,
)
from houston_daemon.recorder.request_checks import Refusal, is_disk_full
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store.store_reader import blob_path

MAX_HELD_BYTES = 256 * 1024 * 1024
"""Bytes of messages held; beyond, `ingest` is not read until some are done."""


class BlobWriteQueue:
    """Gives messages their bodies: small ones at once, large ones from a thread."""

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
    def is_full(self) -> bool:
        """Whether `ingest` should not be read for now."""
        return self._closed or self._bytes > MAX_HELD_BYTES

    def submit(self, work: WorkerMessage) -> WorkItem | None:
        """The work if it can be done now; else it comes back from `take_ready`."""
        if work.write_refusal:
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
        self._start_writing(work)
        return None

    def take_ready(self) -> list[WorkItem]:
        """Work that was held and can be done now, in order."""
        ready: list[WorkItem] = []
        while self._written:
            work, outcome = self._written.popleft()
            ready.append(self._take_written(work, outcome))
            queue = self._queues[work.message.rollout]
            self._hold(queue.popleft(), -1)
            while queue and (queue[0].slot is None or queue[0].size <= INLINE_BODY_LIMIT):
                ready.append(_attach_inline_body(queue[0]))
                self._hold(queue.popleft(), -1)
            if queue and not self._closed:
                self._start_writing(queue[0])
            else:  # at the end, what was not begun stays unanswered: its worker says it again
                del self._queues[work.message.rollout]
        return ready

    def close(self) -> None:
        """Wait for what is being written; nothing more can be put in."""
        self._closed = True
        self._writer.shutdown(wait=True)

    def _hold(self, work: WorkerMessage, sign: int) -> None:
        self.count += sign
        self._bytes += sign * work.size

    def _start_writing(self, work: WorkerMessage) -> None:
        assert work.slot is not None
        future = self._writer.submit(journal_writer.prepare_body, self._home, work.slot.record)
        future.add_done_callback(lambda result: self._on_written(work, result))

    def _on_written(self, work: WorkerMessage, outcome: "Future[EventBody]") -> None:
        point("recorder.blob.back")
        self._written.append((work, outcome))
        self._wake()

    def _take_written(self, work: WorkerMessage, outcome: "Future[EventBody]") -> WorkItem:
        problem = outcome.exception()
        if problem is None:
            try:
                work.body = self._ensure_blob(outcome.result())
                return work
            except OSError as second_problem:
                problem = second_problem
        if is_disk_full(problem, self._home.path):
            work.write_refusal = Refusal("DISK_FULL", DISK_FULL_REASON)
            return work
        raise problem

    def _ensure_blob(self, body: EventBody) -> EventBody:
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
        storage_refusal: Callable[[], Refusal | None],
        wakeup_pipe: WakeupPipe,
        remote: RouterSocket | None = None,
    ) -> None:
        """storage_refusal: why nothing of a worker can be stored now. remote: `ingest` for other
        machines, where there is one."""
        self.ingest = RouterSocket(context, kernel_identity(identities))
        self.control = RouterSocket(context, kernel_identity(identities))
        self._ingests = deque([self.ingest, *([remote] if remote else [])])
        self._intake = intake
        self._storage_refusal = storage_refusal
        self._wakeup_pipe = wakeup_pipe
        self._blob_queue = BlobWriteQueue(home, wakeup_pipe.wake)
        self._workers = self._poller(*self._ingests)
        self._received_during_commit: list[WorkItem] = []
        """Messages of workers that came while a commit ran."""
        self._commit_began = 0.0

    @property
    def is_full(self) -> bool:
        """Whether workers are not listened to for now."""
        return self._blob_queue.is_full

    @property
    def count(self) -> int:
        """Messages that wait to be done."""
        return len(self._received_during_commit) + self._blob_queue.count

    def waiter(self, live: LiveSocket) -> Callable[[], None]:
        """A function that sleeps until a message comes, on `live` too, or a tick is over."""
        calm = self._poller(self.control, live)
        usual = self._poller(self.control, live, *self._ingests)

        def sleep() -> None:
            (calm if self.is_full else usual).poll(POLL_TIMEOUT_MS)

        return sleep

    def oldest_received_at(self) -> float:
        """When the oldest message of the next batch came, as `time.perf_counter` says it."""
        return self._commit_began if self._received_during_commit else time.perf_counter()

    def receive_from_people(self) -> list[WorkItem]:
        """What people said."""
        return _receive_batch(self.control, PEOPLE_BATCH_SIZE, self._intake.decode_person_message)

    def take_waiting(self) -> list[WorkItem]:
        """What came during a commit, then the younger messages that were held and are ready now."""
        early, self._received_during_commit = self._received_during_commit, []
        return early + self._blob_queue.take_ready()

    def receive_from_workers(self, max_messages: int) -> list[WorkItem]:
        """What workers said and can be done now."""
        if self.is_full:
            return []
        ready: list[WorkItem] = []
        self._ingests.rotate()  # where there are two, none waits for the other's crowd
        received: list[WorkerMessage | WorkerHeartbeats] = []
        for router in self._ingests:
            room = max_messages - len(received)
            received += _receive_batch(router, room, self._intake.decode_worker_message)
        for work in received:
            if isinstance(work, WorkerHeartbeats):
                ready.append(work)
                continue
            if work.slot is not None:
                work.write_refusal = self._storage_refusal()
            now = self._blob_queue.submit(work)
            if now is not None:
                ready.append(now)
        return ready

    def receive_until(self, future: "Future[Any]") -> None:
        """Receive from workers while a commit runs: receiving and decoding take as long as it."""
        self._commit_began = time.perf_counter()
        future.add_done_callback(lambda _: self._wakeup_pipe.wake())
        while not future.done():
            room = WORKER_BATCH_SIZE - len(self._received_during_commit)
            if room <= 0 or self.is_full:
                wait([future])
                return
            self._received_during_commit += self.receive_from_workers(room)
            self._workers.poll(POLL_TIMEOUT_MS)
            self._wakeup_pipe.drain()  # the next turn follows at once, and receives its message

    def close(self) -> None:
        """Wait for bodies that are being written; no more are taken."""
        self._blob_queue.close()

    def _poller(self, *parts: RouterSocket | LiveSocket) -> zmq.Poller:
        poller = zmq.Poller()
        for part in parts:
            poller.register(part.socket, zmq.POLLIN)
        poller.register(self._wakeup_pipe.descriptor, zmq.POLLIN)
        return poller


def _receive_batch(
    router: RouterSocket,
    max_messages: int,
    decode: Callable[[RouterSocket, ReceivedFrames], T | None],
) -> list[T]:
    """What came on a socket, up to `max_messages` messages, as far as it can be understood."""
    batch: list[T] = []
    for _ in range(max_messages):
        frames = router.receive()
        if frames is None:
            break
        work = decode(router, frames)
        if work is not None:
            batch.append(work)
    return batch
