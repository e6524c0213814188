"""A program in a real pty: what it writes is kept byte for byte, keys go in as bytes."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LANG": "C.UTF-8",
    "HOME": os.environ.get("HOME", "/"),
}
PATIENCE = 60.0
"""Seconds until a program that says nothing is given up."""


class Session:
    """One program. Use `with`."""

    def __init__(
        self, words: Sequence[str | bytes], home: Path, columns: int, rows: int, **more: str
    ) -> None:
        self.captured = bytearray()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.state = home.parent / "state"
        state = {"XDG_STATE_HOME": str(self.state), "HOUSTON_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "houston_shared.command", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**ENVIRONMENT, **state, **more},
            start_new_session=True,
            cwd=home.parent,
        )
        os.close(slave)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def read(self, quiet: float) -> bool:
        """Take what comes until nothing did for `quiet` seconds; False when the program ended."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if not select.select([self._master], [], [], quiet)[0]:
                return True
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the other side is closed
                return False
            if not data:
                return False
            self.captured += data
        raise AssertionError(f"the program never fell silent: {bytes(self.captured[-1500:])!r}")

    def until(self, text: str) -> None:
        """Take what comes until `text` was written."""
        assert self.shows(text, PATIENCE), f"no {text!r} in {bytes(self.captured[-2000:])!r}"

    def shows(self, text: str, seconds: float) -> bool:
        """Whether `text` was written, now or within `seconds`."""
        end = time.monotonic() + seconds
        while text.encode() not in self.captured:
            if time.monotonic() > end or not self.read(0.02):
                return text.encode() in self.captured
        return True

    def press(self, *keys: str, quiet: float = 0.06) -> None:
        """Press keys one after the other; each is answered before the next."""
        for key in keys:
            before = len(self.captured)
            os.write(self._master, KEYS.get(key, key).encode())
            for _ in range(4):
                self.read(quiet)
                if len(self.captured) > before:
                    break

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        while self.read(1.0):
            assert self.process.poll() is None or self.read(0.1) is False
        return self.process.wait(PATIENCE)


KEYS = {
    "pagedown": "\x1b[6~",
    "pageup": "\x1b[5~",
    "escape": "\x1b",
    "enter": "\r",
    "tab": "\t",
    "right": "\x1b[C",
    "down": "\x1b[B",
    "end": "\x1b[F",
    "ctrl+q": "\x11",
    "ctrl+c": "\x03",
}
