"""Read a TOML file into a typed struct; an error names file, key and what is allowed.

The base of every struct that is read from TOML refuses unknown keys. It knows neither
configurations nor tasks.
"""

from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from houston_shared.errors import ConfigurationError, ExitCode, close_matches, did_you_mean

T = TypeVar("T", bound=msgspec.Struct)
_ANY_ENTRY = "…"
"""In a path of msgspec: some entry of a table."""
_QUOTED_CHARACTERS = 200
"""Characters of a wrong value that an error repeats."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything that is read from TOML: unknown keys are errors."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file as plain tables. Raises ConfigurationError when it is missing or not TOML."""
    return parse_toml(read_text_file(path), str(path))


def _meant_task(path: Path) -> str:
    """What to do where a task file is not there: a name near it, else how one is made."""
    if path.name != "task.toml":
        return ""
    folders = [file.parent.name for file in path.parent.parent.glob("*/task.toml")]
    near = close_matches(path.parent.name, folders, 1)
    return (
        f"did you mean {path.parent.parent / near[0] / path.name}?"
        if near
        else "houston task new NAME"
    )


def read_text_file(path: Path) -> str:
    """What a person wrote into a file. Raises ConfigurationError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no file {path}.", next=_meant_task(path), code=ExitCode.NOT_FOUND
        ) from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder, not a file.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.") from None
    except PermissionError:
        raise ConfigurationError(f"{path} may not be read by this user.") from None
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}.") from None
    except ValueError:  # a NUL in it
        raise ConfigurationError(f"{str(path)!r} cannot be the path of a file.") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """TOML text as plain tables; `where` names its origin in the ConfigurationError it raises."""
    import tomllib  # 2 ms that a home without a configuration does not pay

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        end = f"at line {text.count(chr(10)) + 1}, where the file ends"
        cause = str(problem).replace("at end of document", end)
        raise ConfigurationError(f"{where} is not valid TOML: {cause}.") from None


def find_nul(value: Any, key: str = "") -> str:
    """The first key, dotted, at which a text with a NUL stands; empty where there is none.

    No path, argument or variable of a process can hold one.
    """
    if isinstance(value, str):
        return key if "\0" in value else ""
    if isinstance(value, dict):
        entries = [(f"{key}.{name}".strip("."), item) for name, item in value.items()]
        if bad := next((name for name, _ in entries if "\0" in name), ""):
            return bad.replace("\0", "\\0")
    else:
        entries = [(key, item) for item in value] if isinstance(value, list) else []
    return next((place for name, item in entries if (place := find_nul(item, name))), "")


def convert_toml(tables: dict[str, Any], kind: type[T], where: str) -> T:
    """Check `tables` against `kind`; `where` names their origin in errors."""
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as problem:
        raise _explain_error(str(problem), kind, where, tables) from None


def _explain_error(
    problem: str, kind: type[msgspec.Struct], where: str, tables: dict[str, Any]
) -> ConfigurationError:
    """msgspec's sentence, turned into file, key, what is allowed and what was meant."""
    problem_text, _, place = problem.partition(" - at `")
    of_key, _, place = place.rpartition("$")
    path = place.rstrip("`").replace("[...]", f".{_ANY_ENTRY}")
    keys, value, at = _follow_path([key for key in path.split(".") if key], kind, tables)
    dotted = ".".join(keys)
    if of_key and get_origin(at) is dict and isinstance(value, dict):
        allowed = get_args(at)[0]
        bad = next((key for key in value if not _matches_type(key, allowed)), "")
        return ConfigurationError(
            f"{where}: `{dotted}` cannot have a key {_quote_value(bad)}:"
            f" {problem_text[0].lower()}{problem_text[1:]}."
        )
    if "unknown field" in problem_text or "missing required field" in problem_text:
        name = problem_text.rsplit("`", 2)[-2]
        struct = next((member for member in (at, *get_args(at)) if _is_struct(member)), None)
        fields = struct.__struct_fields__ if struct else ()
        unknown = "unknown" in problem_text
        return ConfigurationError(
            f"{where} {'has an unknown key' if unknown else 'lacks the key'}"
            f" `{'.'.join([*keys, name])}`; allowed here: {', '.join(fields) or 'none'}.",
            next=did_you_mean(name, fields) if unknown else "",
        )
    if words := _allowed_words(at):
        return ConfigurationError(
            f"{where}: `{dotted}` is {_quote_value(value)}; allowed: {', '.join(words)}.",
            next=did_you_mean(str(value), words),
        )
    value_text = "" if value is msgspec.UNSET else f"; got {_quote_value(value)}"
    return ConfigurationError(
        f"{where}: `{dotted}`: {problem_text[0].lower()}{problem_text[1:]}{value_text}."
    )


def _quote_value(value: Any) -> str:
    if isinstance(value, dict):  # what stands in it may be nobody's to read
        return "a table"
    text = repr(value)
    return text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}…"


def _follow_path(path: list[str], kind: Any, value: Any) -> tuple[list[str], Any, Any]:
    """Where msgspec's path leads: the keys as written, the value there (or UNSET), its type."""
    keys: list[str] = []
    for step in path:
        key, below = step, _type_below(kind, step)
        if step == _ANY_ENTRY and isinstance(value, dict):  # which entry, msgspec does not say
            bad = (name for name, item in value.items() if not _matches_type(item, below))
            key = next(bad, step)
        keys.append("…" if key == _ANY_ENTRY else key)
        value = value.get(key, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
        kind = below
    return keys, value, kind


def _type_below(kind: Any, key: str) -> Any:
    """The type under a key of a struct, also one in a union, or of the entries of a table."""
    for member in (kind, *get_args(kind)):
        if _is_struct(member) and key in member.__struct_fields__:
            return get_type_hints(member, include_extras=True)[key]
    return get_args(kind)[1] if get_origin(kind) is dict else None


def _matches_type(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _allowed_words(kind: Any) -> tuple[str, ...]:
    """What a key may say where its type names every word; empty elsewhere."""
    words = get_args(kind) if get_origin(kind) is Literal else ()
    for member in get_args(kind) if not words else ():
        words += get_args(member) if get_origin(member) is Literal else ()
    return tuple(map(str, words))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
