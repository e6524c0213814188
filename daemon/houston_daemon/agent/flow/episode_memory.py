"""Memory across rollouts: what earlier flows were asked, what they tried and what they answered.

One SQLite file under the host root holds an entry for each rollout that ended, with a vector of its
question (`sqlite-vec`), so a similar question finds it. Vectors come from WordLlama, whose weights
are part of its package: nothing is downloaded. It is off unless a task turns it on, and always off
for evaluations. Scores are never kept: an agent that may not know its own score must not read
another's. If the file fails, the rollout continues without memory, and its log says so.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from houston_daemon.agent.flow.task_memory import TaskMemory, one_line
from houston_shared.errors import ConfigurationError
from houston_shared.secret_redaction import redact
from houston_shared.times_and_counts import now_us

if TYPE_CHECKING:
    import apsw

log = logging.getLogger(__name__)
T = TypeVar("T")
PACKAGES = ("apsw", "sqlite_vec", "wordllama")
MIN_COSINE_SIMILARITY = 0.45
"""Cosine of two questions from which one recalls the other; of unlike ones it is about 0."""
MAX_EPISODES = 10_000
"""Of one task; the oldest go."""
_DIMENSIONS = 256
_WAIT_MILLISECONDS = 5_000
_CHARACTERS = 600
"""Of a question or an answer as it is recalled."""
_SCHEMA = f"""
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY, rollout TEXT NOT NULL UNIQUE, task TEXT NOT NULL, at REAL NOT NULL,
    question TEXT NOT NULL, tried TEXT NOT NULL, answer TEXT NOT NULL, verified INTEGER NOT NULL
);
CREATE VIRTUAL TABLE vectors USING vec0(
    task TEXT PARTITION KEY, question FLOAT[{_DIMENSIONS}] DISTANCE_METRIC=cosine
);
"""
HEADING = "[From earlier rollouts, which may have been wrong or are out of date:"


class Episode(NamedTuple):
    """What is kept of one rollout."""

    rollout: str
    task: str
    """Name of its task; only rollouts of the same task recall it."""
    question: str
    tried: str
    """Its memory's line at the end."""
    answer: str
    """Empty where there was none."""
    verified: bool
    """Whether a verifier said that the question was answered."""


def check_packages() -> None:
    """Raise ConfigurationError where the packages of the extra `memory` are not installed."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ConfigurationError(
            f"`agent.memory` needs the package {missing[0]}, which is not installed here.",
            next="pip install 'houston-agents[memory]'",
        )


class EpisodeStore:
    """The kept episodes. Every call opens the file anew, so it may be used from any thread, and by
    many processes at once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def keep(self, episode: Episode) -> None:
        """Keep an episode; it replaces the earlier one of the same rollout. An episode without a
        question is not kept."""
        if not episode.question.strip():
            return
        vector = embed(episode.question)

        def store_episode(database: "apsw.Connection") -> None:
            database.execute("BEGIN IMMEDIATE")
            for (old,) in database.execute(
                "SELECT id FROM episodes WHERE rollout = ?1 OR id IN (SELECT id FROM episodes"
                " WHERE task = ?2 ORDER BY id DESC LIMIT -1 OFFSET ?3)",
                (episode.rollout, episode.task, MAX_EPISODES - 1),
            ).fetchall():
                database.execute("DELETE FROM vectors WHERE rowid = ?", (old,))
                database.execute("DELETE FROM episodes WHERE id = ?", (old,))
            database.execute(
                "INSERT INTO episodes (rollout, task, at, question, tried, answer, verified)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*episode[:2], now_us() / 1e6, *episode[2:5], int(episode.verified)),
            )
            database.execute(
                "INSERT INTO vectors (rowid, task, question) VALUES (?, ?, ?)",
                (database.last_insert_rowid(), episode.task, vector),
            )
            database.execute("COMMIT")

        self._with_database(store_episode)

    def recall(self, task: str, question: str, limit: int) -> list[Episode]:
        """At most `limit` episodes of the task with similar questions, the most similar first."""
        if not question.strip():
            return []
        vector = embed(question)

        def read_episodes(database: "apsw.Connection") -> list[Episode]:
            near = database.execute(
                "SELECT rowid FROM (SELECT rowid, distance FROM vectors WHERE question MATCH ?1"
                " AND k = ?2 AND task = ?3) WHERE distance <= ?4 ORDER BY distance",
                (vector, limit, task, 1 - MIN_COSINE_SIMILARITY),
            ).fetchall()
            rows = [
                database.execute(
                    "SELECT rollout, task, question, tried, answer, verified FROM episodes"
                    " WHERE id = ?",
                    row,
                ).fetchone()
                for row in near
            ]
            return [Episode._make((*row[:5], bool(row[5]))) for row in rows if row]

        return self._with_database(read_episodes) or []

    def _with_database(self, work: Callable[["apsw.Connection"], T]) -> T | None:
        """What `work` returns; None where the file fails, which is said."""
        import apsw

        try:
            if not self._file.exists():
                _make_file(self._file)
            with closing(_connect(self._file)) as database:
                return work(database)
        except (apsw.Error, OSError) as problem:
            log.warning("the memory in %s is not used: %s", self._file, problem)
            return None


