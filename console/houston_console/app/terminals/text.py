"""The end of a terminal's bytes as lines with tones: what a person would see at its bottom.

Knows carriage return, backspace, tab, erase in line and colours (ECMA-48 §8.3.117); every other
control sequence is dropped, so nothing that a program printed reaches the annotator's terminal.
It is no emulator: a program that paints whole screens is shown by tmux instead.
"""

import re
from collections.abc import Iterator

from houston_console.app.drawing.lines import Line, Span, Tone
from houston_shared.safe_text import safe

_PIECES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, the daemon's marks
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x1f\x7f]"
    r"|[^\x00-\x1f\x7f]+"
)
_PROMPT = "\x1b]7771;p;"
"""A prompt begins on a line of its own (written by the shell of every terminal)."""
_LEADS_TO_PROMPT = re.compile(rb"(?:\x1b\]7771;[^\x07\x1b]*\x07)*?\x1b\]7771;p;[^\x07\x1b]*\x07")
"""Marks up to the prompt of a command; before it may stand the end of the one before."""
MARK = _PROMPT.encode()
"""The same in bytes."""
_STRINGS = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?")
"""The sequences of `_PIECES` that may hold line feeds: none of these is a line's end."""
_COLOURS: dict[str, Tone] = {
    "31": "error",
    "91": "error",
    "32": "success",
    "92": "success",
    "33": "warning",
    "93": "warning",
    "34": "tool",
    "94": "tool",
    "36": "tool",
    "96": "tool",
    "35": "key",
    "95": "key",
    "90": "faint",
}
_MANY = re.compile(
    r"(?<!\d)38[;:](?:5[;:](\d{1,3})|2[;:]+(\d{1,3})[;:](\d{1,3})[;:](\d{1,3}))"
    r"|(?<!\d)48[;:](?:5[;:]\d{1,3}|2[;:]+\d{1,3}[;:]\d{1,3}[;:]\d{1,3})"
)
"""A colour out of 256, or by its red, green and blue; a ground is not shown."""
_TAB = 8
_WIDEST = 1_000
"""Columns kept of one line."""
_MOVED = 300
"""Columns that a sequence may move to: a row of spaces for every few bytes costs seconds."""

Cell = tuple[str, Tone]


def tail_lines(data: bytes) -> list[Line]:
    """`data` as lines; a last line without its line feed counts, empty ones at the end do not."""
    found = all_lines(data)
    while found and not found[-1]:
        found.pop()
    return found


