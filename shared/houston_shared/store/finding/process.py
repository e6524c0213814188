"""The process that searches for a console: `python -m houston_shared.store.finding.process HOME`.

A `Job` a line on stdin, in JSON; `Found` a line on stdout. A new job ends the one that runs; one
without text only ends it. It ends with its stdin. A process of its own, so that no search takes
turns with the screen for the interpreter, and one that hangs in a pattern can be killed.
"""

import queue
import resource
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.finding.looking import Progress, search
from houston_shared.store.finding.query import Query
from houston_shared.store.reader import Reader

MEMORY = 2 << 30
"""Bytes of address space: a pattern that needs more is refused, not the machine."""


class Job(msgspec.Struct, frozen=True):
    """A search, or with an empty text the end of one."""

    number: int
    query: Query


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one job has found."""

    number: int
    progress: Progress = Progress()
    problem: tuple[str, str, str] = ("", "", "")
    """Cause, effect, next; empty when all is well."""


class _Jobs:
    """Jobs as they come from stdin, in a thread."""

    def __init__(self) -> None:
        self.newest = 0
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def listen(self) -> None:
        """Until stdin ends."""
        for line in sys.stdin.buffer:
            job = msgspec.json.decode(line, type=Job)
            self.newest = job.number
            self._queue.put(job)
        self.newest = -1
        self._queue.put(None)

    def take(self) -> Job | None:
        """The newest job; None at the end."""
        job = self._queue.get()
        while job is not None and not self._queue.empty():
            job = self._queue.get()
        return job


def main() -> None:
    """Search until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    jobs = _Jobs()
    threading.Thread(target=jobs.listen, daemon=True).start()
    with Reader(Home(Path(sys.argv[1]))) as reader:
        while (job := jobs.take()) is not None:
            _say(Found(job.number))  # it is here, whatever comes of it
            if job.query.text:
                _run(reader, job, jobs)


def _run(reader: Any, job: Job, jobs: _Jobs) -> None:
    try:
        for progress in search(reader, job.query):
            if jobs.newest != job.number:
                return
            if progress.hits or progress.done:
                _say(Found(job.number, progress))
    except HoustonError as problem:
        _say(Found(job.number, problem=(problem.cause, problem.effect, problem.next)))
    except MemoryError:
        _say(Found(job.number, problem=("The search needs too much memory.", "It has ended.", "")))


def _say(found: Found) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
