"""The process that searches for a console: `python -m houston_shared.store.search_process HOME`.

A `SearchJob` a line on stdin, in JSON; a `SearchReport` a line on stdout. A new job ends the one
that runs; one without text only ends it. It ends with its stdin. A process of its own, so that no
search takes turns with the screen for the interpreter, and one that hangs in a pattern can be
killed.
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
from houston_shared.store.journal_search import SearchHit, SearchProgress, search_home
from houston_shared.store.search_matching import SearchQuery
from houston_shared.store.store_reader import Reader

MEMORY_LIMIT = 2 << 30
"""Bytes of address space: a pattern that needs more is refused, not the machine."""


REPORT_SECONDS = 0.1
"""What is found gathers this long before it is said: a screen shows no more."""
MAX_HITS_WITH_TEXT = 5_000
"""Hits that are said with their words; of the others only the steps."""


class SearchJob(msgspec.Struct, frozen=True):
    """A search, or with an empty text the end of one."""

    number: int
    query: SearchQuery


class SearchReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one job has found."""

    number: int
    progress: SearchProgress = SearchProgress()
    more: tuple[int, ...] = ()
    """Steps of hits that were left out because there are so many: one for each, 0 for none."""
    problem: tuple[str, str, str] = ("", "", "")
    """Cause, effect, next; empty when all is well."""


class _JobInput:
    """Jobs as they come from stdin, in a thread."""

    def __init__(self) -> None:
        self.newest = 0
        self._queue: queue.SimpleQueue[SearchJob | None] = queue.SimpleQueue()

    def listen(self) -> None:
        """Until stdin ends."""
        for line in sys.stdin.buffer:
            job = msgspec.json.decode(line, type=SearchJob)
            self.newest = job.number
            self._queue.put(job)
        self.newest = -1
        self._queue.put(None)

    def take(self) -> SearchJob | None:
        """The newest job; None at the end."""
        job = self._queue.get()
        while job is not None and not self._queue.empty():
            job = self._queue.get()
        return job


def main() -> None:
    """Search until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    jobs = _JobInput()
    threading.Thread(target=jobs.listen, daemon=True).start()
    # Opened by the first search: what is wrong with the home is then its answer.
    with contextlib.closing(Reader(Home(Path(sys.argv[1])))) as reader:
        while (job := jobs.take()) is not None:
            _write_report(SearchReport(job.number))  # it is here, whatever comes of it
            if job.query.text:
                _run_job(reader, job, jobs)


class _GatheredHits:
    """What one job has found and not said yet."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._hits: list[SearchHit] = []
        self._texts_left = MAX_HITS_WITH_TEXT
        self._reported_at = 0.0

    def take(self, progress: SearchProgress) -> None:
        """Report it when it is time: the first hits at once."""
        self._hits += progress.hits
        now = time.monotonic()
        if progress.done or (self._hits and now - self._reported_at > REPORT_SECONDS):
            hits, rest = self._hits[: self._texts_left], self._hits[self._texts_left :]
            self._texts_left -= len(hits)
            progress_shown = msgspec.structs.replace(progress, hits=tuple(hits))
            _write_report(
                SearchReport(self._number, progress_shown, tuple(hit.step for hit in rest))
            )
            self._hits, self._reported_at = [], now


def _run_job(reader: Reader, job: SearchJob, jobs: _JobInput) -> None:
    gathered = _GatheredHits(job.number)
    try:
        for progress in search_home(reader, job.query, soon=True):
            if jobs.newest != job.number:
                return
            gathered.take(progress)
    except HoustonError as problem:
        words = (problem.cause, problem.effect, problem.next)
        _write_report(SearchReport(job.number, problem=words))
    except MemoryError:
        words = ("The search needs too much memory.", "It has ended.", "")
        _write_report(SearchReport(job.number, problem=words))


def _write_report(report: SearchReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
