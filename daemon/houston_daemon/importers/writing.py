"""Writes an imported task as a folder: `task.toml` and what it names. Nothing is overwritten."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from houston_daemon.importers.findings import Imported
from houston_shared.errors import HoustonError


def write(made: Imported, folder: Path) -> Path:
    """Make the task folder; returns the task file. Raises HoustonError."""
    try:
        folder.mkdir(parents=True)
        for place, source in made.copies.items():
            target = _place(folder, place)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copyfile(source, target)
        for place, text in made.texts.items():
            _place(folder, place).write_text(text, encoding="utf-8")
        for place, to in made.links.items():
            _place(folder, place).symlink_to(to)
        file = folder / "task.toml"
        file.write_text(text_of(made.tables), encoding="utf-8")
    except FileExistsError:
        raise HoustonError(
            f"{folder} is there already.", "Nothing was written.", "Choose another --out."
        ) from None
    except (OSError, shutil.Error) as problem:
        why = (problem.strerror if isinstance(problem, OSError) else "") or str(problem)[:300]
        raise HoustonError(f"{folder} cannot be written: {why}.") from problem
    return file


def _place(folder: Path, place: str) -> Path:
    target = folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def text_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables as TOML, the top first."""
    parts = [_lines(tables.get("", {}))]
    for name, table in tables.items():
        if name:
            parts.append(f"[{name}]\n{_lines(table)}")
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> str:
    # A JSON string is a TOML one, but for DEL, which TOML wants escaped.
    return "".join(
        f"{_key(key)} = {json.dumps(value)}\n".replace("\x7f", "\\u007f")
        for key, value in table.items()
    )


def _key(text: str) -> str:
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else json.dumps(text)
