"""What a terminal of a rollout printed, as lines with tones, however long its log is.

An index of pages lets any part of a log be read when it is looked at, as its terminal showed it
(`terminal_emulator`), and knows which commands were run. tmux is asked where there is no log; logs
on other machines are fetched by `houston rollout printed`. No key is ever sent to a terminal.
"""

import asyncio
import re
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from houston_console.commands.remote_terminal_log import fetch_command, first_error_line
from houston_console.panes.terminal_cells import PackedScreen
from houston_console.panes.terminal_emulator import PROMPT_MARK, TerminalEmulator
from houston_console.widgets.styled_text import TextLine
from houston_shared import terminal_log_files
from houston_shared.errors import HoustonError
from houston_shared.terminal_log_files import PANE_ROWS

_PROMPT_MARK_BYTES = PROMPT_MARK.encode()
_UP_TO_PROMPT = re.compile(rb"(?:\x1b\]7771;[^\x07\x1b]*\x07)*?\x1b\]7771;p;[^\x07\x1b]*\x07")
"""Marks up to the prompt of a command; before it may stand the end of the one before."""
_MARK = re.compile(rb"\x1b\]7771;([per]);([^\x07\x1b]{0,90})\x07")
"""What the shell of every terminal writes: a prompt, the end of a command, a new shell."""
_LONGEST_MARK = 110
"""Bytes of one, with room."""
_STRING_SEQUENCES = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?")
"""The sequences that may hold line feeds: none of these is a line's end."""
PAINTS = re.compile(
    rb"\x1b(?:[78DEMc]|\[[0-9;]*[ABEFHJLMSTdfrsu]|\[4[hl]"
    rb"|\[\?(?:[0-9]+;)*(?:6|7|47|1047|1049)(?:;[0-9;]*)?[hl])"
)
"""What moves the cursor off its line, or may make others do so: those lines must be drawn."""


def parse_tail_lines(data: bytes) -> list[TextLine]:
    """`data` as lines; a last line without its line feed counts, empty ones at the end do not."""
    lines = parse_all_lines(data)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def parse_all_lines(data: bytes) -> list[TextLine]:
    """`data` as lines; what follows the last line feed counts when there is something."""
    return [parts for parts, _ in _draw(data).lines()]


def _draw(data: bytes, before: PackedScreen | None = None, commands: int = 0) -> TerminalEmulator:
    screen = TerminalEmulator(before, commands)
    screen.feed(data)
    return screen


def count_lines(data: bytes) -> int:
    """As many lines as `parse_all_lines` makes of `data`, mostly told far quicker."""
    if PAINTS.search(data):
        return _draw(data).line_count()
    above, unended = _count_ended_lines(data)
    return above + unended


def line_at_byte(data: bytes, byte: int, before: PackedScreen | None = None) -> int:
    """The number, from 0, of the line that `data[byte:]` goes on, or begins with a prompt."""
    prompt = _UP_TO_PROMPT.match(data, byte)
    above = data[: prompt.end() if prompt else byte]
    if before is not None or PAINTS.search(above):
        return _draw(above, before).cursor_line()
    return _count_ended_lines(above)[0]


def _count_ended_lines(data: bytes) -> tuple[int, bool]:
    """Lines that have ended, and whether the one behind them holds anything; nothing paints.

    Only the text between the last line feed and a prompt, or the end, is drawn: a prompt ends a
    line that holds something, and marks and titles before it are nothing.
    """
    ended, screen, blanks = 0, TerminalEmulator(), b""
    parts = list(_split_at_prompts(data))
    for number, part in enumerate(parts, 1):
        if number > 1 and not screen.is_at_fresh_line:
            ended += 1
        text = _STRING_SEQUENCES.sub(b"\0", part)
        ended += len(_LINE_FEEDS.findall(text))
        start = max(map(text.rfind, _FEEDS)) + 1
        text = text[start:] if start else blanks + text
        if number < len(parts):  # half a character that a prompt follows is drawn as a sign
            text += b"\0"
        screen = _draw(text)
        blanks = text + b"\r" if screen.is_at_fresh_line else b""  # they stay before the prompt
    return ended, screen.line_count() > 0


_FEEDS = (b"\n", b"\v", b"\f")
_LINE_FEEDS = re.compile(rb"[\n\v\f]")


