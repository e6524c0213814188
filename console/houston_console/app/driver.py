"""The second filter: what may leave for the terminal, whatever wrote it.

`SafeText` keeps hostile bytes out of widgets; this driver stands behind it, where Textual writes.
It passes the sequences that Textual 8.2 itself writes (colours, cursor positions, the modes of
`LinuxDriver`, pointer shapes) and replaces every other control character. It cannot tell a colour
of ours from one in a text: that is the first filter's part. It shares no code with the first, so
that one fault cannot open both. What has passed is only given cursor
positions (`placing`), and colours that change nothing are left out (`thrift`).
"""

import base64
import re
import select
import sys
import threading
from typing import Any, Protocol, TextIO, runtime_checkable

from rich.console import Console
from textual.drivers.linux_driver import LinuxDriver

from houston_console.app.drawing.placing import placed
from houston_console.app.drawing.thrift import thrifty

_COLOURS = r"\[[0-9;:]*m"
SCREEN = (
    rf"{_COLOURS}|\[[0-9]+;[0-9]+H|\[H"
    r"|\[\?(?:7|25|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
    r"|\[\?(?:2026|2048)\$p|\[>[0-9]{1,2}u|\[<u"
)
_POINTER = re.compile(r"\x1b\]22;[a-z-]{1,20}\x07")
_CLIPBOARD = re.compile(
    r"\x1b\]52;c;[A-Za-z0-9+/=]*\x07|\x1bPtmux;\x1b\x1b\]52;c;[A-Za-z0-9+/=]*\x07\x1b\\"
)
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
BELL = "\x07"
WATCH_MS = 1_000
"""How often a thread that waits for the end of the terminal looks whether it is needed."""


def only(sequences: str, data: str) -> str:
    """`data` with nothing that a terminal obeys but sequences that match after their ESC."""
    parts = re.split(rf"(\x1b(?:{sequences}))", data)
    parts[::2] = (_OBEYED.sub("\ufffd", part) for part in parts[::2])
    return "".join(parts)


def clipboard_sequence(text: str, passed: bool) -> str:
    """OSC 52 for `text`; passed: wrapped for a multiplexer in between."""
    made = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    return "\x1bPtmux;" + made.replace("\x1b", "\x1b\x1b") + "\x1b\\" if passed else made


@runtime_checkable
class Presses(Protocol):
    """An app that knows whether a key was just pressed."""

    def may_copy(self) -> bool:
        """Whether a key asked for the clipboard; once for each key."""
        ...


class SafeDriver(LinuxDriver):
    """Textual's driver behind the filter, on stdout: stderr is free for `2>file`, where a fault is
    told. It leaves with its terminal.

    A terminal that is closed sends SIGHUP only to those that it controls. Textual would read its
    end for ever, and wait for ever to write once its queue is full.
    """

    _gone = False
    """Whether there is no terminal any more."""

    def __init__(self, app: Any, **arguments: Any) -> None:
        super().__init__(app, **arguments)
        self._file = sys.__stdout__

    def start_application_mode(self) -> None:
        """As Textual's; from now on the terminal is watched, too."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._watch, name="terminal-watch", daemon=True).start()

    def _watch(self) -> None:
        watched = select.poll()
        watched.register(self.fileno, 0)  # a hang-up is told always
        while not self.exit_event.is_set():
            if watched.poll(WATCH_MS):
                self._gone = True
                self.exit_event.set()  # nothing more is read
                self._app.call_later(self._app.exit)
                return

    def write(self, data: str) -> None:
        """Write what Textual wrote; OSC 52 (the clipboard) only when a key asked, no bell."""
        if data == BELL or self._gone:
            return
        if _CLIPBOARD.fullmatch(data):
            if isinstance(self._app, Presses) and self._app.may_copy():
                super().write(data)
            return
        super().write(data if _POINTER.fullmatch(data) else thrifty(placed(only(SCREEN, data))))


class _Coloured:
    """A stream for what is said after the screen has closed: text and colours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; of sequences only colours."""
        return self._stream.write(only(_COLOURS, text))

    def flush(self) -> None:
        """Let it be seen."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether somebody looks at it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's own number."""
        return self._stream.fileno()


def last_words() -> Console:
    """Where a fault of the app is told: its trace shows locals, which hold anybody's text."""
    stream: TextIO = _Coloured(sys.__stderr__ or sys.stderr)  # type: ignore[assignment]
    return Console(file=stream, markup=False, highlight=False, emoji=False)
