"""Searching as the tools do it: the provider that node and task name, and a cache of its answers.

The cache is one SQLite file under the host root, shared by all rollouts.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from houston_daemon.environments.retrieval.corpus_documents import Document
from houston_daemon.environments.retrieval.corpus_search import Corpus
from houston_daemon.environments.retrieval.retrieval_protocol import Hit, Provider, SearchFailed
from houston_daemon.environments.retrieval.web_search import Searxng, Serper, Tavily
from houston_shared.config_sections import WebSearchSettings
from houston_shared.records import RolloutSpec
from houston_shared.secret_redaction import restore_secrets
from houston_shared.task import Task
from houston_shared.toml_file import convert_toml

log = logging.getLogger(__name__)
T = TypeVar("T")
_WAIT_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    provider TEXT NOT NULL, query TEXT NOT NULL, top_k INTEGER NOT NULL,
    at REAL NOT NULL, hits BLOB NOT NULL,
    PRIMARY KEY (provider, query, top_k)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_at ON answers (at);
CREATE TABLE IF NOT EXISTS held (bytes INTEGER NOT NULL);
INSERT INTO held SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM held);
CREATE TRIGGER IF NOT EXISTS answers_added AFTER INSERT ON answers
BEGIN UPDATE held SET bytes = bytes + length(NEW.hits) + length(NEW.query); END;
CREATE TRIGGER IF NOT EXISTS answers_gone AFTER DELETE ON answers
BEGIN UPDATE held SET bytes = bytes - length(OLD.hits) - length(OLD.query); END;
"""


def _hash_provider(provider: str) -> str:
    """A provider's name has its address, and that may have a key."""
    return hashlib.sha256(provider.encode("utf-8", "surrogateescape")).hexdigest()


