"""What a terminal shows of the bytes that were printed to it: an emulator of tmux's screen.

Text wraps at the width that terminals of rollouts have; the cursor moves, lines are inserted,
scrolled and erased, and programs take the alternate screen, as tmux 3.3 does it. Unlike a terminal
it keeps all that was scrolled off (`ED 3` clears nothing), a prompt of ours begins on a line of
its own. It sends no answers. Cells are in `terminal_cells`, files are read by
`terminal_log_reader`.
"""

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from houston_console.panes.terminal_cells import (
    Cursor,
    PackedScreen,
    Pen,
    ScreenRow,
    character_cells,
    join_rows,
    pen_after,
)
from houston_console.widgets.styled_text import TextLine, Tone
from houston_shared.terminal_log_files import PANE_COLUMNS, PANE_ROWS

_TEXT_PIECES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, the daemon's marks
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x1f\x7f-\x9f]"
    r"|[^\x00-\x1f\x7f-\x9f]+"
)
_UNFINISHED = re.compile(r"\x1b(?:\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|\[[0-?]*[ -/]*|[ -/]*)\Z")
"""A sequence whose end is of the bytes that follow."""
_MAX_UNFINISHED = 4_096
"""Characters of it that are waited with; a string without an end is no reason to keep more."""
PROMPT_MARK = "\x1b]7771;p;"
"""A prompt begins on a line of its own (written by the shell of every terminal)."""
_LINE_DRAWING = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
"""DEC's special graphics, which frames are drawn with."""
_NARROW = re.compile(
    "[ -~\u00a0-\u00ac\u00ae-\u02ff\u0400-\u0482\u048a-\u052f"
    "\u2190-\u2319\u2500-\u25fc\u2800-\u28ff]+"
)
"""Text of which every character takes one cell: what bars and frames are drawn with, too."""
_TAB_STOP = 8
_MAX_LINE_ROWS = 7
"""Rows kept of one long line once they have left the screen: 1,120 columns."""


_PLAIN_MODES = frozenset({"wrap"})


@dataclass(slots=True)
class _Screen:
    """Rows and the cursor: of the main or of the alternate screen."""

    rows: list[ScreenRow]
    """What was scrolled off and then what is on the screen, as far as it was written."""
    top: int = 0
    """The row at the top of the screen."""
    y: int = 0
    """The row of the cursor, counted from the top."""
    x: int = 0
    """The column; as many as there are: the next character wraps."""
    keeps: bool = True
    """Whether what is scrolled off is kept; the alternate screen has no past."""


