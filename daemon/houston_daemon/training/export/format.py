"""What a format is: how a row becomes lines, and what the consumer of a line would get wrong.

Formats are pure: the same row gives the same lines, and nothing is read or written here. A line is
what the consumer reads; where a consumer allows no columns beside its own, the folder keeps an
index of the lines (`index`).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from houston_daemon.training.rows.row import ChatRow, Row
from houston_shared.records import Message

Line: TypeAlias = dict[str, Any]
"""One line of a data file: JSON values only."""
ColumnType = Literal["ids", "weights", "text", "number", "messages", "spans"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a line, for parquet and for the dataset card."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Format:
    """One consumer's file format."""

    name: str
    says: str
    """Who reads it, in a line."""
    of: Literal["ids", "messages"]
    """Which rows it is made of."""
    lines: Callable[[Any], list[Line]]
    """A `Row` or `ChatRow` as lines; none where nothing of it would be trained and the consumer
    takes no such line, or would drop it."""
    wrong: Callable[[Line], str]
    """What the consumer would get wrong or refuse, in words; empty for a line that is right."""
    remarks: Callable[[Line], Sequence[str]]
    """What is true of a line that its reader must know; counted in the manifest."""
    traps: tuple[str, ...]
    """What the consumer does without a word, and what to set against it."""
    columns: tuple[Column, ...]
    """Empty where the consumer reads JSON Lines only."""
    advice: Callable[[Sequence[tuple[str, str]]], str] = lambda models: ""
    """What to set for these models, each a base's name and its dialect; empty for nothing."""
    answer: Callable[[Message], str] = lambda message: ""
    """What the consumer would get wrong of one answer to train; the rest of its row is right."""
    only_lines: str = ""
    """Why there is no parquet file of it; empty where there is."""
    card: bool = False
    """Whether `datasets` reads the folder: then its card names the columns."""
    index: bool = False
    """Whether lines have no room for where they come from."""
    untrained: bool = False
    """Whether a file in which nothing is trained is of use to the consumer, too."""


def nothing(line: Line) -> Sequence[str]:
    """No remark."""
    return ()


def provenance(row: Row | ChatRow) -> Line:
    """Where a line comes from; `provenance` is `none` for a rollout without a sandbox."""
    return {
        "row": row.id,
        "rollout": row.rollout,
        "task": row.task,
        "kind": row.kind,
        "provenance": row.provenance,
    }


def no_json(value: Any, depth: int = 0) -> str:
    """Why a value is none that every JSON reader gives back; empty when it is one.

    Models write NaN and what Python's reader takes for a number, and nest as deep as they like.
    """
    match value:
        case float() if not math.isfinite(value):
            return f"the number {value}, which JSON does not have"
        case int() if not -(2**63) <= value < 2**64:
            return "a whole number past 64 bits"
        case str():
            whole = value.isascii() or not HALF.search(value)
            return "" if whole else "half a character, which is no UTF-8"
        case dict() | list() | tuple() if depth > DEEPEST:
            return f"values nested more than {DEEPEST} deep"
        case dict():
            parts: Sequence[Any] = [*value.keys(), *value.values()]
        case list() | tuple():
            parts = value
        case _:
            return ""
    return next(filter(None, (no_json(one, depth + 1) for one in parts)), "")


HALF = re.compile("[\ud800-\udfff]")
"""Half of a pair of UTF-16, alone."""
DEEPEST = 64
"""Nesting that every reader takes; pandas and Arrow give up at a few hundred."""
