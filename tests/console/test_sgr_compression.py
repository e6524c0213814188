"""What is spared on the way to the terminal is not missed: the same cells in fewer bytes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_console.app.terminal_driver import (
    PLAIN_STYLE,
    SgrStyle,
    compress_sgr,
    style_after_reset,
)

_PIECE = re.compile(r"\x1b\[([0-9;]*)m|\x1b\[([0-9]+);([0-9]+)H|(.)", re.S)
SEEN_ON_BLANKS = {"4", "7", "9"}


def drawn(data: str) -> tuple[dict[tuple[int, int], tuple[str, SgrStyle]], SgrStyle]:
    """The cells that `data` leaves, and the style it ends with. A terminal, as simple as can be."""
    cells: dict[tuple[int, int], tuple[str, SgrStyle]] = {}
    row, column, codes = 1, 1, ""
    for colours, line, place, character in _PIECE.findall(data):
        if character in ("\r", "\n"):
            row, column = row + (character == "\n"), 1
        elif character:
            now = style_after_reset(codes)
            if character == " " and not now.attributes & SEEN_ON_BLANKS:
                now = SgrStyle(background=now.background)
            cells[row, column] = character, now
            column += 1
        elif line:
            row, column = int(line), int(place)
        else:
            codes = f"{codes};{colours}" if colours not in ("", "0") else ""
    return cells, style_after_reset(codes)


CASES = {
    "alike side by side": "\x1b[1;38;2;1;2;3ma\x1b[0m\x1b[1;38;2;1;2;3mb\x1b[0m",
    "another colour": "\x1b[38;2;1;2;3;48;2;9;9;9ma\x1b[0m\x1b[38;2;4;5;6;48;2;9;9;9mb\x1b[0m",
    "bold ends": "\x1b[1;31ma\x1b[0m\x1b[31mb\x1b[0m",
    "blanks between": "\x1b[31;44ma\x1b[0m\x1b[32;44m  \x1b[0m\x1b[31;44mb\x1b[0m",
    "blanks that are underlined": "\x1b[31ma\x1b[0m\x1b[4;31m  \x1b[0m",
    "blanks in reverse": "\x1b[7;31m \x1b[0m\x1b[31m \x1b[0m",
    "another line": "\x1b[2;3H\x1b[31ma\x1b[0m\r\n\x1b[3;3H\x1b[31mb\x1b[0m",
    "no reset": "\x1b[31ma\x1b[1mb\x1b[0m",
    "nothing": "",
    "no colours": "abc",
}


@pytest.mark.parametrize("name", CASES)
def test_the_cells_are_the_same(name: str) -> None:
    data = CASES[name]
    output = compress_sgr(data)
    assert drawn(output) == drawn(data)
    assert drawn(output)[1] == PLAIN_STYLE
    assert len(output) <= len(data)


def test_colours_are_said_once() -> None:
    row = "\x1b[38;2;1;2;3;48;2;9;9;9mword\x1b[0m\x1b[38;2;7;7;7;48;2;9;9;9m  \x1b[0m" * 3
    assert compress_sgr(row) == "\x1b[38;2;1;2;3;48;2;9;9;9m" + "word  " * 3 + "\x1b[0m"


CODES = st.sampled_from(
    ["1", "2", "4", "7", "31", "94", "44", "101", "38;5;9", "48;2;1;2;3", "38;2;4;5;6"]
)
PIECE = st.one_of(
    st.tuples(st.lists(CODES, max_size=4), st.sampled_from(["a", " ", "  b", "中"])).map(
        lambda both: f"\x1b[{';'.join(both[0])}m{both[1]}\x1b[0m" if both[0] else both[1]
    ),
    st.sampled_from(["\x1b[2;5H", "\r\n", "\x1b[H"[:0]]),
)


@given(st.lists(PIECE, max_size=12))
def test_whatever_textual_writes_looks_the_same(pieces: list[str]) -> None:
    data = "".join(pieces)
    assert drawn(compress_sgr(data)) == drawn(data)
