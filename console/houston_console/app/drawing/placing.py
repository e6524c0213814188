"""What follows a character of which terminals disagree how wide it is begins where it belongs.

Skin tones, emoji by selector (a warning sign), keycaps, families and the vowels of Indian scripts
take more or fewer cells in one terminal, or one version of tmux, than in another: everything behind
them in the line, and the frame, would stand elsewhere. Each sign is written onto cells that were
emptied, and the cursor is set behind it; words of such scripts stay whole, and the cursor is set
behind the text they stand in. It knows nothing of what the text says or who wrote it.
"""

import re

from rich.cells import split_graphemes

_EMOJI = "\u200d\ufe0e\ufe0f\u20e3\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U0001fa70-\U0001faff"
"""Joiners, selectors, keycaps, flags, tones, young emoji."""
_SCRIPTS = "\u0900-\u0dff\u0f00-\u109f\u1100-\u11ff\u1780-\u17ff\u1a20-\u1cff\ua800-\uabff"
"""Scripts with vowels beside a letter, which some terminals give a cell of their own."""
_DISPUTED = re.compile(f"[{_EMOJI}{_SCRIPTS}]")
_SIGN, _LETTER = re.compile(f"[{_EMOJI}]"), re.compile(f"[{_SCRIPTS}]")
_SEQUENCE = re.compile(r"(\x1b\[[0-9;:?<=>$]*[A-Za-z])")
_PLACE = re.compile(r"\x1b\[([0-9]+);([0-9]+)H")


def placed(data: str) -> str:
    """`data`, as written to a terminal, with the cursor set behind every disputed character.

    Only behind a cursor position of its own line; all else stays byte for byte.
    """
    if data.isascii() or not _DISPUTED.search(data):
        return data
    row, column = 0, 0
    made: list[str] = []
    for part in _SEQUENCE.split(data):
        if part.startswith("\x1b"):
            place = _PLACE.fullmatch(part)
            if place:
                row, column = int(place[1]), int(place[2])
            elif not part.endswith(("m", "h", "l")):
                row = 0
            made.append(part)
            continue
        before, feed, after = part.rpartition("\n")
        if feed:
            made.append(before + feed)
            row, part = 0, after
        text, column = _text(part, row, column)
        made.append(text)
    return "".join(made)


def _text(text: str, row: int, column: int) -> tuple[str, int]:
    """Text that begins at a place (from 1; row 0: nobody knows), and the column behind it."""
    if not row or not text:
        return text, column
    if text.isascii():
        return text, column + len(text)
    spans, cells = split_graphemes(text)
    if not _DISPUTED.search(text):
        return text, column + cells
    made: list[str] = []
    for start, end, wide in spans:
        one = text[start:end]
        if wide and _SIGN.search(one):
            here = f"\x1b[{row};{column}H"
            made.append(f"{here}{' ' * wide}{here}{one}\x1b[{row};{column + wide}H")
        else:
            made.append(one)
        column += wide
    if _LETTER.search(text):
        made.append(f"\x1b[{row};{column}H")
    return "".join(made), column
