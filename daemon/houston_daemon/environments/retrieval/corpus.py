"""A corpus of one's own as a provider of search: BM25 over files, with no network.

Ranking is FTS5's bm25() (k1 = 1.2, b = 0.75; Robertson and Zaragoza, The Probabilistic Relevance
Framework, 2009), a term of the title counting twice one of the text. Documents are read back as
they were indexed, whatever happens to the files meanwhile.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from houston_daemon.environments.retrieval.documents import Document
from houston_daemon.environments.retrieval.indexing import ensure_index
from houston_daemon.environments.retrieval.protocol import Hit, SearchFailed
from houston_daemon.environments.retrieval.terms import match, snippet
from houston_daemon.environments.retrieval.turns import Cancelled
from houston_shared.errors import HoustonError

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
    """See `protocol.Provider`; also gives whole documents."""

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
        gone = threading.Event()
        try:
            self._index = await asyncio.to_thread(
                ensure_index, self._source, self._root, gone.is_set
            )
        except HoustonError as problem:
            raise SearchFailed("corpus", problem.cause) from None
        except Cancelled:
            raise SearchFailed("corpus", "The corpus was not indexed.") from None
        finally:
            gone.set()
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

        def found(database: sqlite3.Connection) -> Document | None:
            row = database.execute(_NAMED, (id.removeprefix(SCHEME), id)).fetchone()
            if row is None:
                return None
            return Document(row[0], row[1], row[2], zlib.decompress(row[3]).decode())

        return await self._ask(index, found)

    async def _ask(self, index: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Ask the index in a thread, no longer than the time for a search."""
        gone = threading.Event()
        end = time.monotonic() + self._seconds

        def asked() -> T:
            with contextlib.closing(_connected(index)) as database:
                database.set_progress_handler(
                    lambda: gone.is_set() or time.monotonic() > end, _STEPS
                )
                return ask(database)

        try:
            return await asyncio.to_thread(asked)
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
            gone.set()


def _connected(index: Path) -> sqlite3.Connection:
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
