"""What may leave for the person's terminal: the second safety filter, fewer bytes, the clipboard.

`SafeDriver` is Textual's driver behind a filter that passes only the sequences Textual 8.2 itself
writes; it shares no code with `SafeText`, so one fault cannot open both. Before output leaves,
redundant colour codes are dropped and the cursor is set again after characters of disputed width.
Text is copied by OSC 52, by `tmux load-buffer`, or into a file when it is too long. Which colours
are used is decided in `widgets.color_themes`.
"""

import asyncio
import base64
import os
import re
import select
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from rich.cells import split_graphemes
from rich.console import Console
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

_EMOJI_CHARACTERS = (
    "\u200d\ufe0e\ufe0f\u20e3\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U0001fa70-\U0001faff"
)
"""Joiners, selectors, keycaps, flags, tones, young emoji."""
_COMPLEX_SCRIPTS = "\u0900-\u0dff\u0f00-\u109f\u1100-\u11ff\u1780-\u17ff\u1a20-\u1cff\ua800-\uabff"
"""Scripts with vowels beside a letter, which some terminals give a cell of their own."""
_DISPUTED_WIDTH = re.compile(f"[{_EMOJI_CHARACTERS}{_COMPLEX_SCRIPTS}]")
_EMOJI_PATTERN, _SCRIPT_PATTERN = (
    re.compile(f"[{_EMOJI_CHARACTERS}]"),
    re.compile(f"[{_COMPLEX_SCRIPTS}]"),
)
_CSI_SEQUENCE = re.compile(r"(\x1b\[[0-9;:?<=>$]*[A-Za-z])")
_CURSOR_POSITION = re.compile(r"\x1b\[([0-9]+);([0-9]+)H")


def reposition_after_disputed_width(data: str) -> str:
    """`data`, as written to a terminal, with the cursor set behind every disputed character.

    Only behind a cursor position of its own line; all else stays byte for byte.
    """
    if data.isascii() or not _DISPUTED_WIDTH.search(data):
        return data
    row, column = 0, 0
    parts: list[str] = []
    for part in _CSI_SEQUENCE.split(data):
        if part.startswith("\x1b"):
            place = _CURSOR_POSITION.fullmatch(part)
            if place:
                row, column = int(place[1]), int(place[2])
            elif not part.endswith(("m", "h", "l")):
                row = 0
            parts.append(part)
            continue
        before, feed, after = part.rpartition("\n")
        if feed:
            parts.append(before + feed)
            row, part = 0, after
        text, column = _reposition_text(part, row, column)
        parts.append(text)
    return "".join(parts)


def _reposition_text(text: str, row: int, column: int) -> tuple[str, int]:
    """Text that begins at a place (from 1; row 0: nobody knows), and the column behind it."""
    if not row or not text:
        return text, column
    if text.isascii():
        return text, column + len(text)
    spans, cells = split_graphemes(text)
    if not _DISPUTED_WIDTH.search(text):
        return text, column + cells
    parts: list[str] = []
    for start, end, wide in spans:
        grapheme = text[start:end]
        if wide and _EMOJI_PATTERN.search(grapheme):
            move = f"\x1b[{row};{column}H"
            parts.append(f"{move}{' ' * wide}{move}{grapheme}\x1b[{row};{column + wide}H")
        else:
            parts.append(grapheme)
        column += wide
    if _SCRIPT_PATTERN.search(text):
        parts.append(f"\x1b[{row};{column}H")
    return "".join(parts), column


_SGR_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER_SEQUENCE = re.compile(r"\x1b\[[0-9;:?<=>$]*[A-Za-ln-z]|[\r\n]")
"""What neither is text nor changes colours."""
_ATTRIBUTES_SEEN_ON_BLANKS = frozenset({"4", "7", "8", "9", "21", "53"})
"""Attributes that are seen on a blank: underlined, reverse, concealed, struck, overlined."""
SGR_RESET = "\x1b[0m"


