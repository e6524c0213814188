"""A user's own corpus as a provider of search: BM25 over files, with no network.

The index is built once for every rollout of the host, under a lock, and named after its content.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from houston_daemon.environments.retrieval.corpus_documents import (
    SUFFIXES,
    Document,
    documents,
    files,
)
from houston_daemon.environments.retrieval.retrieval_protocol import Hit, SearchFailed
from houston_daemon.environments.retrieval.search_terms import indexed, match, snippet
from houston_shared import atomic_file
from houston_shared.errors import HoustonError

_LOOK_SECONDS = 0.1


class Cancelled(Exception):
    """Nobody waits for it any more."""


@contextlib.contextmanager
def build_lock(lock: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock, which the kernel releases if a worker is killed.

    The file stays, so that every process locks the same one. Raises OSError, and Cancelled when
    `cancelled()` becomes true meanwhile.
    """
    with lock.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if cancelled():
                    raise Cancelled from None
                time.sleep(_LOOK_SECONDS)
        yield


FORM = 3
"""Raised when terms or tables change: an index of another form is another index."""
_PIECE = 1 << 20
_LONG = 32
"""Characters of a key."""


def content_key(source: Path, folder: Path, cancelled: Callable[[], bool]) -> str:
    """The key of the corpus at `source`; what is known of it is kept in `folder`.

    Raises OSError, and Cancelled when `cancelled()` comes true.
    """
    signature = _signature(source)
    note = folder / f"{signature}.key"
    if known_key := _read_cached_key(note):
        return known_key
    with build_lock(folder / f"{signature}.lock", cancelled):
        return _read_cached_key(note) or _compute_key(source, signature, note, cancelled)


def _read_cached_key(note: Path) -> str:
    key = note.read_text(encoding="ascii") if note.is_file() else ""
    return key if len(key) == _LONG else ""  # a power cut can leave an empty one


def _compute_key(source: Path, signature: str, note: Path, cancelled: Callable[[], bool]) -> str:
    key = _hash_files(source, cancelled)
    if _signature(source) != signature:  # written to meanwhile: known again when it rests
        return key
    temp_file = note.with_suffix(".new-key")
    atomic_file.write_atomically(note, key.encode("ascii"), temporary_path=temp_file, durable=False)
    return key


def _signature(source: Path) -> str:
    """Names, sizes, times and inodes of the files, which change when a file does."""
    digest = hashlib.blake2b(f"{FORM} {source}".encode("utf-8", "surrogateescape"), digest_size=16)
    for path in files(source):
        stat = path.stat()
        line = f"\0{path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _hash_files(source: Path, cancelled: Callable[[], bool]) -> str:
    digest = hashlib.blake2b(f"{FORM}".encode(), digest_size=16)
    for path in files(source):
        name = "" if path == source else path.relative_to(source).as_posix()
        inner = hashlib.blake2b(digest_size=16)
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                inner.update(piece)
                if cancelled():
                    raise Cancelled
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + inner.digest())
    return digest.hexdigest()


log = logging.getLogger(__name__)
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, url TEXT NOT NULL,
    characters INTEGER NOT NULL, text BLOB NOT NULL  -- UTF-8, zlib
);
CREATE INDEX documents_url ON documents (url) WHERE url <> '';
CREATE VIRTUAL TABLE terms USING
    fts5(title, text, content='', tokenize='porter unicode61 remove_diacritics 2');
