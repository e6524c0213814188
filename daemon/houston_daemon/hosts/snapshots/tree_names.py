"""File names as a git tree can hold them, and back.

libgit2 refuses `.git` and what some file systems take for it, and names must be UTF-8 here; a
nested clone's folder or a name in another encoding is a file like others to a snapshot. Such a
name is stored under `%houston%` and its percent-encoding; every other name stays as it is.
"""

import os
import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SIGN = "%houston%"
_REFUSED = re.compile(r"(?:\.git|git~[0-9]+)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)


def to_tree(name: str) -> str:
    """The entry name for one part of a path."""
    ascii_only = name if name.isascii() else name.encode("ascii", "ignore").decode()
    if _REFUSED.fullmatch(ascii_only) or name.startswith(_SIGN) or not _is_utf8(name):
        return _SIGN + quote_from_bytes(os.fsencode(name), safe="").replace(".", "%2E")
    return name


def from_tree(name: str) -> str:
    """The file name for a tree entry; the reverse of `to_tree`."""
    if name.startswith(_SIGN):
        return os.fsdecode(unquote_to_bytes(name[len(_SIGN) :]))
    return name


def path_to_tree(path: str) -> str:
    """`to_tree` for every part of a path."""
    return "/".join(to_tree(part) for part in path.split("/"))


def path_from_tree(path: str) -> str:
    """The reverse of `path_to_tree`."""
    return "/".join(from_tree(part) for part in path.split("/"))


def shown(path: str) -> str:
    """A path that can be printed and sent; bytes that are not UTF-8 show as \\xNN."""
    return path if _is_utf8(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)
