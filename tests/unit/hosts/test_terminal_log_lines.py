"""Bytes of a terminal as a person would see them."""

import pytest

from houston_daemon.hosts.terminals.terminal_log import render_lines

SCREENS: dict[str, tuple[bytes, list[str]]] = {
    "nothing": (b"", []),
    "lines": (b"a\r\nb\r\n", ["a", "b"]),
    "no line feed at the end": (b"a\r\nb", ["a", "b"]),
    "empty lines in between stay": (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
    "progress bar": (b"10%\r20%\r100%\r\n", ["100%"]),
    "a shorter text leaves the rest": (b"abcdef\rxy\r\n", ["xycdef"]),
    "erase to the end": (b"abcdef\rxy\x1b[K\r\n", ["xy"]),
    "erase the line": (b"abcdef\x1b[2K\rxy\r\n", ["xy"]),
    "erase to the start": (b"abcdef\x1b[3D\x1b[1Kx\r\n", ["   xef"]),
    "backspace": (b"abc\b\bX\r\n", ["aXc"]),
    "a password prompt": (b"abc\b \b\b \b\r\n", ["a  "]),
    "colours": (b"\x1b[1;31mred\x1b[0m text\r\n", ["red text"]),
    "colours with colons": (b"\x1b[38:2:1:2:3mred\x1b[m\r\n", ["red"]),
    "title with BEL": (b"\x1b]0;a title\x07text\r\n", ["text"]),
    "link with ST": (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\r\n", ["link"]),
    "device control": (b"\x1bPq#0;2;0\x1b\\text\r\n", ["text"]),
    "character set": (b"\x1b(Btext\r\n", ["text"]),
    "cursor keys mode": (b"\x1b=\x1b[?1h\x1b[?2004htext\r\n", ["text"]),
    "two bars redrawn": (b"a 1\r\nb 1\r\n\x1b[2Aa 2\r\nb 2\r\n", ["a 2", "b 2"]),
    "column": (b"abc\x1b[10Gx\r\n", ["abc      x"]),
    "cursor right": (b"a\x1b[3Cb\r\n", ["a   b"]),
    "tabs stay": (b"a\tb\r\n", ["a\tb"]),
    "bell and nul vanish": (b"a\x07\x00b\r\n", ["ab"]),
    "invalid UTF-8": (b"a\xff\xfeb\xc3\r\n", ["a\ufffd\ufffdb\ufffd"]),
    "UTF-8": ("Grüße 世界 🚀\r\n".encode(), ["Grüße 世界 🚀"]),
    "an escape cut at the end": (b"a\r\nb\x1b[3", ["a", "b"]),
    "a title cut at the end": (b"a\x1b]0;tit", ["a"]),
    "a title that never ends keeps what follows": (
        b"\x1b]0;x" + b"y" * 6000 + b"\r\nz\r\n",
        ["]0;x" + "y" * 6000, "z"],
    ),
    "huge counts do no harm": (b"a\x1b[999999999Cb\x1b[999999999Ac\r\n", None),
    "counts of thousands of digits": (b"a\x1b[" + b"9" * 5000 + b"Cb\r\n", None),
    "a move to the right on every line": (b"\x1b[99999999Cx\r\n" * 8, None),
    "not a number": (b"\x1b[;;5Ka\r\n", ["a"]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows(name: str) -> None:
    data, expected = SCREENS[name]
    lines = render_lines(data)
    if expected is None:
        assert len(lines) < 10 and sum(map(len, lines)) < 500_000
    else:
        assert lines == expected


def test_every_byte_renders_to_something() -> None:
    for first in range(256):
        for second in range(256):
            for line in render_lines(bytes([0x1B, first, second, 0x41])):
                assert "\x1b" not in line
                assert line.encode().decode() == line


def test_a_long_row_is_overwritten_in_its_place() -> None:
    """Each piece copied the whole row once: minutes for what a command prints in a second."""
    assert render_lines(b"x" * 500_000 + b"\rY" * 250_000) == ["Y" + "x" * 499_999]
    assert render_lines(b"a\t" * 500_000 + b"\b" * 500_000 + b"z")[0][-1] != "z"
    wrapped = render_lines(b"x" * 5_000 + b"\x1b[1K" * 100_000 + b"y")[0]
    assert wrapped == "x" * 4_000 + " " * 1_000 + "y"