class TerminalEmulator:
    """A screen and all that was scrolled off it. Feed it bytes; ask for lines."""

    def __init__(self, before: PackedScreen | None = None, commands: int = 0) -> None:
        """before: goes on from there. commands: how many prompts of ours there were before."""
        self._main = _Screen([ScreenRow()])
        self._screen = self._main
        self._pen = Pen()
        self._modes = _PLAIN_MODES
        self._region = (0, PANE_ROWS - 1)
        """First and last row that scroll, counted from the top of the screen."""
        self._saved = (0, 0, self._pen)
        self._saved_for_alternate: Cursor | None = None
        self._last = ""
        self._unread = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.commands = commands
        if before is not None:
            self._unpack(before)

    # --- what it is asked ----------------------------------------------------------------------

    @property
    def ends_in_default_state(self) -> bool:
        """Whether later output can be drawn without this screen: default state, on an empty last
        line."""
        screen = self._screen
        return (
            screen is self._main
            and screen.top + screen.y == len(screen.rows) - 1
            and not screen.rows[-1].cells
            and self._region == (0, PANE_ROWS - 1)
            and not self._unread
            and not self._decoder.getstate()[0]
            and self._pen == Pen()
            and self._modes == _PLAIN_MODES
        )

    @property
    def _row_has_text(self) -> bool:
        """Whether there is more than blanks in the row of the cursor."""
        return any(not cell.isspace() for cell in self._row(self._screen.y).cells)

    @property
    def is_at_fresh_line(self) -> bool:
        """Whether nothing is in the line of the cursor."""
        at = self._screen.top + self._screen.y
        return not self._row_has_text and not (at and self._screen.rows[at - 1].wrapped)

    def packed(self) -> PackedScreen:
        """The screen as it is, without the lines that have left it for good."""
        main, screen, cut = self._main, self._screen, self._first_open_row()
        alternate = None if screen is main else tuple(row.packed() for row in screen.rows)
        return PackedScreen(
            rows=tuple(row.packed() for row in main.rows[cut:]),
            top=main.top - cut,
            main=(main.x, main.y),
            alternate=alternate,
            cursor=(screen.x, screen.y, self._pen),
            saved=self._saved,
            saved_for_alternate=self._saved_for_alternate,
            modes=self._modes,
            region=self._region,
            unread=self._unread,
            undecoded=self._decoder.getstate()[0],
            commands=self.commands,
        )

    def _unpack(self, kept: PackedScreen) -> None:
        rows = [row.unpacked() for row in kept.rows]
        x, y, self._pen = kept.cursor
        self._main = _Screen(rows, kept.top, x=kept.main[0], y=kept.main[1])
        self._screen = self._main
        if kept.alternate is not None:
            painted = [row.unpacked() for row in kept.alternate]
            self._screen = _Screen(painted, x=x, y=y, keeps=False)
        self._saved, self._saved_for_alternate = kept.saved, kept.saved_for_alternate
        self._modes, self._region, self._unread = kept.modes, kept.region, kept.unread
        self._decoder.setstate((kept.undecoded, 0))
        self.commands = kept.commands

    def closed_lines(self) -> int:
        """Lines that have left the screen for good: `packed` is without them."""
        return self._count_lines(self._main.rows[: self._first_open_row()])

    def lines(self) -> list[tuple[TextLine, int]]:
        """Every line, its wrapped rows joined, and the number of the command it is a prompt of."""
        rows = self._shown_rows()
        lines: list[tuple[TextLine, int]] = []
        start = 0
        for at, row in enumerate(rows):
            if not row.wrapped or at == len(rows) - 1:
                lines.append((join_rows(rows[start : at + 1]), rows[start].command))
                start = at + 1
        return lines

    def line_count(self) -> int:
        """How many lines there are."""
        return self._count_lines(self._shown_rows())

    def cursor_line(self) -> int:
        """The number of the line with the cursor."""
        screen = self._screen
        above = [] if screen is self._main else self._rows_to_last_text(self._main)
        return self._count_lines([*above, *screen.rows[: screen.top + screen.y + 1]]) - 1

    def _shown_rows(self) -> list[ScreenRow]:
        rows = self._rows_to_last_text(self._main)
        if self._screen is not self._main:
            rows = [*rows, *self._rows_to_last_text(self._screen)]
        return rows

    @staticmethod
    def _rows_to_last_text(screen: _Screen) -> list[ScreenRow]:
        """Without the blank ones below; an empty row that the cursor was moved to is none yet."""
        rows, above = screen.rows, screen.top + screen.y
        end = len(rows)
        while end > above and not rows[end - 1].cells:
            end -= 1
        return rows[:end]

    @staticmethod
    def _count_lines(rows: Sequence[ScreenRow]) -> int:
        return sum(not row.wrapped for row in rows) + (bool(rows) and rows[-1].wrapped)

    def _first_open_row(self) -> int:
        """Where the line begins that is at the top of the screen."""
        rows, at = self._main.rows, self._main.top
        while at > 0 and rows[at - 1].wrapped:
            at -= 1
        return at

    # --- what is printed -----------------------------------------------------------------------

    def feed(self, data: bytes, final: bool = False) -> None:
        """Print bytes, which may be cut anywhere. final: also print an unfinished sequence at the
        end."""
        text = self._unread + self._decoder.decode(data, final)
        self._unread = ""
        if not final and (rest := _UNFINISHED.search(text, max(0, len(text) - _MAX_UNFINISHED))):
            self._unread, text = rest.group(), text[: rest.start()]
        for piece in _TEXT_PIECES.findall(text):
            first = piece[0]
            if first >= " " and first != "\x7f" and not "\x80" <= first <= "\x9f":
                self._write(piece)
                continue
            if first == "\x1b":
                self._sequence(piece)
            else:
                self._control(first)
            self._last = ""

    def _control(self, character: str) -> None:
        screen = self._screen
        if character in "\n\v\f":
            self._feed_line()
        elif character == "\r":
            screen.x = 0
        elif character == "\b":
            if screen.x == 0 and screen.y > 0 and self._row(screen.y - 1).wrapped:
                screen.x, screen.y = PANE_COLUMNS - 1, screen.y - 1
            else:
                screen.x = max(0, screen.x - 1)
        elif character == "\t":
            stop = min((screen.x // _TAB_STOP + 1) * _TAB_STOP, PANE_COLUMNS - 1)
            screen.x = max(screen.x, stop)
        elif character in "\x0e\x0f":
            self._pen = replace(self._pen, draws_lines=character == "\x0e")

    def _sequence(self, piece: str) -> None:
        kind = piece[1:2]
        if kind == "[":
            if len(piece) > 2:
                self._csi(piece[2:-1], piece[-1])
        elif kind == "]":
            self._mark(piece)
        elif piece in _ESCAPES:
            _ESCAPES[piece](self)

    def _mark(self, piece: str) -> None:
        """A prompt of ours begins on a line of its own."""
        if not piece.startswith(PROMPT_MARK):
            return
        if self._screen is self._main and not self.is_at_fresh_line:
            self._screen.x = 0
            if self._row_has_text:
                self._feed_line()
            self._break_line(self._screen.top + self._screen.y)
        self._screen.x = 0
        self._row(self._screen.y).command = self.commands
        self.commands += 1

    def _row(self, y: int) -> ScreenRow:
        rows, at = self._screen.rows, self._screen.top + y
        while len(rows) <= at:
            rows.append(ScreenRow())
        return rows[at]

    def _write(self, text: str) -> None:
        if self._pen.draws_lines:
            text = text.translate(_LINE_DRAWING)
        self._last = text[-1] if text[-1].isascii() else ""
        if text.isascii() or (_NARROW.fullmatch(text) and not self._last_joins()):
            self._write_cells(text)
            return
        for character in text:
            self._write_wide(character)

    def _write_cells(self, text: str) -> None:
        """Characters of one cell each."""
        screen, tone = self._screen, self._pen.tone
        while text:
            if screen.x >= PANE_COLUMNS and not self._wrap():
                return
            room = PANE_COLUMNS - screen.x
            part, text = text[:room], text[room:]
            if text and "wrap" not in self._modes:
                part, text = part[:-1] + text[-1], ""
            self._put(list(part), tone)

    def _write_wide(self, character: str) -> None:
        """A character of any width; one without joins the one before."""
        screen, width = self._screen, character_cells(character)
        if width == 0 or self._last_joins():
            self._join(character)
            return
        if screen.x + width <= PANE_COLUMNS or self._wrap():
            self._put([character, ""][:width], self._pen.tone)

    def _cell_before(self) -> tuple[ScreenRow, int]:
        """The row at the cursor and the column of the character before it; −1 for none."""
        row, at = self._row(self._screen.y), self._screen.x - 1
        if 0 < at < len(row.cells) and not row.cells[at]:
            at -= 1
        return row, at if at < len(row.cells) else -1

    def _last_joins(self) -> bool:
        row, at = self._cell_before()
        return at >= 0 and row.cells[at].endswith("\u200d")

    def _join(self, character: str) -> None:
        row, at = self._cell_before()
        if at >= 0 and len(row.cells[at]) < 8:
            row.cells[at] += character

    def _put(self, cells: list[str], tone: Tone) -> None:
        """Cells that fit into the row."""
        screen = self._screen
        if "insert" in self._modes:
            self._insert_cells(len(cells))
        self._row(screen.y).put(screen.x, cells, tone)
        most = PANE_COLUMNS if "wrap" in self._modes else PANE_COLUMNS - 1
        screen.x = min(most, screen.x + len(cells))

    def _wrap(self) -> bool:
        """Go on in the next row, where the terminal does that."""
        if "wrap" not in self._modes:
            return False
        self._row(self._screen.y).wrapped = True
        self._feed_line()
        self._screen.x = 0
        return True

    def _tab_back(self, times: int) -> None:
        for _ in range(min(times, PANE_COLUMNS)):
            self._screen.x = max(0, (self._screen.x - 1) // _TAB_STOP * _TAB_STOP)

    # --- lines ---------------------------------------------------------------------------------

    def _feed_line(self) -> None:
        screen = self._screen
        if screen.y == self._region[1]:
            self._scroll_up(1)
        else:
            screen.y = min(PANE_ROWS - 1, screen.y + 1)
        self._row(screen.y)

    def _reverse_feed(self) -> None:
        screen = self._screen
        if screen.y == self._region[0]:
            self._insert_lines(1, at=screen.y)
        else:
            screen.y = max(0, screen.y - 1)

    def _scroll_up(self, times: int) -> None:
        """The region up: also from its middle tmux keeps what leaves it."""
        screen, (first, last) = self._screen, self._region
        for _ in range(min(times, PANE_ROWS)):
            self._row(last)
            row = screen.rows.pop(screen.top + first)
            screen.rows.insert(screen.top + last, ScreenRow())
            if screen.keeps:
                screen.rows.insert(screen.top, row)
                screen.top += 1
                self._shorten_line()

    def _scroll_down(self, times: int) -> None:
        for _ in range(min(times, PANE_ROWS)):
            self._insert_lines(1, at=self._region[0])

    def _shorten_line(self) -> None:
        """Of a line far longer than a screen its first rows are kept, and what is on the screen."""
        rows, at = self._main.rows, self._main.top - 1
        if at >= _MAX_LINE_ROWS and all(row.wrapped for row in rows[at - _MAX_LINE_ROWS : at + 1]):
            del rows[at]
            self._main.top -= 1

    def _insert_lines(self, count: int, at: int | None = None) -> None:
        screen = self._screen
        first, last = self._region
        y = screen.y if at is None else at
        if not first <= y <= last:
            first, last = 0, PANE_ROWS - 1
        self._row(last)
        count = min(count, last - y + 1)
        self._break_line(screen.top + y)
        self._break_line(screen.top + y + count)  # as tmux does
        for _ in range(count):
            screen.rows.pop(screen.top + last)
            screen.rows.insert(screen.top + y, ScreenRow())

    def _delete_lines(self, count: int) -> None:
        screen = self._screen
        first, last = self._region
        if not first <= screen.y <= last:
            last = PANE_ROWS - 1
        self._row(last)
        self._break_line(screen.top + screen.y)
        for _ in range(min(count, last - screen.y + 1)):
            screen.rows.pop(screen.top + screen.y)
            screen.rows.insert(screen.top + last, ScreenRow())

    def _clear_to_past(self) -> None:
        """The whole screen erased: what was on it is kept as if it had been scrolled off."""
        screen = self._screen
        if not screen.keeps:
            del screen.rows[:]
            self._row(screen.y)
            return
        while len(screen.rows) > screen.top and not screen.rows[-1].cells:
            screen.rows.pop()
        screen.top = len(screen.rows)
        self._row(screen.y)

    def _erase_display(self, part: int) -> None:
        screen = self._screen
        if part == 2 or (part == 0 and screen.x == 0 and screen.y == 0):
            self._clear_to_past()
        elif part == 0:
            self._erase_line(0)
            del screen.rows[screen.top + screen.y + 1 :]
            self._break_line(len(screen.rows))
        elif part == 1:
            for y in range(screen.y):
                self._erase_row(y)
            self._erase_line(1)

    def _erase_line(self, part: int) -> None:
        row, x = self._row(self._screen.y), self._screen.x
        whole = (x == 0, x >= PANE_COLUMNS - 1, True)
        if part < 3 and whole[part]:
            self._erase_row(self._screen.y)
        elif part == 0 and row.wrapped:
            row.put(x, [" "] * (len(row.cells) - x), "text")
        elif part == 0:
            row.cut(x)
        elif part == 1:
            row.put(0, [" "] * min(x + 1, len(row.cells)), "text")

    def _erase_row(self, y: int) -> None:
        """An empty row, which the one above does not go on in."""
        self._row(y)
        at = self._screen.top + y
        self._screen.rows[at] = ScreenRow()
        self._break_line(at)

    def _break_line(self, at: int) -> None:
        """The row at `at` begins a line."""
        if at > 0:
            self._screen.rows[at - 1].wrapped = False

    def _insert_cells(self, count: int) -> None:
        row, x = self._row(self._screen.y), self._screen.x
        row.pad(x)
        row.cells[x:x], row.tones[x:x] = [" "] * count, ["text"] * count
        row.cut(PANE_COLUMNS)

    def _delete_cells(self, count: int) -> None:
        row, x = self._row(self._screen.y), self._screen.x
        had = len(row.cells)
        del row.cells[x : x + count], row.tones[x : x + count]
        row.pad(max(1, had))

    def _erase_cells(self, count: int) -> None:
        row, x = self._row(self._screen.y), self._screen.x
        blanks = min(count, PANE_COLUMNS - x, len(row.cells) - x)
        if blanks > 0:
            row.put(x, [" "] * blanks, "text")

    def _csi(self, parameters: str, final: str) -> None:
        if final == "m":
            if not parameters.startswith((">", "?", "<")):
                self._pen = pen_after(self._pen, parameters)
        elif final in "hl":
            self._set_modes(parameters, final == "h")
        elif _NUMBERS.fullmatch(parameters) and final in _MOVES:
            first, _, second = parameters.partition(";")
            second = second.partition(";")[0]
            _MOVES[final](self, int(first or 0), int(second or 0))

    def _move(self, x: int, y: int) -> None:
        screen = self._screen
        screen.x = min(max(0, x), PANE_COLUMNS - 1)
        screen.y = min(max(0, y), PANE_ROWS - 1)
        self._row(screen.y)

    def _move_to_row(self, y: int) -> None:
        first, last = self._region if "origin" in self._modes else (0, PANE_ROWS - 1)
        self._screen.y = min(first + y, last)  # the column may be the one behind the last
        self._row(self._screen.y)

    def _cursor_up(self, count: int, x: int | None = None) -> None:
        screen = self._screen
        least = self._region[0] if screen.y >= self._region[0] else 0
        self._move(screen.x if x is None else x, max(least, screen.y - max(1, count)))

    def _cursor_down(self, count: int, x: int | None = None) -> None:
        screen = self._screen
        most = self._region[1] if screen.y <= self._region[1] else PANE_ROWS - 1
        self._move(screen.x if x is None else x, min(most, screen.y + max(1, count)))

    def _go_to(self, row: int, column: int) -> None:
        self._move(max(1, column) - 1, 0)
        self._move_to_row(max(1, row) - 1)

    def _set_region(self, first: int, last: int) -> None:
        upper, lower = max(1, first) - 1, min(last or PANE_ROWS, PANE_ROWS) - 1
        if upper < lower:
            self._region = (upper, lower)
            self._move(0, 0)

    def _repeat(self, count: int) -> None:
        if self._last and (times := min(max(1, count), PANE_COLUMNS - self._screen.x)):
            self._write_cells(self._last * times)

    def _save_cursor(self) -> None:
        self._saved = (self._screen.x, self._screen.y, self._pen)

    def _restore_cursor(self) -> None:
        x, y, self._pen = self._saved
        self._move(x, y)

    def _set_modes(self, parameters: str, on: bool) -> None:
        private = parameters.startswith("?")
        for code in parameters.lstrip("?").split(";"):
            if private and code in ("47", "1047", "1049"):
                self._use_alternate_screen(on, code == "1049")
            elif mode := _MODES.get(("?" if private else "") + code):
                self._modes = self._modes | {mode} if on else self._modes - {mode}
                if mode == "origin":
                    self._go_to(1, 1)

    def _use_alternate_screen(self, on: bool, saves: bool) -> None:
        main, screen = self._main, self._screen
        if on and screen is main:
            if saves:
                self._saved_for_alternate = (main.x, main.y, self._pen)
            self._screen = _Screen([ScreenRow()], y=main.y, x=main.x, keeps=False)
            self._row(main.y)
        elif not on:
            self._screen, main.x, main.y = main, screen.x, screen.y
            if saves and self._saved_for_alternate is not None:
                main.x, main.y, self._pen = self._saved_for_alternate
            self._move(main.x, main.y)

    def _reset(self) -> None:
        self._pen, self._modes = Pen(), _PLAIN_MODES
        self._region = (0, PANE_ROWS - 1)
        self._clear_to_past()
        self._move(0, 0)

    def _next_line(self) -> None:
        self._screen.x = 0
        self._feed_line()

    def _draw_lines(self, on: bool) -> None:
        self._pen = replace(self._pen, draws_lines=on)


_NUMBERS = re.compile(r"(?:\d{0,6};?){0,3}")
_MODES = {"?7": "wrap", "?6": "origin", "4": "insert"}
_ESCAPES: dict[str, Callable[[TerminalEmulator], None]] = {
    "\x1b7": TerminalEmulator._save_cursor,
    "\x1b8": TerminalEmulator._restore_cursor,
    "\x1bD": TerminalEmulator._feed_line,
    "\x1bE": TerminalEmulator._next_line,
    "\x1bM": TerminalEmulator._reverse_feed,
    "\x1bc": TerminalEmulator._reset,
    "\x1b(0": lambda screen: screen._draw_lines(True),
    "\x1b(B": lambda screen: screen._draw_lines(False),
}
_MOVES: dict[str, Callable[[TerminalEmulator, int, int], None]] = {
    "A": lambda t, n, _: t._cursor_up(n),
    "B": lambda t, n, _: t._cursor_down(n),
    "C": lambda t, n, _: t._move(t._screen.x + max(1, n), t._screen.y),
    "D": lambda t, n, _: t._move(t._screen.x - max(1, n), t._screen.y),
    "E": lambda t, n, _: t._cursor_down(n, x=0),
    "F": lambda t, n, _: t._cursor_up(n, x=0),
    "G": lambda t, n, _: t._move(max(1, n) - 1, t._screen.y),
    "`": lambda t, n, _: t._move(max(1, n) - 1, t._screen.y),
    "H": lambda t, row, column: t._go_to(row, column),
    "f": lambda t, row, column: t._go_to(row, column),
    "J": lambda t, part, _: t._erase_display(part),
    "K": lambda t, part, _: t._erase_line(part),
    "L": lambda t, n, _: t._insert_lines(max(1, n)),
    "M": lambda t, n, _: t._delete_lines(max(1, n)),
    "P": lambda t, n, _: t._delete_cells(max(1, n)),
    "S": lambda t, n, _: t._scroll_up(max(1, n)),
    "T": lambda t, n, _: t._scroll_down(max(1, n)),
    "X": lambda t, n, _: t._erase_cells(max(1, n)),
    "Z": lambda t, n, _: t._tab_back(max(1, n)),
    "@": lambda t, n, _: t._insert_cells(min(max(1, n), PANE_COLUMNS)),
    "b": lambda t, n, _: t._repeat(n),
    "d": lambda t, n, _: t._move_to_row(max(1, n) - 1),
    "r": lambda t, first, last: t._set_region(first, last),
    "s": lambda t, _n, _m: t._save_cursor(),
    "u": lambda t, _n, _m: t._restore_cursor(),
}
"""Control sequences by their last character; a number that is left out is 0."""