def _make_file(file: Path) -> None:
    """Make an empty store in its place at once: many workers may begin together."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=file.parent) as folder:
        new = Path(folder) / file.name
        with closing(_connect(new)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"BEGIN;{_SCHEMA}COMMIT;")
        with suppress(FileExistsError):
            file.hardlink_to(new)


def _connect(file: Path) -> "apsw.Connection":
    # Python's own sqlite3 is often built so that it loads no extension.
    import apsw
    import sqlite_vec

    database = apsw.Connection(str(file))
    database.set_busy_timeout(_WAIT_MILLISECONDS)
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.enable_load_extension(False)
    return database


def embed(text: str) -> bytes:
    """The vector of a text: 256 floats of 4 bytes, of length 1 (WordLlama's `l2_supercat`)."""
    vector: bytes = _word_vectors().embed([text], norm=True)[0].astype("<f4").tobytes()
    return vector


@cache
def _word_vectors() -> Any:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    import wordllama  # has everything that is logged printed

    root.handlers[:] = handlers
    root.setLevel(level)
    # Its tokenizer lies in a folder of the package where only a cache is looked for.
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


class EpisodeMemory(TaskMemory):
    """A task's memory that reads what earlier rollouts kept, and adds to it."""

    def __init__(self, store: EpisodeStore, rollout: str, task: str, recalled: int) -> None:
        """recalled: most episodes that are told."""
        super().__init__()
        self._store = store
        self._rollout = rollout
        self._task = task
        self._max_recalled = recalled

    async def recall(self, question: str) -> str:
        """What earlier rollouts tried for similar questions, as text for the head."""
        episodes = await asyncio.to_thread(
            self._store.recall, self._task, question, self._max_recalled + 1
        )
        others = [episode for episode in episodes if episode.rollout != self._rollout]
        lines = [_describe(episode) for episode in others[: self._max_recalled]]
        return "\n".join((HEADING, *lines, "]")) if lines else ""

    async def keep(self, question: str, answer: str, verified: bool) -> None:
        """Keep what was tried and answered for later rollouts."""
        episode = Episode(
            self._rollout,
            self._task,
            redact(question),
            redact(self.line()),
            redact(answer),
            verified,
        )
        await asyncio.to_thread(self._store.keep, episode)


def _describe(episode: Episode) -> str:
    question = one_line(episode.question, _CHARACTERS)
    answer = one_line(episode.answer, _CHARACTERS)
    answer_text = f'answered "{answer}"' if answer else "not answered"
    checked = ", which a verifier took for answered" if episode.verified and answer else ""
    return f"- asked: {question}\n  {episode.tried or '[nothing tried]'}\n  {answer_text}{checked}"
