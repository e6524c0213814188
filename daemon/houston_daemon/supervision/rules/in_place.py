"""Which files `sed` and `perl` change in place: what is left of their words behind the options and
the script.
"""

from collections.abc import Sequence
from typing import NamedTuple


class _Tool(NamedTuple):
    """Letters of one program's options."""

    script: str
    """Their value is the script, or a file with it: attached, or the next word."""
    value: str
    """Their value is something else: attached, or the next word."""
    attached: str
    """What follows in the same word is their value."""


_TOOLS = {"sed": _Tool("ef", "l", "i"), "perl": _Tool("eE", "", "iMmIFCDdxV")}
_LONG = frozenset({"--expression", "--file"})


def changed(words: Sequence[str]) -> list[str] | None:
    """Paths as they are written; None where the words change nothing in place.

    words: a program and its arguments.
    """
    tool = _TOOLS.get(words[0].rpartition("/")[2]) if words else None
    if tool is None:
        return None
    place = scripted = False
    plain: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            plain += rest
        elif word.startswith("--"):
            name, equals, _ = word.partition("=")
            place |= name == "--in-place"
            if name in _LONG:
                scripted = True
                _ = equals or next(rest, "")
        elif word.startswith("-") and word != "-":
            decides, value = _option(word[1:], tool)
            place |= decides == "i"
            scripted |= bool(decides) and decides in tool.script
            _ = value or decides not in _next(tool) or next(rest, "")
        elif word:  # an empty one is the suffix that BSD's sed wants
            plain.append(word)
    return (plain if scripted else plain[1:]) if place else None


def _option(letters: str, tool: _Tool) -> tuple[str, str]:
    """The letter of a group that takes a value, and what of the value is attached; empty where
    there is none.
    """
    takes = {*tool.script, *tool.value, *tool.attached}
    for at, letter in enumerate(letters, 1):
        if letter in takes:
            return letter, letters[at:]
    return "", ""


def _next(tool: _Tool) -> set[str]:
    """Letters whose value may be the next word."""
    return {*tool.script, *tool.value}