class SgrStyle(NamedTuple):
    """How text is drawn; empty strings are the terminal's own colours."""

    attributes: frozenset[str] = frozenset()
    foreground: str = ""
    background: str = ""


PLAIN_STYLE = SgrStyle()


@lru_cache(4096)
def style_after_reset(codes: str) -> SgrStyle:
    """The style that a reset and these codes make."""
    attributes: set[str] = set()
    foreground, background = "", ""
    rest = codes.split(";") if codes else []
    while rest:
        code = rest.pop(0)
        if code in ("38", "48", "58"):
            more = 4 if rest[:1] == ["2"] else 2
            code, rest = ";".join((code, *rest[:more])), rest[more:]
        if re.match(r"38;|3[0-79]$|9[0-7]$", code):
            foreground = "" if code == "39" else code
        elif re.match(r"48;|4[0-79]$|10[0-7]$", code):
            background = "" if code == "49" else code
        elif code in ("0", ""):
            attributes, foreground, background = set(), "", ""
        else:
            attributes.add(code)
    return SgrStyle(frozenset(attributes), foreground, background)


@lru_cache(16_384)
def style_change(current: SgrStyle, target: SgrStyle) -> str:
    """The shortest of the plain ways from one style to another."""
    if current == target:
        return ""
    if target == PLAIN_STYLE:
        return SGR_RESET
    if not current.attributes <= target.attributes:
        codes = [
            "0",
            *sorted(target.attributes),
            target.foreground,
            target.background,
        ]
    else:
        codes = sorted(target.attributes - current.attributes)
        if target.foreground != current.foreground:
            codes.append(target.foreground or "39")
        if target.background != current.background:
            codes.append(target.background or "49")
    return f"\x1b[{';'.join(code for code in codes if code)}m"


def compress_sgr(data: str) -> str:
    """`data`, as written to a terminal whose style is plain, with the same effect in fewer bytes.

    It leaves the terminal plain, whatever `data` does.
    """
    parts = _SGR_SEQUENCE.split(data)
    if len(parts) < 3:
        return data
    current = target = PLAIN_STYLE
    output: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            target = (
                style_after_reset(part)
                if target == PLAIN_STYLE or part in ("", "0")
                else _apply_codes(target, part)
            )
        elif part:
            needed = _style_needed_for(part, current, target)
            output.append(style_change(current, needed))
            output.append(part)
            current = needed
    return "".join(output) + style_change(current, PLAIN_STYLE)


def _apply_codes(before: SgrStyle, codes: str) -> SgrStyle:
    """Codes that come without a reset."""
    previous = filter(None, (*before.attributes, before.foreground, before.background))
    return style_after_reset(f"{';'.join(previous)};{codes}")


def _style_needed_for(part: str, current: SgrStyle, target: SgrStyle) -> SgrStyle:
    """What a piece of text needs of the style that is wanted for it."""
    text = _OTHER_SEQUENCE.sub("", part)
    if not text:
        return current
    if text.isspace() and not (current.attributes | target.attributes) & _ATTRIBUTES_SEEN_ON_BLANKS:
        return SgrStyle(current.attributes, current.foreground, target.background)
    return target


_SGR_BODY = r"\[[0-9;:]*m"
SCREEN_SEQUENCES = (
    rf"{_SGR_BODY}|\[[0-9]+;[0-9]+H|\[H"
    r"|\[\?(?:7|25|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
    r"|\[\?(?:2026|2048)\$p|\[>[0-9]{1,2}u|\[<u"
)
_POINTER_SHAPE_SEQUENCE = re.compile(r"\x1b\]22;[a-z-]{1,20}\x07")
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
BELL = "\x07"
HANGUP_POLL_MS = 1_000
"""How often a thread that waits for the end of the terminal looks whether it is needed."""


def allow_only(sequences: str, data: str) -> str:
    """`data` with nothing that a terminal obeys but sequences that match after their ESC."""
    parts = re.split(rf"(\x1b(?:{sequences}))", data)
    parts[::2] = (_CONTROL_CHARACTERS.sub("\ufffd", part) for part in parts[::2])
    return "".join(parts)