def all_lines(data: bytes) -> list[Line]:
    """`data` as lines; what follows the last line feed counts when there is something."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    screen = _Rows()
    for piece in _PIECES.findall(text):
        screen.feed(piece)
    if not screen.rows[-1]:
        screen.rows.pop()
    return [_line(row) for row in screen.rows]


def count_lines(data: bytes) -> int:
    """As many lines as `all_lines` makes of `data`, told far quicker."""
    above, unended = _measure(data)
    return above + unended


def line_of(data: bytes, byte: int) -> int:
    """The number, from 0, of the line that `data[byte:]` goes on, or begins with a prompt."""
    prompt = _LEADS_TO_PROMPT.match(data, byte)
    return _measure(data[: prompt.end() if prompt else byte])[0]


def _measure(data: bytes) -> tuple[int, bool]:
    """Lines that have ended, and whether the one behind them holds anything.

    Only the text between the last line feed and a prompt, or the end, is drawn: a prompt ends a
    line that holds something, and marks and titles before it are nothing.
    """
    ended, row = 0, _Rows()
    for number, part in enumerate(_between_prompts(data.replace(b"\r\n", b"\n"))):
        if number and row.rows[-1]:
            ended, row = ended + 1, _Rows()
        text = _STRINGS.sub(b"\0", part)
        feeds = text.count(b"\n")
        if feeds:
            ended, row = ended + feeds, _Rows()
        for piece in _PIECES.findall(text[text.rfind(b"\n") + 1 :].decode("utf-8", "replace")):
            row.feed(piece)
    return ended, bool(row.rows[-1])


def _between_prompts(data: bytes) -> Iterator[bytes]:
    start = 0
    for string in _STRINGS.finditer(data) if MARK in data else ():
        if string.group().startswith(MARK):
            yield data[start : string.start()]
            start = string.end()
    yield data[start:]


class _Rows:
    """Rows written so far and the cursor in the last of them."""

    def __init__(self) -> None:
        self.rows: list[list[Cell]] = [[]]
        self.column = 0
        self.tone: Tone = "text"
        self._colour: Tone = "text"
        self._weight: Tone = "text"

    def feed(self, piece: str) -> None:
        """Text, one control character, or one control sequence."""
        if piece == "\n":
            self.rows.append([])
            self.column = 0
        elif piece == "\r":
            self.column = 0
        elif piece == "\b":
            self.column = max(0, self.column - 1)
        elif piece == "\t":
            self._write(" " * (_TAB - self.column % _TAB))
        elif piece.startswith(_PROMPT) and self.rows[-1]:
            self.feed("\n")
        elif piece.startswith("\x1b["):
            self._control(piece)
        elif piece >= " " and not piece.startswith("\x7f"):
            self._write(piece)

    def _write(self, text: str) -> None:
        row = self.rows[-1]
        row.extend([(" ", "text")] * (self.column - len(row)))
        end = min(self.column + len(text), _WIDEST)
        row[self.column : end] = [(c, self.tone) for c in text[: end - self.column]]
        self.column = end

    def _control(self, piece: str) -> None:
        parameters, final = piece[2:-1], piece[-1]
        if final == "m":
            self._dress(parameters)
        elif final == "K" and parameters in ("", "0"):
            del self.rows[-1][self.column :]
        elif final == "K":
            self.rows[-1][:] = [] if parameters == "2" else [(" ", "text")] * self.column
        elif final == "G":
            self.column = min(_MOVED, max(0, int(parameters[:9] or 1) - 1)) if _number(piece) else 0

    def _dress(self, parameters: str) -> None:
        """Select graphic rendition: colours and weight; a colour says more than a weight."""
        for many in _MANY.finditer(parameters):
            if many.group().startswith("38"):
                self._colour = _nearest(*many.groups())
        for code in _MANY.sub("", parameters).split(";"):
            if code in ("", "0"):
                if code or not parameters:
                    self._colour = self._weight = "text"
            elif code in ("1", "2", "22"):
                self._weight = {"1": "strong", "2": "dim"}.get(code, "text")  # type: ignore[assignment]
            elif code == "39":
                self._colour = "text"
            else:
                self._colour = _COLOURS.get(code, self._colour)
        self.tone = self._weight if self._colour == "text" else self._colour


def _nearest(index: str | None, red: str | None, green: str | None, blue: str | None) -> Tone:
    """The tone for a colour out of 256, or of red, green and blue (xterm's cube and greys)."""
    if index is not None:
        number = min(255, int(index))
        if number < 16:
            base = number + 30 if number < 8 else number + 82
            return _COLOURS.get(str(base), "text")
        if number >= 232:
            return "faint" if number < 244 else "dim" if number < 250 else "text"
        number -= 16
        parts = [number // 36 * 51, number // 6 % 6 * 51, number % 6 * 51]
    else:
        parts = [min(255, int(one or 0)) for one in (red, green, blue)]
    least, most = min(parts), max(parts)
    if most - least < 40:
        return "faint" if most < 130 else "dim" if most < 200 else "text"
    bright = [one > (least + most) / 2 for one in parts]
    names: dict[tuple[bool, ...], Tone] = {
        (True, False, False): "error",
        (False, True, False): "success",
        (True, True, False): "warning",
        (True, False, True): "key",
    }
    return names.get(tuple(bright), "tool")


def _number(piece: str) -> bool:
    return piece[2:-1].isdigit() or not piece[2:-1]


def _line(row: list[Cell]) -> Line:
    spans: list[Span] = []
    start = 0
    for index in range(1, len(row) + 1):
        if index == len(row) or row[index][1] != row[start][1]:
            text = "".join(character for character, _ in row[start:index])
            spans.append(Span(safe(text), row[start][1]))
            start = index
    return tuple(spans)
