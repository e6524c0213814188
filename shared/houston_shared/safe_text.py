"""Text that cannot harm a terminal: the only type that a widget or a printed line accepts.

There is no other way to a SafeText than its constructor, and that filters: control characters (C0
but newline and tab, DEL, C1), line and paragraph separators, bidirectional controls and everything
else that does not show become visible glyphs; lone surrogates become U+FFFD. Markup is never
interpreted: a SafeText is plain text, and who styles it does so with spans beside it.

What does not show and passes all the same, because people need it to write: the joiners U+200C and
U+200D (Indic and Arabic scripts, emoji), the two selectors of emoji presentation U+FE0E and U+FE0F,
and combining marks, as many in a row as writing needs. None of them can move a cursor, reorder a
line or begin a sequence. It does not know how wide a text is, nor where it is shown.
"""

import re
from typing import Final

_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Soft hyphen, fillers, bidi, separators, zero-width, music and shorthand controls, tags, and the
variation selectors that hide text in emoji."""
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_UNSAFE_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_UNSAFE_CELL = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")

_MARKS = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_TOO_MANY_MARKS = re.compile(f"({_MARKS}{{8}})({_MARKS}+)")
"""More marks on one letter than any script has; terminals were crashed by them."""


def _glyph(match: re.Match[str]) -> str:
    """What a character is shown as: C0 by its own picture, the others by their number."""
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        return f"<{code:02X}>"
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"<U+{code:04X}>"


def _filter(text: str) -> str:
    if text.isascii():
        return _UNSAFE_ASCII.sub(_glyph, text)
    return _TOO_MANY_MARKS.sub(_count_marks, _UNSAFE.sub(_glyph, text))


def _count_marks(match: re.Match[str]) -> str:
    return f"{match.group(1)}<{len(match.group(2))} more marks>"


class SafeText(str):
    """A string without anything that a terminal would obey, whatever it was made of."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> "SafeText":
        """Filter; clean text stays as it is, and what is a SafeText already is not looked at."""
        if type(text) is SafeText:
            return text
        return str.__new__(cls, _filter(text))

    def __add__(self, text: str) -> "SafeText":
        """Join; what is added is filtered if it was not."""
        return str.__new__(SafeText, str.__add__(self, SafeText(text)))


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8; a lone surrogate of UTF-16 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def safe(text: str | bytes) -> SafeText:
    """Make any text safe to show; bytes are read as UTF-8 with U+FFFD for what is not.

    Clean text comes back unchanged. Newline and tab stay.
    """
    return SafeText(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def safe_line(text: str | bytes) -> SafeText:
    """Make text safe and put it on one line: newlines and tabs become glyphs or spaces."""
    clean = safe(text)
    if "\n" not in clean and "\t" not in clean:
        return clean
    return SafeText(clean.replace("\n", "\u23ce").replace("\t", " "))


def safe_cells(text: str) -> SafeText:
    """One line made safe character by character, for an editor whose cursor counts characters.

    C0 and DEL become their pictures, every other character of the kind U+FFFD; tabs stay.
    """
    return str.__new__(SafeText, _UNSAFE_CELL.sub(_single_glyph, text))


def _single_glyph(match: re.Match[str]) -> str:
    character = match.group()
    glyph = character if character == "\t" else _glyph(match)
    return glyph if len(glyph) == 1 else "\ufffd"
