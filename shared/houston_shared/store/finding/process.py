"""The process that searches for a console: `python -m houston_shared.store.finding.process HOME`.

A `Job` a line on stdin, in JSON; `Found` a line on stdout. A new job ends the one that runs; one
without text only ends it. It ends with its stdin. A process of its own, so that no search takes
turns with the screen for the interpreter, and one that hangs in a pattern can be killed.
"""

import contextlib
import queue
import resource
import sys
import threading
import time
from pathlib import Path

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.finding.looking import Hit, Progress, search
from houston_shared.store.finding.query import Query
from houston_shared.store.reader import Reader

MEMORY = 2 << 30
"""Bytes of address space: a pattern that needs more is refused, not the machine."""


SAY_SECONDS = 0.1
"""What is found gathers this long before it is said: a screen shows no more."""
WORDS = 5_000
"""Hits that are said with their words; of the others only the steps."""


class Job(msgspec.Struct, frozen=True):
    """A search, or with an empty text the end of one."""

    number: int
    query: Query


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one job has found."""

    number: int
    progress: Progress = Progress()
    more: tuple[int, ...] = ()
    """Steps of hits that were left out because there are so many: one for each, 0 for none."""
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
    # Opened by the first search: what is wrong with the home is then its answer.
    with contextlib.closing(Reader(Home(Path(sys.argv[1])))) as reader:
        while (job := jobs.take()) is not None:
            _say(Found(job.number))  # it is here, whatever comes of it
            if job.query.text:
                _run(reader, job, jobs)


class _Gathered:
    """What one job has found and not said yet."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._hits: list[Hit] = []
        self._words = WORDS
        self._said = 0.0

    def take(self, progress: Progress) -> None:
        """Say it when it is time: the first hits at once."""
        self._hits += progress.hits
        now = time.monotonic()
        if progress.done or (self._hits and now - self._said > SAY_SECONDS):
            hits, rest = self._hits[: self._words], self._hits[self._words :]
            self._words -= len(hits)
            told = msgspec.structs.replace(progress, hits=tuple(hits))
            _say(Found(self._number, told, tuple(one.step for one in rest)))
            self._hits, self._said = [], now


def _run(reader: Reader, job: Job, jobs: _Jobs) -> None:
    gathered = _Gathered(job.number)
    try:
        for progress in search(reader, job.query, soon=True):
            if jobs.newest != job.number:
                return
            gathered.take(progress)
    except HoustonError as problem:
        _say(Found(job.number, problem=(problem.cause, problem.effect, problem.next)))
    except MemoryError:
        _say(Found(job.number, problem=("The search needs too much memory.", "It has ended.", "")))


def _say(found: Found) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