class AnswerCache:
    """The kept answers. Every call opens the file anew, so it may be used from any thread."""

    def __init__(self, file: Path, seconds: float, megabytes: int) -> None:
        """seconds: how old an answer may be; 0 keeps none. megabytes: of 1,048,576 bytes."""
        self._file = file
        self._seconds = seconds
        self._max_bytes = megabytes * 1_048_576

    def find(self, provider: str, query: str, top_k: int) -> list[Hit] | None:
        """The kept answer to a question, if there is one that is young enough."""
        provider = _hash_provider(provider)

        def read_hits(database: sqlite3.Connection) -> list[Hit] | None:
            row = database.execute(
                "SELECT hits FROM answers"
                " WHERE provider = ? AND query = ? AND top_k = ? AND at BETWEEN ? AND ?",
                (provider, query, top_k, time.time() - self._seconds, time.time()),
            ).fetchone()
            return msgspec.msgpack.decode(row[0], type=list[Hit]) if row else None

        return self._with_database(read_hits)

    def keep(self, provider: str, query: str, top_k: int, hits: list[Hit]) -> None:
        """Keep an answer; what is too old goes, then the oldest until the size is right."""
        provider, data = _hash_provider(provider), msgspec.msgpack.encode(hits)

        def store_hits(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            key = (provider, query, top_k)
            database.execute(
                "DELETE FROM answers WHERE provider = ? AND query = ? AND top_k = ?", key
            )
            database.execute(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (*key, time.time(), data)
            )
            database.execute("DELETE FROM answers WHERE at < ?", (time.time() - self._seconds,))
            while database.execute("SELECT bytes > ? FROM held", (self._max_bytes,)).fetchone()[0]:
                database.execute(
                    "DELETE FROM answers WHERE at <= (SELECT max(at) FROM"
                    " (SELECT at FROM answers ORDER BY at LIMIT 20))"
                )
            database.execute("COMMIT")

        self._with_database(store_hits)

    def _with_database(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `work` returns; None where answers are not kept or the file fails, which is said."""
        if not self._seconds:
            return None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._open_database()) as database:
                return work(database)
        except (sqlite3.Error, OSError, ValueError) as problem:
            log.warning("the cached answers in %s are not used: %s", self._file, problem)
            return None

    def _open_database(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.OperationalError:  # busy, full, not writable: as it is
            raise
        except sqlite3.DatabaseError:
            log.warning("%s is no longer a database and is created again", self._file)
            for end in ("", "-wal", "-shm"):
                Path(f"{self._file}{end}").unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'held'").fetchone():
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
            database.execute("PRAGMA synchronous = OFF")  # losing it at a power cut costs a search
        except sqlite3.Error:
            database.close()
            raise
        return database


NO_PROVIDER = (
    "No search provider is configured on this node; go on without the web, with the files and"
    " tools that you have."
)


WEB_PROVIDERS: Mapping[str, Callable[[str, str, float], Provider]] = {
    "serper": Serper,
    "tavily": Tavily,
    "searxng": Searxng,
}
"""Providers on the web by their name in `[tools.search]`, made of address, key and seconds."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a search gave."""

    hits: list[Hit]
    from_cache: bool


class Searcher:
    """Searches with one provider."""

    def __init__(self, provider: Provider | SearchFailed, answers: AnswerCache) -> None:
        """provider: or why there is none."""
        self._provider = provider
        self._answers = answers

    async def search(self, query: str, top_k: int) -> SearchAnswer:
        """At most `top_k` hits. Raises SearchFailed; safe to cancel."""
        provider = self._provider
        if isinstance(provider, SearchFailed):
            raise provider
        if not provider.keeps:
            return SearchAnswer(await provider.search(query, top_k), False)
        key = (provider.name, " ".join(query.split()), top_k)
        kept_hits = await asyncio.to_thread(self._answers.find, *key)
        if kept_hits is not None:
            return SearchAnswer(kept_hits, True)
        hits = await provider.search(query, top_k)
        await asyncio.to_thread(self._answers.keep, *key, hits)
        return SearchAnswer(hits, False)

    async def document(self, address: str) -> Document | None:
        """What stands under an address of a search in a corpus; None where it is not the corpus's.

        Raises SearchFailed.
        """
        provider = self._provider
        return await provider.document(address) if isinstance(provider, Corpus) else None


def make_searcher(spec: RolloutSpec, task: Task) -> Searcher:
    """The search of one rollout; nothing is touched before the first one.

    A task's own corpus comes first, then the node's provider, then the node's corpus.
    """
    settings = search_settings(spec.tool_settings)
    root = retrieval_root(spec)
    answers = AnswerCache(root / "answers.db", settings.cache_seconds, settings.cache_mb)
    if task.search.corpus:
        return Searcher(task_corpus(spec, task), answers)
    try:
        return Searcher(_provider(settings, root), answers)
    except SearchFailed as problem:
        return Searcher(problem, answers)


def task_corpus(spec: RolloutSpec, task: Task) -> Corpus:
    """The corpus beside the task file."""
    settings = search_settings(spec.tool_settings)
    source = Path(spec.task.folder) / task.search.corpus
    return Corpus(source, retrieval_root(spec), settings.seconds)


def retrieval_root(spec: RolloutSpec) -> Path:
    """Where a host keeps answers and indexes, for all its rollouts."""
    return Path(spec.host_root) / "retrieval"


def search_settings(tools: Mapping[str, Mapping[str, Any]]) -> WebSearchSettings:
    """`[tools.search]` as it was when the rollout started."""
    return convert_toml(
        dict(tools.get("search", {})), WebSearchSettings, "the rollout's [tools.search]"
    )


def _provider(settings: WebSearchSettings, root: Path) -> Provider:
    """Raises SearchFailed (`not_configured`) saying what is missing."""
    name = settings.provider
    if name in ("", "corpus"):
        if settings.corpus:
            return Corpus(Path(settings.corpus), root, settings.seconds)
        raise SearchFailed("not_configured", NO_PROVIDER)
    if name not in WEB_PROVIDERS:
        raise SearchFailed(
            "not_configured", f"This node names a search provider {name[:40]!r}, which is none."
        )
    if name == "searxng" and not settings.url:
        raise SearchFailed("not_configured", "The node's search provider has no address.")
    return WEB_PROVIDERS[name](restore_secrets(settings.url), _key(settings), settings.seconds)


def is_key(text: str) -> bool:
    """Whether a header can carry it: a line end, as files have one, is no part of a key."""
    return text.isascii() and text.isprintable() and text == text.strip()


def _key(settings: WebSearchSettings) -> str:
    """The key, from the environment of the daemon."""
    variable = settings.api_key_env
    if not variable and settings.provider == "searxng":
        return ""
    key = os.environ.get(variable, "")
    if not key:
        raise SearchFailed("not_configured", "The key of the node's search provider is not set.")
    if not is_key(key):
        raise SearchFailed("not_configured", "The key of the node's search provider is no key.")
    return key
