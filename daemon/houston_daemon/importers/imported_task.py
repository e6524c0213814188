"""A task that is being imported, from any benchmark, and the writer of its folder.

Holds one line for each imported field (mapped, approximately, not mapped). What a person has to
supply becomes a placeholder that `task validate` finds. The folder is new: nothing is overwritten.
Each importer maps its own fields (`innovatorbench_importer`, `harbor_importer`).
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from houston_shared.errors import ConfigurationError, HoustonError

PLACEHOLDER = "[houston: fill in]"
"""How a line begins that an importer leaves to a person."""
PLACEHOLDER_FILE = "FILL_IN.md"
"""Stands in a folder whose content an importer leaves to a person."""
MappingKind = Literal["mapped", "approximately", "not mapped"]


class ImportedField(NamedTuple):
    """One field of the file that is imported."""

    field: str
    how: MappingKind
    said: str
    """Where it went, or why it went nowhere and what to do instead."""


def placeholder_line(instruction: str) -> str:
    """The line of a file that stands for something which a person has to bring."""
    return f"{PLACEHOLDER} {instruction}\n"


def find_placeholder(file: Path, text: str) -> str:
    """The first line of a file that nobody has filled in, with its place; empty for none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(PLACEHOLDER):
            return f"{file}, line {number}: {line.removeprefix(PLACEHOLDER).strip()}"
    return ""


@dataclass(slots=True)
class ImportedTask:
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
    fields: list[ImportedField] = field(default_factory=list)

    def set_key(self, table: str, key: str, value: Any) -> None:
        """Set a key of the task file."""
        self.tables.setdefault(table, {})[key] = value

    def note_field(self, name: str, mapping: MappingKind, remark: str) -> None:
        """Add a line."""
        self.fields.append(ImportedField(name, mapping, remark))


def make_task_name(text: str, where: str = "the task") -> str:
    """A name that a task may have, made of any text.

    where: what the text is called where none can be made of it. Raises ConfigurationError.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    if not name:
        raise ConfigurationError(f"{where} is {text!r}, from which no task name can be made.")
    return name


def write_task_folder(task: ImportedTask, folder: Path) -> Path:
    """Make the task folder; returns the task file. Raises HoustonError."""
    try:
        folder.mkdir(parents=True)
        for place, source in task.copies.items():
            target = _target_path(folder, place)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copyfile(source, target)
        for place, text in task.texts.items():
            _target_path(folder, place).write_text(text, encoding="utf-8")
        for place, to in task.links.items():
            _target_path(folder, place).symlink_to(to)
        file = folder / "task.toml"
        file.write_text(tables_to_toml(task.tables), encoding="utf-8")
    except FileExistsError:
        raise HoustonError(
            f"{folder} already exists.", "Nothing was written.", "Choose another --out."
        ) from None
    except (OSError, shutil.Error) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else "") or str(problem)[:300]
        raise HoustonError(f"{folder} cannot be written: {reason}.") from problem
    return file


def _target_path(folder: Path, place: str) -> Path:
    target = folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def tables_to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables as TOML, the top first."""
    parts = [_toml_lines(tables.get("", {}))]
    for name, table in tables.items():
        if name:
            parts.append(f"[{name}]\n{_toml_lines(table)}")
    return "\n".join(parts)


def _toml_lines(table: Mapping[str, Any]) -> str:
    # A JSON string is a TOML one, but for DEL, which TOML wants escaped.
    return "".join(
        f"{_toml_key(key)} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f")
        for key, value in table.items()
    )


def _toml_key(text: str) -> str:
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else json.dumps(text)
