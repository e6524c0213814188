"""A read as a plan: a generator that asks for rows and blobs and returns records.

So one query, written once, serves the commands (synchronous) and the console (asynchronous): the
readers only answer what a plan asks. A plan runs in one short read transaction and therefore sees
one state of the journal. It knows nothing of connections, threads or event loops.
"""

from collections.abc import Generator
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

Row: TypeAlias = tuple[Any, ...]

END = 2**62
"""A step number after every step: the open end of a range."""


class Ask(NamedTuple):
    """A statement to run; answered with all its rows."""

    sql: str
    parameters: tuple[Any, ...] = ()
    where: Literal["journal", "search"] = "journal"
    """Which of the home's two databases."""


class Fetch(NamedTuple):
    """A body that lies in `blobs/`; answered with its bytes, decompressed."""

    sha256: str
    """Name of the blob, hex."""


Plan: TypeAlias = Generator[Ask | Fetch, Any, T]


class RowRecord(msgspec.Struct, frozen=True):
    """Base of records read straight from a table: field names are column names, in order."""


def columns(kind: type[msgspec.Struct], table: str = "") -> str:
    """The column list that `from_rows` expects for `kind`."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}{name}" for name in kind.__struct_fields__)


def from_rows(kind: type[R], rows: list[Row]) -> list[R]:
    """Rows selected with `columns(kind)`, as records."""
    return [kind(*row) for row in rows]