"""


def ensure_index(source: Path, root: Path, cancelled: Callable[[], bool]) -> Path:
    """The index of the corpus at `source`, built where there is none yet.

    It takes minutes for millions of documents, and blocks. root: `<host root>/retrieval`.
    Raises HoustonError when the corpus cannot be read or the index cannot be written, and
    Cancelled when `cancelled()` comes true.
    """
    folder = root / "corpora"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = content_key(source, folder, cancelled)
        index = folder / f"{key}.db"
        if index.is_file():
            return index
        with build_lock(folder / f"{key}.lock", cancelled):
            if not index.is_file():
                _build(source, index, cancelled)
        return index
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The corpus {source.name} cannot be indexed: {_words(problem)}.",
            "Searches in it have no results.",
            f"Check `search.corpus`, and the space below {root}.",
        ) from None


def _words(problem: Exception) -> str:
    return (problem.strerror or "") if isinstance(problem, OSError) else str(problem)


def _build(source: Path, index: Path, cancelled: Callable[[], bool]) -> None:
    temp_file = index.with_suffix(".new")
    temp_file.unlink(missing_ok=True)  # of a worker that was killed
    try:
        with contextlib.closing(sqlite3.connect(temp_file, isolation_level=None)) as database:
            database.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;"
                f"{_TABLES} BEGIN;"
            )
            _fill(database, source, cancelled)
            database.execute("COMMIT")
        atomic_file.sync_to_disk(temp_file)
    except BaseException:
        temp_file.unlink(missing_ok=True)
        raise
    temp_file.replace(index)


def _fill(database: sqlite3.Connection, source: Path, cancelled: Callable[[], bool]) -> None:
    count = left_out = 0
    for document in documents(source):
        if cancelled():
            raise Cancelled
        if document is not None and _add(database, count + 1, document):
            count += 1
        else:
            left_out += 1
    if not count:
        raise HoustonError(
            f"The corpus {source.name} has no document that can be read, and {left_out} that "
            f"cannot: a folder has files of {', '.join(SUFFIXES)}, a line is JSON with `text` or "
            "`contents`.",
            "Searches in it have no results.",
        )
    log.info("the corpus %s: %s documents, %s left out", source.name, count, left_out)


def _add(database: sqlite3.Connection, number: int, document: Document) -> bool:
    """Whether the document was taken; a second one of the same name is not."""
    text = zlib.compress(document.text.encode(), 1)
    row = (number, document.id, document.title, document.url, len(document.text), text)
    cursor = database.execute("INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?, ?, ?)", row)
    if not cursor.rowcount:
        return False
    database.execute(
        "INSERT INTO terms (rowid, title, text) VALUES (?, ?, ?)",
        (number, indexed(document.title), indexed(document.text)),
    )
    return True


SCHEME = "corpus:"
"""Address of a document that has none on the web: `corpus:ID`."""
_RANKED = (
    "SELECT d.id, d.title, d.url, d.characters, d.text FROM"
    " (SELECT rowid, rank FROM terms WHERE terms MATCH ? AND rank MATCH 'bm25(2.0, 1.0)'"
    "  ORDER BY rank LIMIT ?) AS best JOIN documents AS d ON d.number = best.rowid"
    " ORDER BY best.rank, d.number"
)
_NAMED = (
    "SELECT id, title, url, text FROM documents WHERE id = ? UNION ALL"
    " SELECT id, title, url, text FROM documents WHERE url = ? AND url <> '' LIMIT 1"
)
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
T = TypeVar("T")


class Corpus:
    """See `retrieval_protocol.Provider`; also gives whole documents."""

    keeps = False

    def __init__(self, source: Path, root: Path, seconds: float) -> None:
        """source: folder or `.jsonl` file. root: `<host root>/retrieval`. seconds: for a search."""
        self.name = f"corpus {source}"
        self._source = source
        self._root = root
        self._seconds = seconds
        self._index: Path | None = None

    async def prepare(self) -> Path:
        """Build the index or find it; returns its file. Raises SearchFailed.

        Cancelling ends the building, which the next one who asks begins again.
        """
        if self._index is not None and self._index.is_file():
            return self._index
        is_cancelled = threading.Event()
        try:
            self._index = await asyncio.to_thread(
                ensure_index, self._source, self._root, is_cancelled.is_set
            )
        except HoustonError as problem:
            raise SearchFailed("corpus", problem.cause) from None
        except Cancelled:
            raise SearchFailed("corpus", "The corpus was not indexed.") from None
        finally:
            is_cancelled.set()
        return self._index

    def use(self, index: Path) -> bool:
        """Go on with an index that was used before, if it is still there."""
        if index.is_file():
            self._index = index
        return index.is_file()

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The best documents for any of the query's terms. Raises SearchFailed."""
        index = await self.prepare()
        expression = match(query)
        if not expression:
            return []

        def ranked(database: sqlite3.Connection) -> list[Hit]:
            rows = database.execute(_RANKED, (expression, top_k)).fetchall()
            return [_hit(query, *row) for row in rows]

        return await self._ask(index, ranked)

    async def document(self, id: str) -> Document | None:
        """One document whole, by its id or address; None where there is none of this name.

        Raises SearchFailed.
        """
        index = await self.prepare()
        id = id.encode("utf-8", "replace").decode()  # a model can write half a surrogate pair

        def read_document(database: sqlite3.Connection) -> Document | None:
            row = database.execute(_NAMED, (id.removeprefix(SCHEME), id)).fetchone()
            if row is None:
                return None
            return Document(row[0], row[1], row[2], zlib.decompress(row[3]).decode())

        return await self._ask(index, read_document)

    async def _ask(self, index: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Ask the index in a thread, no longer than the time for a search."""
        is_cancelled = threading.Event()
        end = time.monotonic() + self._seconds

        def run_query() -> T:
            with contextlib.closing(_connect(index)) as database:
                database.set_progress_handler(
                    lambda: is_cancelled.is_set() or time.monotonic() > end, _STEPS
                )
                return ask(database)

        try:
            return await asyncio.to_thread(run_query)
        except sqlite3.OperationalError as problem:
            if time.monotonic() > end:
                raise SearchFailed(
                    "timeout", f"The search took longer than {self._seconds:g} s."
                ) from None
            raise SearchFailed("corpus", f"The corpus cannot be searched: {problem}.") from None
        except (sqlite3.DatabaseError, zlib.error):
            index.unlink(missing_ok=True)  # damaged: the next search builds it again
            self._index = None
            raise SearchFailed(
                "corpus", "The index of the corpus is damaged and is built again; search again."
            ) from None
        finally:
            is_cancelled.set()


def _connect(index: Path) -> sqlite3.Connection:
    """Nobody writes to a finished index, so it needs no lock."""
    return sqlite3.connect(f"{index.as_uri()}?mode=ro&immutable=1", uri=True)


def _hit(query: str, id: str, title: str, url: str, characters: int, text: bytes) -> Hit:
    """zlib is asked for the beginning only: a snippet needs no more."""
    beginning = zlib.decompressobj().decompress(text, 800_000).decode("utf-8", "ignore")
    return Hit(
        title=title,
        url=url or f"{SCHEME}{id}",
        snippet=snippet(beginning, query),
        id=id,
        characters=characters,
    )
