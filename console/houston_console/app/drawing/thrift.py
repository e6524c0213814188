"""Says colours to the terminal only where they change: most of what Textual writes says them again.

Textual ends every piece of text with a reset and begins the next with all its attributes, also
where both are alike: four bytes of five. `thrifty` writes what differs. Blanks take whatever
foreground there is. What is seen is the same; the text and all other sequences stay as they are.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER = re.compile(r"\x1b\[[0-9;:?<=>$]*[A-Za-ln-z]|[\r\n]")
"""What neither is text nor changes colours."""
_ON_BLANKS = frozenset({"4", "7", "8", "9", "21", "53"})
"""Attributes that are seen on a blank: underlined, reverse, concealed, struck, overlined."""
RESET = "\x1b[0m"


class Style(NamedTuple):
    """How text is drawn; empty strings are the terminal's own colours."""

    attributes: frozenset[str] = frozenset()
    ground: str = ""
    behind: str = ""


PLAIN = Style()


@lru_cache(4096)
def style(codes: str) -> Style:
    """The style that a reset and these codes make."""
    attributes: set[str] = set()
    ground, behind = "", ""
    rest = codes.split(";") if codes else []
    while rest:
        code = rest.pop(0)
        if code in ("38", "48", "58"):
            more = 4 if rest[:1] == ["2"] else 2
            code, rest = ";".join((code, *rest[:more])), rest[more:]
        if re.match(r"38;|3[0-79]$|9[0-7]$", code):
            ground = "" if code == "39" else code
        elif re.match(r"48;|4[0-79]$|10[0-7]$", code):
            behind = "" if code == "49" else code
        elif code in ("0", ""):
            attributes, ground, behind = set(), "", ""
        else:
            attributes.add(code)
    return Style(frozenset(attributes), ground, behind)


@lru_cache(16_384)
def change(have: Style, want: Style) -> str:
    """The shortest of the plain ways from one style to another."""
    if have == want:
        return ""
    if want == PLAIN:
        return RESET
    if not have.attributes <= want.attributes:
        codes = ["0", *sorted(want.attributes), want.ground, want.behind]
    else:
        codes = sorted(want.attributes - have.attributes)
        if want.ground != have.ground:
            codes.append(want.ground or "39")
        if want.behind != have.behind:
            codes.append(want.behind or "49")
    return f"\x1b[{';'.join(code for code in codes if code)}m"


def thrifty(data: str) -> str:
    """`data`, as written to a terminal whose style is plain, with the same effect in fewer bytes.

    It leaves the terminal plain, whatever `data` does.
    """
    parts = _COLOURS.split(data)
    if len(parts) < 3:
        return data
    have = want = PLAIN
    made: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            want = style(part) if want == PLAIN or part in ("", "0") else _more(want, part)
        elif part:
            needed = _needed(part, have, want)
            made.append(change(have, needed))
            made.append(part)
            have = needed
    return "".join(made) + change(have, PLAIN)


def _more(before: Style, codes: str) -> Style:
    """Codes that come without a reset."""
    there = ";".join(code for code in (*before.attributes, before.ground, before.behind) if code)
    return style(f"{there};{codes}")


def _needed(part: str, have: Style, want: Style) -> Style:
    """What a piece of text needs of the style that is wanted for it."""
    text = _OTHER.sub("", part)
    if not text:
        return have
    if text.isspace() and not (have.attributes | want.attributes) & _ON_BLANKS:
        return Style(have.attributes, have.ground, want.behind)
    return want