def clipboard_sequence(text: str, passed: bool) -> str:
    """OSC 52 for `text`; passed: wrapped for a multiplexer in between."""
    sequence = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    return pass_through_tmux(sequence) if passed else sequence


def pass_through_tmux(sequence: str) -> str:
    """A sequence wrapped for a tmux in between, which hands it on where it may."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


_OSC_777_TERMINALS = ("rxvt", "foot")
"""Beginnings of TERM where a notification is OSC 777; VTE's say so in the environment."""
_NO_OSC_TERMINALS = ("linux", "dumb", "vt")
"""Where a sequence that is not known may be printed."""


def notification_sequence(text: str, environment: Mapping[str, str]) -> str:
    """The sequence that asks a terminal to notify its person: OSC 777 or 9; empty if it would show.

    Only one of them is sent, so that nobody is notified twice. A multiplexer in between passes it
    on where it may (`set -g allow-passthrough on`).
    """
    term = environment.get("TERM", "")
    words = _CONTROL_CHARACTERS.sub(" ", text.replace("\n", " ").replace("\t", " "))
    if not term or term.startswith(_NO_OSC_TERMINALS):
        return ""
    if term.startswith(_OSC_777_TERMINALS) or environment.get("VTE_VERSION"):
        sequence = f"\x1b]777;notify;Houston;{words.replace(';', ',')}\x07"
    else:
        sequence = f"\x1b]9;Houston: {words}\x07"
    passed = clipboard_method(environment) != "terminal"
    return pass_through_tmux(sequence) if passed else sequence


_AFTER_ESCAPE = frozenset("[O]P\\\x7fbf")
"""What begins or ends a sequence; the deletion and the moves by words of a composer."""


class TypedKeyParser(XTermParser):
    """Textual's parser, but escape and a key that came in one read are two keys.

    tmux holds an escape back for half a second and a slow line for longer: what was typed until
    then comes as alt and a letter, which nothing here is bound to. Textual would drop the escape
    before ctrl+q and a letter, and make a sign of a digit. Of alt+enter it would make enter, which
    sends a draft instead of breaking its line.
    """

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if sequence == "\x1b\r":
            yield events.Key("alt+enter", None)
            return
        if len(sequence) == 2 and sequence[0] == "\x1b" and sequence[1] not in _AFTER_ESCAPE:
            yield events.Key("escape", "\x1b")
            sequence = sequence[1]
        yield from super()._sequence_to_key_events(sequence, alt)


class SafeDriver(LinuxDriver):
    """Textual's driver behind the filter, on stdout; stderr stays free for `2>file`, where faults
    are written. The driver ends when its terminal closes.

    A closing terminal sends SIGHUP only to those that it controls. Textual would read its end of
    file forever, and wait forever to write once its queue is full.
    """

    typed_ahead = ""
    """What somebody typed before the driver read the terminal: it is read first."""
    _hung_up = False
    """Whether there is no terminal any more."""

    def __init__(self, app: Any, **arguments: Any) -> None:
        super().__init__(app, **arguments)
        self._file = sys.__stdout__

    def start_application_mode(self) -> None:
        """As Textual's; from now on the terminal is watched, too."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._watch, name="terminal-watch", daemon=True).start()

    def run_input_thread(self) -> None:
        """As Textual's, behind what was typed ahead."""
        typed, SafeDriver.typed_ahead = SafeDriver.typed_ahead, ""
        for message in TypedKeyParser().feed(typed) if typed else ():
            self.process_message(message)
        # Textual's loop makes its parser by this name and lets nobody hand it another.
        linux_driver.XTermParser = TypedKeyParser  # type: ignore[attr-defined]
        super().run_input_thread()

    def _watch(self) -> None:
        watched = select.poll()
        watched.register(self.fileno, 0)  # a hang-up is told always
        while not self.exit_event.is_set():
            if watched.poll(HANGUP_POLL_MS):
                self._hung_up = True
                self.exit_event.set()  # nothing more is read
                self._app.call_later(self._app.exit)
                return

    def write_past_filter(self, sequence: str) -> None:
        """Write what `alert` or `clipboard_sequence` made, which the filter would take out."""
        if not self._hung_up:
            super().write(sequence)

    def write(self, data: str) -> None:
        """Write what Textual wrote: no bell, and no OSC 52 (the clipboard)."""
        if data == BELL or self._hung_up:
            return
        super().write(
            data
            if _POINTER_SHAPE_SEQUENCE.fullmatch(data)
            else compress_sgr(reposition_after_disputed_width(allow_only(SCREEN_SEQUENCES, data)))
        )


