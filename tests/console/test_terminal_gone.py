"""A console whose terminal is closed leaves, though no signal tells it, and keeps the draft.

Only a terminal that controls a process sends it SIGHUP; one that was handed to it sends nothing.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.console.homes import HomeBuilder

SECONDS = 60.0
DRAFT = "half a thought"


def _read(master: int) -> bytes:
    return os.read(master, 1 << 16) if select.select([master], [], [], 0.1)[0] else b""


def _until(reached: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end, why
        time.sleep(0.02)


def test_a_console_without_a_terminal_leaves(builder: HomeBuilder, tmp_path: Path) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "I look at what there is.")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", "console", "r"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={
            **os.environ,
            "HOUSTON_HOME": str(builder.home.path),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "TERM": "xterm-256color",
        },
        start_new_session=True,  # and so without a terminal that controls it
    )
    os.close(slave)
    seen = bytearray()

    def kept() -> bool:
        drafts = (tmp_path / "state").rglob("drafts/*")
        return any(DRAFT in one.read_text() for one in drafts)

    def shows(text: bytes) -> bool:
        seen.extend(_read(master))
        return text in seen

    try:
        _until(lambda: shows(b"I look at what"), "the step shows")
        os.write(master, b"5" + DRAFT.encode())
        _until(lambda: shows(b"half") and kept(), "the draft is kept")
        os.close(master)
        assert process.wait(SECONDS) == 0
        assert kept()
    finally:
        process.kill()
        process.wait()
