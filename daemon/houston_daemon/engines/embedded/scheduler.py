"""The sampling thread: gives every running job a turn, round after round.

Jobs beyond `MAX_RUNNING` wait in order. Adapter changes run between turns on the same thread. It
does not know what a job samples.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from houston_daemon.engines.embedded.generation import Job, Sampler

MAX_RUNNING = 16
"""Each running job holds a key-value cache of its own."""

Answer = TypeVar("Answer")


class Scheduler:
    """Runs jobs on one thread; `submit` and `call` may come from any other."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        """Touched on the sampling thread only: by jobs, and through `call`."""
        self._inbox: queue.SimpleQueue[Job | Callable[[], None]] = queue.SimpleQueue()
        self._running: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._inbox.put(job)

    def call(self, do: Callable[[], Answer]) -> "Future[Answer]":
        """Run `do` on the sampling thread between two turns."""
        future: Future[Answer] = Future()

        def run() -> None:
            try:
                future.set_result(do())
            except Exception as problem:  # noqa: BLE001 - the caller waits for it
                future.set_exception(problem)

        self._inbox.put(run)
        return future

    def _run(self) -> None:
        while True:
            self._receive()
            while self._waiting and len(self._running) < MAX_RUNNING:
                self._running.append(self._waiting.popleft())
            if self._running:
                job = self._running.popleft()
                if not self._turn(job):
                    self._running.append(job)

    def _receive(self) -> None:
        """Take what came in; wait for something when there is nothing to do."""
        while not self._inbox.empty() or not (self._running or self._waiting):
            item = self._inbox.get()
            if isinstance(item, Job):
                self._waiting.append(item)
            else:
                item()

    def _turn(self, job: Job) -> bool:
        """Return whether the job is over."""
        over = job.cancelled
        if not over:
            try:
                over = job.turn(self.sampler)
            except Exception as problem:  # noqa: BLE001 - one job's failure is that job's answer
                job.deliver(problem)
                over = True
        if over:
            job.end(self.sampler)
        return over
