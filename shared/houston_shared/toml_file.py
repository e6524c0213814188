"""Read a TOML file into a typed struct; an error names file, key and what is allowed."""

from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from houston_shared.errors import ConfigurationError

T = TypeVar("T", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything that is read from TOML: unknown keys are errors."""


def read(path: Path) -> dict[str, Any]:
    """The file as plain tables. Raises ConfigurationError when it is missing or not TOML."""
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """What a person wrote into a file. Raises ConfigurationError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder, not a file.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.") from None
    except PermissionError:
        raise ConfigurationError(f"{path} may not be read by this user.") from None
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}.") from None


def parse(text: str, where: str) -> dict[str, Any]:
    """TOML text as plain tables; `where` names its origin in the ConfigurationError it raises."""
    import tomllib  # 2 ms that a home without a configuration does not pay

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigurationError(f"{where} is not valid TOML: {problem}.") from None


def convert(tables: dict[str, Any], kind: type[T], where: str) -> T:
    """Check `tables` against `kind`; `where` names their origin in errors."""
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as problem:
        raise ConfigurationError(_explain(str(problem), kind, where, tables)) from None


def _explain(problem: str, kind: type[msgspec.Struct], where: str, tables: dict[str, Any]) -> str:
    """msgspec's sentence, turned into file, key and what is allowed."""
    what, _, place = problem.partition(" - at `$")
    keys = [key for key in place.rstrip("`").replace("[...]", ".…").split(".") if key]
    struct = _struct_at(kind, keys)
    if "unknown field" in what or "missing required field" in what:
        name = what.rsplit("`", 2)[-2]
        dotted = ".".join([*keys, name])
        allowed = ", ".join(struct.__struct_fields__) if struct else "none"
        verb = "has an unknown key" if "unknown" in what else "lacks the key"
        return f"{where} {verb} `{dotted}`; allowed here: {allowed}."
    return f"{where}: `{'.'.join(keys)}`: {what[0].lower()}{what[1:]}{_got(tables, keys)}."


def _got(tables: dict[str, Any], keys: list[str]) -> str:
    value: Any = tables
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return ""
        value = value[key]
    return f"; got {value!r}"


def _struct_at(kind: Any, keys: list[str]) -> type[msgspec.Struct] | None:
    """The struct type that `keys` lead to from `kind`."""
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = get_type_hints(kind).get(key)
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        kind = next((a for a in get_args(kind) if _is_struct(a)), kind) if kind else None
    return kind if _is_struct(kind) else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
