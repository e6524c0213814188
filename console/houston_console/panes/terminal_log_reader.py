"""What a terminal of a rollout printed, as lines with tones, however long its log is.

Interprets carriage return, backspace, tab, erase in line and colours; drops every other control
sequence. An index of pages lets any part of a log be read when it is looked at; tmux is asked for
programs that paint the whole screen; logs on other machines are fetched by `houston rollout
printed`. No key is ever sent to a terminal.
"""

import asyncio
import re
import shutil
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from houston_console.widgets.styled_text import TextLine, TextSpan, Tone
from houston_shared import terminal_log_files
from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe

_TEXT_PIECES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, the daemon's marks
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x1f\x7f]"
    r"|[^\x00-\x1f\x7f]+"
)
_PROMPT_MARK = "\x1b]7771;p;"
"""A prompt begins on a line of its own (written by the shell of every terminal)."""
_UP_TO_PROMPT = re.compile(rb"(?:\x1b\]7771;[^\x07\x1b]*\x07)*?\x1b\]7771;p;[^\x07\x1b]*\x07")
"""Marks up to the prompt of a command; before it may stand the end of the one before."""
PROMPT_MARK_BYTES = _PROMPT_MARK.encode()
"""The same in bytes."""
_STRING_SEQUENCES = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?")
"""The sequences of `_TEXT_PIECES` that may hold line feeds: none of these is a line's end."""
_SGR_TONES: dict[str, Tone] = {
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
_EXTENDED_COLOUR = re.compile(
    r"(?<!\d)38[;:](?:5[;:](\d{1,3})|2[;:]+(\d{1,3})[;:](\d{1,3})[;:](\d{1,3}))"
    r"|(?<!\d)48[;:](?:5[;:]\d{1,3}|2[;:]+\d{1,3}[;:]\d{1,3}[;:]\d{1,3})"
)
"""A colour out of 256, or by its red, green and blue; a ground is not shown."""
_TAB_STOP = 8
_MAX_COLUMNS = 1_000
"""Columns kept of one line."""
_MAX_CURSOR_MOVE = 300
"""Columns that a sequence may move to: a row of spaces for every few bytes costs seconds."""

TerminalCell = tuple[str, Tone]


def parse_tail_lines(data: bytes) -> list[TextLine]:
    """`data` as lines; a last line without its line feed counts, empty ones at the end do not."""
    lines = parse_all_lines(data)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def parse_all_lines(data: bytes) -> list[TextLine]:
    """`data` as lines; what follows the last line feed counts when there is something."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    screen = _TerminalRows()
    for piece in _TEXT_PIECES.findall(text):
        screen.feed(piece)
    if not screen.rows[-1]:
        screen.rows.pop()
    return [_row_to_line(row) for row in screen.rows]


def count_lines(data: bytes) -> int:
    """As many lines as `parse_all_lines` makes of `data`, told far quicker."""
    above, unended = _count_ended_lines(data)
    return above + unended


def line_at_byte(data: bytes, byte: int) -> int:
    """The number, from 0, of the line that `data[byte:]` goes on, or begins with a prompt."""
    prompt = _UP_TO_PROMPT.match(data, byte)
    return _count_ended_lines(data[: prompt.end() if prompt else byte])[0]


def _count_ended_lines(data: bytes) -> tuple[int, bool]:
    """Lines that have ended, and whether the one behind them holds anything.

    Only the text between the last line feed and a prompt, or the end, is drawn: a prompt ends a
    line that holds something, and marks and titles before it are nothing.
    """
    ended, row = 0, _TerminalRows()
    for number, part in enumerate(_split_at_prompts(data.replace(b"\r\n", b"\n"))):
        if number and row.rows[-1]:
            ended, row = ended + 1, _TerminalRows()
        text = _STRING_SEQUENCES.sub(b"\0", part)
        feeds = text.count(b"\n")
        if feeds:
            ended, row = ended + feeds, _TerminalRows()
        for piece in _TEXT_PIECES.findall(text[text.rfind(b"\n") + 1 :].decode("utf-8", "replace")):
            row.feed(piece)
    return ended, bool(row.rows[-1])


def _split_at_prompts(data: bytes) -> Iterator[bytes]:
    start = 0
    for string in _STRING_SEQUENCES.finditer(data) if PROMPT_MARK_BYTES in data else ():
        if string.group().startswith(PROMPT_MARK_BYTES):
            yield data[start : string.start()]
            start = string.end()
    yield data[start:]


class _TerminalRows:
    """Rows written so far and the cursor in the last of them."""

    def __init__(self) -> None:
        self.rows: list[list[TerminalCell]] = [[]]
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
            self._write(" " * (_TAB_STOP - self.column % _TAB_STOP))
        elif piece.startswith(_PROMPT_MARK) and self.rows[-1]:
            self.feed("\n")
        elif piece.startswith("\x1b["):
            self._control(piece)
        elif piece >= " " and not piece.startswith("\x7f"):
            self._write(piece)

    def _write(self, text: str) -> None:
        row = self.rows[-1]
        row.extend([(" ", "text")] * (self.column - len(row)))
        end = min(self.column + len(text), _MAX_COLUMNS)
        row[self.column : end] = [(c, self.tone) for c in text[: end - self.column]]
        self.column = end

    def _control(self, piece: str) -> None:
        parameters, final = piece[2:-1], piece[-1]
        if final == "m":
            self._set_tone(parameters)
        elif final == "K" and parameters in ("", "0"):
            del self.rows[-1][self.column :]
        elif final == "K":
            self.rows[-1][:] = [] if parameters == "2" else [(" ", "text")] * self.column
        elif final == "G":
            self.column = (
                min(_MAX_CURSOR_MOVE, max(0, int(parameters[:9] or 1) - 1))
                if parameters.isdigit() or not parameters
                else 0
            )

    def _set_tone(self, parameters: str) -> None:
        """Select graphic rendition: colours and weight; a colour says more than a weight."""
        for many in _EXTENDED_COLOUR.finditer(parameters):
            if many.group().startswith("38"):
                self._colour = _nearest_tone(*many.groups())
        for code in _EXTENDED_COLOUR.sub("", parameters).split(";"):
            if code in ("", "0"):
                if code or not parameters:
                    self._colour = self._weight = "text"
            elif code in ("1", "2", "22"):
                self._weight = {"1": "strong", "2": "dim"}.get(code, "text")  # type: ignore[assignment]
            elif code == "39":
                self._colour = "text"
            else:
                self._colour = _SGR_TONES.get(code, self._colour)
        self.tone = self._weight if self._colour == "text" else self._colour


def _nearest_tone(index: str | None, red: str | None, green: str | None, blue: str | None) -> Tone:
    """The tone for a colour out of 256, or of red, green and blue (xterm's cube and greys)."""
    if index is not None:
        number = min(255, int(index))
        if number < 16:
            base = number + 30 if number < 8 else number + 82
            return _SGR_TONES.get(str(base), "text")
        if number >= 232:
            return "faint" if number < 244 else "dim" if number < 250 else "text"
        number -= 16
        parts = [number // 36 * 51, number // 6 % 6 * 51, number % 6 * 51]
    else:
        parts = [min(255, int(part or 0)) for part in (red, green, blue)]
    least, most = min(parts), max(parts)
    if most - least < 40:
        return "faint" if most < 130 else "dim" if most < 200 else "text"
    bright = [part > (least + most) / 2 for part in parts]
    names: dict[tuple[bool, ...], Tone] = {
        (True, False, False): "error",
        (False, True, False): "success",
        (True, True, False): "warning",
        (True, False, True): "key",
    }
    return names.get(tuple(bright), "tool")


def _row_to_line(row: list[TerminalCell]) -> TextLine:
    spans: list[TextSpan] = []
    start = 0
    for index in range(1, len(row) + 1):
        if index == len(row) or row[index][1] != row[start][1]:
            text = "".join(character for character, _ in row[start:index])
            spans.append(TextSpan(safe(text), row[start][1]))
            start = index
    return tuple(spans)


PAGE_BYTES = 32 * 1024
"""Bytes of a page, to the end of its last line."""
MAX_PAGE_BYTES = 8 * PAGE_BYTES
"""Bytes after which a page ends also within a line."""
SCAN_BLOCK_BYTES = 4 * MAX_PAGE_BYTES
"""Bytes that are looked through at once."""
MAX_CACHED_PAGES = 24
"""Pages that are kept as lines: a few screens."""


class LogPage(NamedTuple):
    """A stretch of the log."""

    start: int
    end: int
    first: int
    """Number of its first line."""
    lines: int


class LogIndex(NamedTuple):
    """The pages of a log as long as it was."""

    folder: Path
    pages: tuple[LogPage, ...] = ()

    @property
    def start(self) -> int:
        """The first byte there is: older segments may be gone."""
        return self.pages[0].start if self.pages else 0

    @property
    def end(self) -> int:
        """One behind the last byte."""
        return self.pages[-1].end if self.pages else 0

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.pages[-1].first + self.pages[-1].lines if self.pages else 0

    def line(self, number: int) -> TextLine:
        """One line; empty where its page cannot be read any more."""
        at = bisect_right(self.pages, number, key=lambda page: page.first) - 1
        page = self.pages[at]
        lines = _read_page_lines(self.folder, page.start, page.end)
        return lines[number - page.first] if number - page.first < len(lines) else ()

    def line_of(self, byte: int) -> int:
        """The line that a byte of the log is in."""
        at = bisect_right(self.pages, byte, key=lambda page: page.start) - 1
        if at < 0:
            return 0
        page = self.pages[at]
        if byte >= page.end:
            return self.lines
        return page.first + line_at_byte(
            read_log_bytes(self.folder, page.start, page.end), byte - page.start
        )

    def up_to(self, byte: int) -> "LogIndex":
        """The log as it was when it ended at `byte`."""
        pages = [page for page in self.pages if page.start < byte]
        if pages and pages[-1].end > byte:
            last = pages.pop()
            data = read_log_bytes(self.folder, last.start, byte)
            pages.append(LogPage(last.start, byte, last.first, count_lines(data)))
        return self._replace(pages=tuple(pages))


def update_log_index(index: LogIndex) -> LogIndex:
    """The index of the log as it is now: the same one when nothing was added.

    A log that is shorter than before is another one. Raises OSError where there is no log.
    """
    start, end = _log_bounds(index.folder)
    if end == index.end and index.pages:
        return index
    pages = list(index.pages) if end > index.end and index.start == start else []
    if pages and _is_page_growing(index.folder, pages[-1]):
        pages.pop()
    at = pages[-1].end if pages else start
    while at < end:
        data = read_log_bytes(index.folder, at, min(end, at + SCAN_BLOCK_BYTES))
        if not data:
            break
        for a, b in _page_bounds(data, at + len(data) >= end):
            first = pages[-1].first + pages[-1].lines if pages else 0
            pages.append(LogPage(at + a, at + b, first, count_lines(data[a:b])))
        at = pages[-1].end
    return index._replace(pages=tuple(pages))


def _is_page_growing(folder: Path, last: LogPage) -> bool:
    """Whether what is printed next is of the last page too."""
    if last.end - last.start < PAGE_BYTES:
        return True
    return (
        last.end - last.start < MAX_PAGE_BYTES
        and read_log_bytes(folder, last.end - 1, last.end) != b"\n"
    )


def _log_bounds(folder: Path) -> tuple[int, int]:
    """First byte and end of the log; behind the last gap, where a segment is missing."""
    segments = terminal_log_files.list_segments(folder)
    if not segments:
        raise FileNotFoundError(2, "no log yet", str(folder))
    start = end = segments[0][0]
    for at, path in segments:
        start = start if at <= end else at
        end = at + path.stat().st_size
    return start, end


def _page_bounds(data: bytes, last: bool) -> list[tuple[int, int]]:
    """Where the pages of a block begin and end; its rest is of the next, unless it is the last."""
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        feed = data.find(b"\n", at + PAGE_BYTES, at + MAX_PAGE_BYTES)
        if feed >= 0:
            end = feed + 1
        elif len(data) - at >= MAX_PAGE_BYTES:
            end = at + MAX_PAGE_BYTES
        elif last:
            end = len(data)
        else:
            break
        ranges.append((at, end))
        at = end
    return ranges


def read_log_bytes(folder: Path, start: int, end: int) -> bytes:
    """The bytes of [start, end), whatever segments they lie in; fewer where some are gone."""
    return b"".join(terminal_log_files.read_log_blocks(folder, start, end))


@lru_cache(maxsize=MAX_CACHED_PAGES)
def _read_page_lines(folder: Path, start: int, end: int) -> tuple[TextLine, ...]:
    try:
        return tuple(parse_all_lines(read_log_bytes(folder, start, end)))
    except OSError:
        return ()


_SCREEN_SEARCH_BYTES = 64 * 1024
"""Bytes at the end of a log in which a program may have begun to paint its screen."""
_ENTER_ALTERNATE_SCREEN = (b"\x1b[?1049h", b"\x1b[?47h", b"\x1b[?1047h")
_LEAVE_ALTERNATE_SCREEN = (b"\x1b[?1049l", b"\x1b[?47l", b"\x1b[?1047l")


class TerminalSnapshot(NamedTuple):
    """A terminal as it stands; the same again when nothing was printed."""

    log_index: LogIndex | None = None
    """Its log; None where there is none."""
    screen_lines: tuple[TextLine, ...] = ()
    """What tmux shows, where it was asked."""
    origin: str = ""
    """Of what is shown: `log`, `tmux`, or empty."""
    reason: str = ""
    """Why nothing can be seen."""


EMPTY_SNAPSHOT = TerminalSnapshot()


def terminal_log_folder(host_root: str, rollout: str, name: str) -> Path | None:
    """Where a terminal of this machine has its log; None where there can be none."""
    if not host_root or not terminal_log_files.is_terminal_name(name):
        return None
    return terminal_log_files.terminals_folder(Path(host_root), rollout) / name


def terminals_with_log(host_root: str, rollout: str) -> list[str]:
    """Terminals that have a log on this machine, also before a step recorded them."""
    try:
        return terminal_log_files.terminals_with_log(
            terminal_log_files.terminals_folder(Path(host_root), rollout)
        )
    except OSError:
        return []


async def read_terminal(folder: Path, before: TerminalSnapshot, live: bool) -> TerminalSnapshot:
    """A terminal as it stands now. live: a program that paints its screen is shown by tmux."""
    previous = (
        before.log_index
        if before.log_index and before.log_index.folder == folder
        else LogIndex(folder)
    )
    try:
        index = await asyncio.to_thread(update_log_index, previous)
        paints = live and await asyncio.to_thread(_uses_alternate_screen, index)
    except OSError as problem:
        cause_text = f"Its log cannot be read ({problem.strerror})"
        screen, reason = await _capture_tmux_pane(folder)
        if not reason:
            return TerminalSnapshot(None, screen, "tmux")
        return TerminalSnapshot(reason=f"{cause_text}, and {reason}.")
    if paints:
        screen, reason = await _capture_tmux_pane(folder)
        if not reason:
            snapshot = TerminalSnapshot(index, screen, "tmux")
            return before if snapshot == before else snapshot
    if index is before.log_index and before.origin == "log":
        return before
    return TerminalSnapshot(index, (), "log")


def _uses_alternate_screen(index: LogIndex) -> bool:
    """Whether a program has the whole screen to itself (xterm's alternate screen)."""
    end = read_log_bytes(
        index.folder, max(index.start, index.end - _SCREEN_SEARCH_BYTES), index.end
    )
    entered_at = max(end.rfind(sequence) for sequence in _ENTER_ALTERNATE_SCREEN)
    return entered_at >= 0 and entered_at > max(
        end.rfind(sequence) for sequence in _LEAVE_ALTERNATE_SCREEN
    )


async def _capture_tmux_pane(folder: Path) -> tuple[tuple[TextLine, ...], str]:
    """What the session's pane shows, or why it cannot be asked."""
    try:
        socket = terminal_log_files.socket_note(folder.parent).read_text().strip()
    except OSError:
        return (), "it has no tmux session here"
    tmux = shutil.which("tmux")
    if tmux is None:
        return (), "tmux is not installed here"
    process = await asyncio.create_subprocess_exec(
        *(tmux, "-S", socket, "capture-pane", "-e", "-p", "-t", f"={folder.name}:"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    if process.returncode:
        return (), "tmux does not show it to this user"
    return tuple(parse_tail_lines(output)), ""


class FetchedLogs:
    """Logs that were brought here."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def folder_of(self, rollout: str, host: str, name: str) -> Path:
        """Where the log of a terminal is, once it was fetched."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="houston-terminals-")
        return Path(self._folder.name) / rollout / host / name

    def has(self, rollout: str, host: str, name: str) -> bool:
        """Whether some of the log was fetched."""
        return self._folder is not None and self.folder_of(rollout, host, name).is_dir()

    async def fetch(self, home: Path, rollout: str, host: str, name: str) -> None:
        """Bring what is new. Raises HoustonError where the machine cannot be reached."""
        folder = self.folder_of(rollout, host, name)
        folder.mkdir(parents=True, exist_ok=True)
        segments = terminal_log_files.list_segments(folder)
        start = segments[-1][0] + segments[-1][1].stat().st_size if segments else 0
        file, into = terminal_log_files.segment_file(folder, start), folder / "coming"
        into.unlink(missing_ok=True)
        words = ["rollout", "printed", rollout, f"--host={host}", f"--out={into}"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "houston_shared.command", "--home", str(home)),
            *(*words, f"--from={start}", "--", name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await process.communicate()
        if process.returncode:
            lines = stderr.decode(errors="replace").removeprefix("houston: ").splitlines()
            raise HoustonError(lines[0] if lines else "The log could not be read.")
        if into.stat().st_size or not segments:
            into.replace(file)

    def close(self) -> None:
        """Remove all fetched logs."""
        if self._folder is not None:
            self._folder.cleanup()
