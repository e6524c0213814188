"""Building the index of a corpus once, for every rollout of the host.

One SQLite file per content under `<host root>/retrieval/corpora`: texts, and their terms in FTS5.
Built beside its name and renamed when whole; workers that want the same one wait for each other by
a lock of the kernel's, which a killed worker gives back. Memory does not grow with the corpus.
"""

import contextlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

from houston_daemon.environments.retrieval.documents import Document, documents
from houston_daemon.environments.retrieval.identity import content_key
from houston_daemon.environments.retrieval.terms import indexed
from houston_daemon.environments.retrieval.turns import Cancelled, turn
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, url TEXT NOT NULL,
    characters INTEGER NOT NULL, text BLOB NOT NULL  -- UTF-8, zlib
);
CREATE INDEX documents_url ON documents (url) WHERE url <> '';
CREATE VIRTUAL TABLE terms USING
    fts5(title, text, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE TABLE facts (documents INTEGER NOT NULL, left_out INTEGER NOT NULL);
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
        with turn(folder / f"{key}.lock", cancelled):
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
    beside = index.with_suffix(".new")
    beside.unlink(missing_ok=True)  # of a worker that was killed
    try:
        with contextlib.closing(sqlite3.connect(beside, isolation_level=None)) as database:
            database.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;"
                f"{_TABLES} BEGIN;"
            )
            _fill(database, source, cancelled)
            database.execute("COMMIT")
        with beside.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    beside.replace(index)


def _fill(database: sqlite3.Connection, source: Path, cancelled: Callable[[], bool]) -> None:
    count = left_out = 0
    for document in documents(source):
        if cancelled():
            raise Cancelled
        if document is not None and _add(database, count + 1, document):
            count += 1
        else:
            left_out += 1
    database.execute("INSERT INTO facts VALUES (?, ?)", (count, left_out))
    log.info("the corpus %s: %s documents, %s left out", source.name, count, left_out)


def _add(database: sqlite3.Connection, number: int, document: Document) -> bool:
    """Whether the document was taken; a second one of the same name is not."""
    text = zlib.compress(document.text.encode(), 1)
    row = (number, document.id, document.title, document.url, len(document.text), text)
    done = database.execute("INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?, ?, ?)", row)
    if not done.rowcount:
        return False
    database.execute(
        "INSERT INTO terms (rowid, title, text) VALUES (?, ?, ?)",
        (number, indexed(document.title), indexed(document.text)),
    )
    return True