def _split_at_prompts(data: bytes) -> Iterator[bytes]:
    start = 0
    for string in _STRING_SEQUENCES.finditer(data) if _PROMPT_MARK_BYTES in data else ():
        if string.group().startswith(_PROMPT_MARK_BYTES):
            yield data[start : string.start()]
            start = string.end()
    yield data[start:]


class CommandRun(NamedTuple):
    """A command that the shell of a terminal ran, as its marks tell it."""

    prompt: int
    """The byte of the log at which its prompt begins, behind its mark."""
    end: int = 0
    """The byte behind its end; 0 while it runs."""
    exit_code: int | None = None
    """None while it runs, and where its end was not told: its shell was killed, say."""
    started_at: float = 0.0
    """Seconds since 1970; 0 where the log does not say."""
    ended_at: float = 0.0

    @property
    def seconds(self) -> float | None:
        """How long it took, once it has ended; None where nobody knows."""
        if not (self.end and self.started_at and self.ended_at):
            return None
        return max(0.0, self.ended_at - self.started_at)


def _follow_marks(commands: list[CommandRun], data: bytes, start: int, after: int) -> None:
    """Add what marks that end behind `after` tell of commands; `data` is at `start` of the log."""
    for mark in _MARK.finditer(data):
        end = start + mark.end()
        if end <= after:
            continue
        kind, words = mark[1], mark[2].decode("ascii", "replace").split(";")
        if kind != b"e" and commands and not commands[-1].end:  # nobody knows how it ended
            commands[-1] = commands[-1]._replace(end=start + mark.start())
        if kind == b"p":
            commands.append(CommandRun(end, started_at=_mark_time(words[0])))
        elif commands and kind == b"e" and len(words) > 1:
            code = int(words[1]) if re.fullmatch("[0-9]{1,4}", words[1], re.ASCII) else None
            at = _mark_time(words[2]) if len(words) > 2 else 0.0
            commands[-1] = commands[-1]._replace(end=end, exit_code=code, ended_at=at)


def _mark_time(text: str) -> float:
    """Seconds since 1970 as bash writes them, in any language; 0 for anything else."""
    return (
        float(text.replace(",", "."))
        if re.fullmatch("[0-9]{9,12}(?:[.,][0-9]{1,6})?", text, re.ASCII)
        else 0.0
    )


PAGE_BYTES = 32 * 1024
"""Bytes of a page, to the end of its last line where that is near."""
SCAN_BLOCK_BYTES = 1024 * 1024
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
    """Lines at its end, of which the next page may draw the last ones otherwise."""
    command: int = 0
    """Number of the first command whose prompt is in it or after it."""
    before: PackedScreen | None = None
    """The screen that it goes on with; None where that is of no matter."""
    ends_in_default_state: bool = True
    """Whether what follows can be drawn without this page's screen, if it does not paint."""

    def __hash__(self) -> int:
        """By its place: what is drawn is looked up by page, and a screen is long to hash."""
        return hash((self.start, self.end, self.first))


class LogIndex(NamedTuple):
    """The pages of a log as long as it was, and the commands it tells of."""

    folder: Path
    pages: tuple[LogPage, ...] = ()
    commands: tuple[CommandRun, ...] = ()

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
        return self._drawn_line(number)[0]

    def command(self, number: int) -> CommandRun | None:
        """The command whose prompt is on a line; None where that is no prompt."""
        at = self._drawn_line(number)[1]
        return self.commands[at] if 0 <= at < len(self.commands) else None

    def _drawn_line(self, number: int) -> tuple[TextLine, int]:
        at = bisect_right(self.pages, number, key=lambda page: page.first) - 1
        page = self.pages[at]
        lines = _read_page_lines(self.folder, page)
        return lines[number - page.first] if number - page.first < len(lines) else ((), -1)

    def line_of(self, byte: int) -> int:
        """The line that a byte of the log is in."""
        at = bisect_right(self.pages, byte, key=lambda page: page.start) - 1
        if at < 0:
            return 0
        page = self.pages[at]
        if byte >= page.end:
            return self.lines
        data = read_log_bytes(self.folder, page.start, page.end)
        return page.first + line_at_byte(data, byte - page.start, page.before)

    def up_to(self, byte: int) -> "LogIndex":
        """The log as it was when it ended at `byte`."""
        pages = [page for page in self.pages if page.start < byte]
        if pages and pages[-1].end > byte:
            last = pages.pop()._replace(end=byte)
            data = read_log_bytes(self.folder, last.start, byte)
            pages.append(last._replace(lines=_count_page_lines(data, last.before)))
        commands = [
            run if run.end <= byte else CommandRun(run.prompt, started_at=run.started_at)
            for run in self.commands
            if run.prompt <= byte
        ]
        return self._replace(pages=tuple(pages), commands=tuple(commands))


