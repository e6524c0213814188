"""How often a row stands in a file, and in which order: upsampling and shuffling.

Rows are repeated in the file itself, so that every consumer sees what a recipe asks for. The order
of a shuffle is that of a hash of seed, row and copy: a row that comes or goes moves no other.
"""

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from houston_daemon.training.rows.row import Kind
from houston_shared.errors import ExitCode, HoustonError

MOST = 1000
"""Copies of a row at most: more is a slip of the pen."""


@dataclass(frozen=True, slots=True)
class Recipe:
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

    def order(self, rows: Sequence[tuple[str, Kind]]) -> list[int]:
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
    one.name: one
    for one in (Recipe(), Recipe("shuffled", shuffle=True), Recipe("apollo", 7, 10, shuffle=True))
}
"""`apollo`: rows of actions 7 times, summaries 10 times (APOLLO §4.1): a rollout has one summary
less than it has contexts."""


def choose_recipe(name: str, seed: int = 0) -> Recipe:
    """The recipe of a name, or of a TOML file with `react`, `summary`, `shuffle`.

    Raises HoustonError for a name that is none and a file that is no recipe.
    """
    if name in RECIPES:
        return replace(RECIPES[name], seed=seed)
    file = Path(name)
    if not file.is_file():
        raise _no_recipe(name, f"there is no such file; known: {', '.join(RECIPES)}")
    try:
        said = tomllib.loads(file.read_text())
    except (ValueError, OSError) as problem:
        raise _no_recipe(name, str(problem)) from None
    if unknown := set(said) - {"react", "summary", "shuffle"}:
        raise _no_recipe(name, f"it has the key {sorted(unknown)[0]!r}")
    copies = [said.get(kind, 1) for kind in ("react", "summary")]
    if not all(type(one) is int and 0 <= one <= MOST for one in copies):
        raise _no_recipe(name, f"copies are whole numbers from 0 to {MOST}")
    if type(said.get("shuffle", True)) is not bool:
        raise _no_recipe(name, "shuffle is true or false")
    react, summary = copies
    return Recipe(file.stem, react, summary, said.get("shuffle", True), seed)


def _no_recipe(name: str, why: str) -> HoustonError:
    return HoustonError(
        f"{name!r} is no recipe: {why}.", "Nothing was exported.", code=ExitCode.USAGE
    )
