"""A program in a pseudo-terminal of 160 columns and 50 lines, timed from outside.

Times end when the bytes that hold a text were read from the terminal, which is later than when a
program believes to have drawn it. Nothing is known here of what the program is.
"""

import fcntl
import os
import pty
import resource
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS, ROWS = 160, 50
PATIENCE = 60.0
"""Seconds until a program that does not answer is given up."""
CLOCK = os.sysconf("SC_CLK_TCK")
ENTER = "\r"


class Terminal:
    """One program. Use `with`."""

    def __init__(self, words: Sequence[str], folder: Path, more: Mapping[str, str]) -> None:
        """more: variables beside those that every terminal has. folder: where it starts."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, **terminal, **more},
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # it ends with its terminal
        )
        os.close(slave)
        self._tail = self._seen = b""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    # --- keys and answers --------------------------------------------------------------------

    def until(self, *texts: str, since: float = 0.0, again: bool = False) -> float:
        """Milliseconds from `since`, or from now, until one of the texts was written.

        again: what came with the text that was waited for last counts too.
        """
        began = since or time.perf_counter()
        seen, wanted = self._seen if again else b"", [text.encode() for text in texts]
        while not any(text in seen for text in wanted):
            data = self._read(PATIENCE)
            if not data:
                raise AssertionError(f"none of {texts} came; the last was {self._tail[-2000:]!r}")
            seen = seen[-200:] + data
        self._seen = seen
        return 1000 * (time.perf_counter() - began)

    def press(self, keys: str, *texts: str) -> float:
        """Milliseconds from the keys until one of the texts was written."""
        began = time.perf_counter()
        self.type(keys)
        return self.until(*texts, since=began)

    def type(self, keys: str) -> None:
        """Send keys and wait for nothing."""
        os.write(self._master, keys.encode())

    def quiet(self, seconds: float = 0.5, most: float = 60.0) -> None:
        """Wait until nothing was written for `seconds`, or `most` are over."""
        end = time.perf_counter() + most
        while self._read(seconds) and time.perf_counter() < end:
            pass

    def written(self, seconds: float) -> int:
        """Bytes that it writes during so many seconds."""
        count, end = 0, time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            count += len(self._read(left))
        return count

    def _read(self, seconds: float) -> bytes:
        if not select.select([self._master], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # it has ended
            return b""
        self._tail = (self._tail + data)[-10_000:]
        return data

    # --- what it costs -----------------------------------------------------------------------

    def memory_mb(self) -> float:
        """Its resident memory now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return round(pages * resource.getpagesize() / 1e6, 1)

    def cpu_ms(self) -> float:
        """Processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / CLOCK
