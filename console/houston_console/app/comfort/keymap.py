"""The keys of one person: a file of their own that gives actions other keys.

`[area]` tables of `action = "keys"`, the names as `houston console --keymap` prints them, which is
where a file of one's own begins. Reads the file and checks it; the registry itself is `keys`.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from platformdirs import user_config_path
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from houston_console.app.keys import CHAINS, KEYS, Key
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.toml_file import read

_SHOWN = {
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}
_NAMED = {key.value for key in Keys}
_CHARACTERS = {
    KEY_NAME_REPLACEMENTS.get(name, name): character
    for character in string.punctuation
    for name in [re.sub("[ -]", "_", unicodedata.name(character)).lower()]
}
"""Characters by the names that Textual gives their keys."""


def own_file() -> Path:
    """Where a person keeps their keys."""
    return user_config_path("houston") / "keys.toml"


def own_keys(path: Path) -> tuple[Key, ...]:
    """The registry with the keys of a person's file; as it is when there is none.

    Raises HoustonError for a file that cannot be read, names what does not exist, or gives one key
    two meanings in one place.
    """
    if not path.exists():
        return KEYS
    wanted = _wanted(path)
    known = {(one.area, one.name) for one in KEYS}
    for area, name in wanted:
        if (area, name) not in known:
            raise _wrong(path, f"names `[{area}] {name}`, which is no action of the console")
    changed = tuple(_with(one, wanted.get((one.area, one.name)), path) for one in KEYS)
    for key, one, other in clashes(changed):
        raise _wrong(path, f"leaves {key!r} with two meanings: {one.does}, and {other.does}")
    return changed


def _wanted(path: Path) -> dict[tuple[str, str], str]:
    """Keys by area and action."""
    found: dict[tuple[str, str], str] = {}
    for area, table in read(path).items():
        if not isinstance(table, Mapping):
            raise _wrong(path, f"has {area!r} outside a table")
        for name, keys in table.items():
            if not isinstance(keys, str):
                raise _wrong(path, f"gives `[{area}] {name}` something that is no text")
            found[area, name] = keys
    return found


def _with(one: Key, keys: str | None, path: Path) -> Key:
    if keys is None:
        return one
    names = [key.strip() for key in keys.split(",")]
    for name in names:
        if not _is_key(name):
            raise _wrong(path, f"gives `[{one.area}] {one.name}` the key {name!r}, which is none")
    shown = " ".join(_SHOWN.get(name) or _CHARACTERS.get(name, name) for name in names)
    return replace(one, keys=",".join(names), shown=shown)


def _is_key(name: str) -> bool:
    *held, last = name.split("+")
    known = last in _NAMED or last in _CHARACTERS or (len(last) == 1 and last.isalnum())
    return known and set(held) <= {"ctrl", "shift", "alt"}


def clashes(keys: Iterable[Key]) -> list[tuple[str, Key, Key]]:
    """Keys that mean two things where they can be pressed. The keys of lists are there to be
    taken over by an area's own."""
    found: list[tuple[str, Key, Key]] = []
    every = list(keys)
    for chain in CHAINS:
        taken: dict[str, Key] = {}
        for one in (one for area in chain for one in every if one.area == area):
            for key in one.keys.split(","):
                other = taken.setdefault(key, one)
                if other is not one and (key, other, one) not in found:
                    found.append((key, other, one))
    return found


def as_toml(keys: Iterable[Key]) -> str:
    """Every action with its keys, as a file to begin with."""
    lines = ["# Keys of `houston console`. What is left out keeps its key.", ""]
    area = ""
    for one in sorted(keys, key=lambda one: one.area):
        if one.area != area:
            area = one.area
            lines += ["", f"[{area}]"]
        lines.append(f'{one.name} = "{one.keys}"  # {one.does}')
    return "\n".join(lines) + "\n"


def _wrong(path: Path, what: str) -> HoustonError:
    return HoustonError(
        f"{path} {what}.",
        "The console was not opened.",
        "houston console --keymap prints every action with its keys",
        ExitCode.CONFIGURATION,
    )
