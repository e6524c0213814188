"""The recipe of an export: how often each row appears in a file (upsampling), and in which order
(shuffling).

Rows are repeated in the file itself, so that every consumer sees what the recipe asks for.
Shuffling sorts by a hash of seed, row and copy: an added or removed row moves no other row.
"""

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from houston_daemon.training.rows.training_row import RowKind
from houston_shared.errors import HoustonError, NotFound, UsageError, did_you_mean

MAX_COPIES = 1000
"""Copies of a row at most: more is a slip of the pen."""


@dataclass(frozen=True, slots=True)
class ExportRecipe:
    """Copies of each kind of row, and their order."""

    name: str = "once"
    react: int = 1
    """Copies of a row of actions."""
    summary: int = 1
    """Copies of a row of a summary."""
    shuffle: bool = False
    seed: int = 0

    @property
    def as_made(self) -> bool:
        """Whether it leaves rows as they come: once each, by rollout and context."""
        return self.react == self.summary == 1 and not self.shuffle

    def order(self, rows: Sequence[tuple[str, RowKind]]) -> list[int]:
        """Indexes of `rows` (unique key, kind) as they stand in the file."""
        copies = [
            (self._place(key, copy), index)
            for index, (key, kind) in enumerate(rows)
            for copy in range(self.react if kind == "react" else self.summary)
        ]
        return [index for _, index in (sorted(copies) if self.shuffle else copies)]

    def _place(self, key: str, copy: int) -> bytes:
        return hashlib.sha256(f"{self.seed}\n{key}\n{copy}".encode()).digest()


RECIPES = {
    recipe.name: recipe
    for recipe in (
        ExportRecipe(),
        ExportRecipe("shuffled", shuffle=True),
        ExportRecipe("apollo", 7, 10, shuffle=True),
    )
}
"""`apollo`: rows of actions 7 times, summaries 10 times (APOLLO §4.1): a rollout has one summary
less than it has contexts."""


def choose_export_recipe(name: str, seed: int = 0) -> ExportRecipe:
    """The recipe of a name, or of a TOML file with `react`, `summary`, `shuffle`.

    Raises HoustonError for a name that is none and a file that is no recipe.
    """
    if name in RECIPES:
        return replace(RECIPES[name], seed=seed)
    file = Path(name)
    if not file.is_file():
        raise NotFound(
            f"There is no recipe {name}; there are {', '.join(RECIPES)}, or a .toml file.",
            "Nothing was exported.",
            did_you_mean(name, RECIPES),
        )
    try:
        tables = tomllib.loads(file.read_text())
    except (ValueError, OSError) as problem:
        raise _recipe_error(name, str(problem)) from None
    if unknown := set(tables) - {"react", "summary", "shuffle"}:
        raise _recipe_error(name, f"it has the key {sorted(unknown)[0]!r}")
    copies = [tables.get(kind, 1) for kind in ("react", "summary")]
    if not all(type(count) is int and 0 <= count <= MAX_COPIES for count in copies):
        raise _recipe_error(name, f"copies are whole numbers from 0 to {MAX_COPIES}")
    if type(tables.get("shuffle", True)) is not bool:
        raise _recipe_error(name, "shuffle is true or false")
    react, summary = copies
    return ExportRecipe(file.stem, react, summary, tables.get("shuffle", True), seed)


def _recipe_error(name: str, reason: str) -> HoustonError:
    return UsageError(f"{name!r} is no recipe: {reason}.", "Nothing was exported.")