def alert(driver: object, text: str) -> None:
    """Ring the bell, and ask for a notification; nothing but a terminal's own driver does."""
    if isinstance(driver, SafeDriver):
        driver.write_past_filter(BELL + notification_sequence(text, os.environ))


class _ColourStream:
    """A stream for what is said after the screen has closed: text and colours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; of sequences only colours."""
        return self._stream.write(allow_only(_SGR_BODY, text))

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's file descriptor."""
        return self._stream.fileno()


def crash_console() -> Console:
    """Where a fault of the app is told: its trace shows locals, which hold anybody's text."""
    stream: TextIO = _ColourStream(sys.__stderr__ or sys.stderr)  # type: ignore[assignment]
    return Console(file=stream, markup=False, highlight=False, emoji=False)


ClipboardMethod = Literal["tmux", "passed through", "terminal"]

MAX_OSC52_CHARACTERS = 74_994
"""Characters of base64 that terminals take in one sequence; xterm is the narrowest."""
TMUX_TIMEOUT_SECONDS = 3.0
"""How long tmux may take."""


class CopyOutcome(NamedTuple):
    """Whether text was copied, in words for the person."""

    text: str
    succeeded: bool = True


def clipboard_method(environment: Mapping[str, str]) -> ClipboardMethod:
    """How the clipboard is reached from a terminal with this environment.

    `passed through`: a tmux or screen somewhere between here and the person, which must hand the
    sequence on (`set -g allow-passthrough on`).
    """
    if environment.get("TMUX"):
        return "tmux"
    if environment.get("TERM", "").startswith(("tmux", "screen")):
        return "passed through"
    return "terminal"


async def copy_text(
    text: str,
    label: str,
    environment: Mapping[str, str],
    write: Callable[[str], None],
    folder: Path,
) -> CopyOutcome:
    """Put `text` into the clipboard, or into a file of `folder` where that cannot be.

    label: how the text is named to the person. write: sends a sequence to the terminal. Raises
    OSError when not even the file can be written.
    """
    size = f"{label}, {len(text):,} characters"
    reached = clipboard_method(environment)
    if reached == "tmux" and await _load_tmux_buffer(text, environment):
        return CopyOutcome(f"Copied {size}, through tmux.")
    if len(text.encode()) * 4 / 3 > MAX_OSC52_CHARACTERS:
        path = await asyncio.to_thread(_write_copy_file, text, folder)
        return CopyOutcome(f"Too long for the clipboard ({size}); it is in {path}", False)
    write(clipboard_sequence(text, reached == "passed through"))
    return CopyOutcome(f"Copied {size}.")


async def _load_tmux_buffer(text: str, environment: Mapping[str, str]) -> bool:
    """Whether tmux took it, for itself and for the terminals that look at it."""
    try:
        child = await asyncio.create_subprocess_exec(
            *("tmux", "load-buffer", "-w", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
        )
    except OSError:  # no tmux here, although somebody's is named: the terminal is asked
        return False
    try:
        async with asyncio.timeout(TMUX_TIMEOUT_SECONDS):
            await child.communicate(text.encode())
    except TimeoutError:
        child.kill()
        await child.wait()
        return False
    return child.returncode == 0


def _write_copy_file(text: str, folder: Path) -> Path:
    """Write it where only the person can read it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(prefix="copied-", suffix=".txt", dir=folder)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
