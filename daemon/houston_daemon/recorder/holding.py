"""Large bodies on their way to disk, off the recorder's thread, and what waits behind them.

Messages of one rollout keep their order: while a body of it is being written, later ones wait. A
message is `ready` only when its blob is synced, so a transaction never names what is not there.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from houston_daemon.recorder.disk import blobs
from houston_daemon.recorder.refusal import Refusal, is_full
from houston_daemon.recorder.steps import journal
from houston_daemon.recorder.steps.journal import INLINE_LIMIT, Body
from houston_daemon.recorder.work import FULL, FromWorker, Work
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store.blobs import place

LIMIT = 256 * 1024 * 1024
"""Bytes of messages held; beyond, `ingest` is not read until some are done."""


class Holding:
    """Gives work its body: small ones at once, large ones from a thread."""

    def __init__(self, home: Home, wake: Callable[[], None]) -> None:
        """wake: called from the thread when something has become ready."""
        self._home = home
        self._wake = wake
        self._writer = ThreadPoolExecutor(1, "houston-blobs")
        self._queues: dict[str, deque[FromWorker]] = {}
        """By rollout; the first of each is being written."""
        self._written: deque[tuple[FromWorker, Future[Body]]] = deque()
        self.count = 0
        self._bytes = 0
        self._closed = False

    @property
    def crowded(self) -> bool:
        """Whether `ingest` should not be read for now."""
        return self._closed or self._bytes > LIMIT

    def put(self, work: FromWorker) -> Work | None:
        """The work if it can be done now; else it comes back from `ready`."""
        if work.unwritten:
            return work
        queue = self._queues.get(work.message.rollout)
        if queue is not None:
            queue.append(work)
            self._hold(work, 1)
            return None
        if work.slot is None or work.size <= INLINE_LIMIT:
            return _with_body(work)
        self._queues[work.message.rollout] = deque([work])
        self._hold(work, 1)
        self._submit(work)
        return None

    def ready(self) -> list[Work]:
        """Work that was held and can be done now, in order."""
        done: list[Work] = []
        while self._written:
            work, outcome = self._written.popleft()
            done.append(self._finished(work, outcome))
            queue = self._queues[work.message.rollout]
            self._hold(queue.popleft(), -1)
            while queue and (queue[0].slot is None or queue[0].size <= INLINE_LIMIT):
                done.append(_with_body(queue[0]))
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

    def _hold(self, work: FromWorker, sign: int) -> None:
        self.count += sign
        self._bytes += sign * work.size

    def _submit(self, work: FromWorker) -> None:
        assert work.slot is not None
        future = self._writer.submit(blobs.stored, self._home, work.slot.record)
        future.add_done_callback(lambda done: self._come_back(work, done))

    def _come_back(self, work: FromWorker, outcome: "Future[Body]") -> None:
        point("recorder.blob.back")
        self._written.append((work, outcome))
        self._wake()

    def _finished(self, work: FromWorker, outcome: "Future[Body]") -> Work:
        problem = outcome.exception()
        if problem is None:
            try:
                work.body = self._there(outcome.result())
                return work
            except OSError as again:
                problem = again
        if is_full(problem, self._home.path):
            work.unwritten = Refusal("DISK_FULL", FULL)
            return work
        raise problem

    def _there(self, body: Body) -> Body:
        """Written again where an erasure has removed a file of the same content meanwhile."""
        if body.blob is None or place(self._home, body.blob).exists():
            return body
        return blobs.stored(self._home, body.record)


def _with_body(work: FromWorker) -> FromWorker:
    if work.slot is not None:
        work.body = journal.body(work.slot.record)
    return work
