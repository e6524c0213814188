"""Marks and frames in ASCII, for a terminal that does not take UTF-8.

A filter over every line that is drawn: each character becomes one or two of ASCII, in as many
cells. Whether a terminal takes UTF-8 is what it says itself (`app.terminal_query`), else its
locale.
"""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from houston_console.widgets.color_themes import QuantizedColors
from houston_shared.config_sections import ColorDepth

_MARKS = {
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺⎯", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻▎▏▕▌▐", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬", "+"),
    **dict.fromkeys("●◉•∙·", "*"),
    **dict.fromkeys("○◌◯◔◷⧖", "o"),
    **dict.fromkeys("✓✔", "v"),
    **dict.fromkeys("✗✘×⊘∅", "x"),
    **dict.fromkeys("▸▶►»›→↳⇒", ">"),
    **dict.fromkeys("▾▼▿↓", "v"),
    **dict.fromkeys("◂◀◄«‹←↲", "<"),
    **dict.fromkeys("▴▲△↑", "^"),
    **dict.fromkeys("█▇▆▅▄▃▂▁■▓▒░▉▊▋", "#"),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("‘’‚", "'"),
    **dict.fromkeys("–—−‒", "-"),
    **{"…": ".", "★": "*", "☆": "*", "⚑": "P", "⚐": "p", "✎": "/", "¶": "P", "±": "~"},
    **{"‖": "=", "⏸": "=", "≤": "<", "≥": ">", "≠": "#", "°": "o", "µ": "u", "ø": "o", "⌫": "<"},
    **{"✉": "m", "☞": ">", "✂": "%", "◆": "*", "↻": "r"},
}


def takes_utf8(environment: Mapping[str, str]) -> bool:
    """Whether the locale is one of UTF-8: the first of LC_ALL, LC_CTYPE and LANG that is set."""
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    return "utf8" in locale.lower().replace("-", "")


@lru_cache(8192)
def ascii_text(text: str) -> str:
    """`text` in ASCII, in as many cells: letters without accents; what has no likeness is `?`."""
    return text if text.isascii() else "".join(map(_ascii_character, text))


def _ascii_character(character: str) -> str:
    if character.isascii():
        return character
    cells = cell_len(character)
    if character in _MARKS:
        return (_MARKS[character] * cells)[:cells]
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if "\u2800" < character <= "\u28ff":  # braille, as charts are drawn
        plain = ":"
    return plain if len(plain) == cells and plain.isprintable() else "?" * cells


def terminal_filters(depth: ColorDepth, ascii_only: bool) -> list[LineFilter]:
    """What brings a drawn line into the colours and the characters of a terminal."""
    colors = [] if depth == "truecolor" else [QuantizedColors(depth)]
    return [*colors, *([AsciiMarks()] if ascii_only else [])]


class AsciiMarks(LineFilter):
    """Brings every character of a line into ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in as many cells."""
        return [segment._replace(text=ascii_text(segment.text)) for segment in segments]
