"""What an importer found of each field: a line for people, and the parts of the task that it makes.

Knows neither a benchmark's format nor how a task file is written.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

TO_FILL_IN = "[houston: fill in]"
"""How a line begins that an importer leaves to a person."""
FILE_TO_FILL_IN = "FILL_IN.md"
"""Stands in a folder whose content an importer leaves to a person."""
How = Literal["mapped", "approximately", "not mapped"]


class Line(NamedTuple):
    """One field of the file that is imported."""

    field: str
    how: How
    said: str
    """Where it went, or why it went nowhere and what to do instead."""


def fill_in(what: str) -> str:
    """The line of a file that stands for something which a person has to bring."""
    return f"{TO_FILL_IN} {what}\n"


def unfilled(file: Path, text: str) -> str:
    """The first line of a file that nobody has filled in, with its place; empty for none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(TO_FILL_IN):
            return f"{file}, line {number}: {line.removeprefix(TO_FILL_IN).strip()}"
    return ""


@dataclass(slots=True)
class Imported:
    """A task in the making."""

    name: str = ""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By table of the task file, `""` for the top: keys and values."""
    copies: dict[str, Path] = field(default_factory=dict)
    """By path in the task folder: the file or folder that is copied there."""
    links: dict[str, str] = field(default_factory=dict)
    """By path in the task folder: the target of a symbolic link."""
    texts: dict[str, str] = field(default_factory=dict)
    """By path in the task folder: a file's text."""
    lines: list[Line] = field(default_factory=list)

    def put(self, table: str, key: str, value: Any) -> None:
        """Set a key of the task file."""
        self.tables.setdefault(table, {})[key] = value

    def say(self, name: str, how: How, said: str) -> None:
        """Add a line."""
        self.lines.append(Line(name, how, said))