def _count_page_lines(data: bytes, before: PackedScreen | None) -> int:
    return count_lines(data) if before is None else _draw(data, before).line_count()


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
    commands = [run for run in index.commands if run.prompt <= at] if pages else []
    screen: TerminalEmulator | None = None
    while at < end:
        data = read_log_bytes(index.folder, at, min(end, at + SCAN_BLOCK_BYTES))
        if not data:
            break
        for a, b in _page_bounds(data, at + len(data) >= end):
            previous = pages[-1] if pages else None
            page, screen = _next_page(
                index.folder, previous, screen, data[a:b], at + a, len(commands)
            )
            pages.append(page)
            near = max(start, page.start - _LONGEST_MARK)
            _follow_marks(commands, read_log_bytes(index.folder, near, page.end), near, page.start)
        at = pages[-1].end
    return index._replace(pages=tuple(pages), commands=tuple(commands))


def _next_page(
    folder: Path,
    previous: LogPage | None,
    screen: TerminalEmulator | None,
    data: bytes,
    start: int,
    command: int,
) -> tuple[LogPage, TerminalEmulator | None]:
    """The page of `data`, and its screen where it was drawn; screen: of the page before.

    It is drawn where it paints, where the page before did not end simply, and where it does not
    fill a screen: the page after it would not know what is on it.
    """
    end, paints = start + len(data), PAINTS.search(data) is not None
    if not paints and (previous is None or previous.ends_in_default_state):
        above, unended = _count_ended_lines(data)
        first = previous.first + previous.lines if previous else 0
        if previous is None or above >= PANE_ROWS:
            simply = data.endswith(b"\n")
            return LogPage(start, end, first, above + unended, command, None, simply), None
    before, first = None, 0
    if previous is not None:
        screen = screen or _draw_page(folder, previous)
        before, first = screen.packed(), previous.first + screen.closed_lines()
    drawn = _draw(data, before, command)
    page = LogPage(
        start, end, first, drawn.line_count(), command, before, drawn.ends_in_default_state
    )
    return page, drawn


def _draw_page(folder: Path, page: LogPage) -> TerminalEmulator:
    return _draw(read_log_bytes(folder, page.start, page.end), page.before, page.command)


def _is_page_growing(folder: Path, last: LogPage) -> bool:
    """Whether what is printed next is of the last page too."""
    size = last.end - last.start
    if size < PAGE_BYTES:
        return True
    return size < 2 * PAGE_BYTES and read_log_bytes(folder, last.end - 1, last.end) != b"\n"


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
        feed = data.find(b"\n", at + PAGE_BYTES, at + 2 * PAGE_BYTES)
        if feed >= 0:
            end = feed + 1
        elif len(data) - at >= 2 * PAGE_BYTES:
            end = at + 2 * PAGE_BYTES
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
def _read_page_lines(folder: Path, page: LogPage) -> tuple[tuple[TextLine, int], ...]:
    """Lines, each with the number of the command whose prompt it is."""
    try:
        return tuple(_draw_page(folder, page).lines())
    except OSError:
        return ()


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


async def read_terminal(folder: Path, before: TerminalSnapshot) -> TerminalSnapshot:
    """A terminal as it stands now: its log, and what tmux shows where there is none."""
    previous = (
        before.log_index
        if before.log_index and before.log_index.folder == folder
        else LogIndex(folder)
    )
    try:
        index = await asyncio.to_thread(update_log_index, previous)
    except OSError as problem:
        cause_text = f"Its log cannot be read ({problem.strerror})"
        screen, reason = await _capture_tmux_pane(folder)
        if not reason:
            return TerminalSnapshot(None, screen, "tmux")
        return TerminalSnapshot(reason=f"{cause_text}, and {reason}.")
    if index is before.log_index and before.origin == "log":
        return before
    return TerminalSnapshot(index, (), "log")


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
        process = await asyncio.create_subprocess_exec(
            *fetch_command(home, rollout, (host, name), into, start, None),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await process.communicate()
        if process.returncode:
            raise HoustonError(first_error_line(stderr) or "The log could not be read.")
        if into.stat().st_size or not segments:
            into.replace(file)

    def close(self) -> None:
        """Remove all fetched logs."""
        if self._folder is not None:
            self._folder.cleanup()
