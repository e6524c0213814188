"""What the recorder does between batches: checkpoints, the head file, the ballast.

All of it runs after the acks have left, so no ack waits for it. The head file is written by a
thread of its own: its sync costs as much as a commit.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from houston_daemon.recorder.disk import ballast, head_file
from houston_daemon.recorder.disk.checkpoints import Checkpoints
from houston_daemon.recorder.disk.own_files import OwnFiles
from houston_daemon.recorder.store import Store

LOGGER = logging.getLogger("houston.recorder")

HEAD_SECONDS = 1.0
BALLAST_SECONDS = 10.0


class Maintenance:
    """Called by the loop after every batch and when nothing happens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = ThreadPoolExecutor(1, "houston-head")
        self._writing: Future[None] | None = None
        self._head_seq = -1
        self._head_due = 0.0
        self._ballast_due = 0.0
        self._troubles: dict[str, str] = {}
        """What could not be done, by its name; tried again until it can."""
        self.checkpoints = Checkpoints(store)
        self._own = OwnFiles(store)

    @property
    def problem(self) -> str:
        """Why a checkpoint, the head file or the ballast lags; empty when none does."""
        return self.checkpoints.problem or next(filter(None, self._troubles.values()), "")

    def run(self) -> None:
        """Do what is due. Raises FilesGone when the home's files are no longer the open ones."""
        now = time.monotonic()
        self._own.look(now)
        seq = self._store.journal.seq
        self.checkpoints.run(now)
        if now >= self._head_due and self._idle_writer() and seq != self._head_seq:
            self._head_due = now + HEAD_SECONDS
            self._head_seq = seq
            self._writing = self._files.submit(
                head_file.write, self._store.home, seq, self._store.journal.chain
            )
        if now >= self._ballast_due:
            self._ballast_due = now + BALLAST_SECONDS
            self._try("ballast", lambda: ballast.restore(self._store.home))

    def close(self) -> None:
        """The last checkpoint and the last head; everything is on disk then."""
        self._files.shutdown(wait=True)
        self.checkpoints.finish()
        seq, chain = self._store.journal.seq, self._store.journal.chain
        self._try("head file", lambda: head_file.write(self._store.home, seq, chain))

    def _idle_writer(self) -> bool:
        if self._writing is None:
            return True
        if not self._writing.done():
            return False
        problem = self._writing.exception()
        self._writing = None
        if problem:
            self._head_seq = -1  # again, whether or not there are new events
        self._say("head file", str(problem or ""))
        return True

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as problem:
            self._say(what, str(problem))
        else:
            self._say(what, "")

    def _say(self, what: str, problem: str) -> None:
        said = problem and f"{what}: {problem}"
        if said and said != self._troubles.get(what):
            LOGGER.warning("%s", said)
        self._troubles[what] = said
