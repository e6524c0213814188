"""A console on a terminal that was handed to it: what it needs of one, and that it leaves with it.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_shared.home import Home
from tests.console.conftest import LiveStation
from tests.console.home_builder import HomeBuilder

SECONDS = 60.0
DRAFT = "half a thought"


def _read(master: int) -> bytes:
    watched = select.poll()
    watched.register(master, select.POLLIN)
    readable = any(event & select.POLLIN for _, event in watched.poll(100))  # not only a hang-up
    return os.read(master, 1 << 16) if readable else b""


def until(reached: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end, why
        time.sleep(0.02)


@contextmanager
def open_console(home: Home, folder: Path, *words: str, **streams: Any) -> Iterator["Terminal"]:
    """`houston console`; streams: those that are not the terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", "console", *words],
        **{"stdin": slave, "stdout": slave, "stderr": slave, **streams},
        env={
            **os.environ,
            "HOUSTON_HOME": str(home.path),
            "XDG_STATE_HOME": str(folder / "state"),
            "TERM": "xterm-256color",
            "TMUX": "",
            "VTE_VERSION": "",
        },
        start_new_session=True,  # and so without a terminal that controls it
    )
    os.close(slave)
    try:
        yield Terminal(master, process, bytearray())
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def home(builder: HomeBuilder) -> Home:
    """With one rollout."""
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "I look at what there is.")
    return builder.home


class Terminal(NamedTuple):
    """A terminal and the console on it."""

    master: int
    process: subprocess.Popen[bytes]
    output: bytearray

    def shows(self, text: bytes) -> bool:
        self.output.extend(_read(self.master))
        return text in self.output

    def leaves(self) -> int:
        """Its exit code; what it draws last is read, for it would wait at a full terminal."""

        def has_left() -> bool:
            self.output.extend(_read(self.master))
            return self.process.poll() is not None

        until(has_left, "it leaves")
        return self.process.wait()


def test_a_console_without_a_terminal_leaves(home: Home, tmp_path: Path) -> None:
    def is_kept() -> bool:
        drafts = (tmp_path / "state").rglob("drafts/*")
        return any(DRAFT in draft.read_text() for draft in drafts)

    with open_console(home, tmp_path) as terminal:
        until(lambda: terminal.shows(b"I look at what"), "the step shows")
        os.write(terminal.master, b"5" + DRAFT.encode())
        until(lambda: terminal.shows(b"half") and is_kept(), "the draft is kept")
        os.close(terminal.master)
        assert terminal.process.wait(SECONDS) == 0
        assert is_kept()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        pytest.param(b"+Look.\x1b[Z\x1577\r", b"'77' is not a number", id="the line before"),
        pytest.param(b"/\x0f\x0fLook\r", "Look  1 found · as written · all rollouts".encode(),
                     id="a search of all rollouts"),
    ],
)  # fmt: skip
def test_keys_of_one_write_go_where_the_focus_has_moved(
    home: Home, tmp_path: Path, typed: bytes, shown: bytes
) -> None:
    with open_console(home, tmp_path) as terminal:
        until(lambda: terminal.shows(b"I look at what"), "the step shows")
        os.write(terminal.master, typed)
        until(lambda: terminal.shows(shown), "what the keys say")


def test_stderr_may_go_to_a_file(home: Home, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("wb") as file, open_console(home, tmp_path, stderr=file) as terminal:
        until(lambda: terminal.shows(b"I look at what"), "the step shows")
        os.write(terminal.master, b"q")
        assert terminal.leaves() == 0
        assert errors.read_bytes() == b""


def test_stdout_has_to_be_a_terminal(home: Home, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    with shown.open("wb") as file, open_console(home, tmp_path, stdout=file) as terminal:
        until(lambda: terminal.shows(b"The console needs a terminal"), "it says so")
        assert terminal.leaves() == 2
        assert shown.read_bytes() == b""


def test_somebody_sits_there_under_the_name_that_they_give(
    live: LiveStation, tmp_path: Path
) -> None:
    live.working().step(1)
    with open_console(live.home, tmp_path, "--as", "ben") as terminal:
        query = "SELECT name, verified FROM looks WHERE here = 1"
        until(lambda: terminal.shows(b"live") and live.query(query) == [("ben", 0)], "it is known")
        os.write(terminal.master, b"q")
        assert terminal.leaves() == 0


def test_who_leaves_before_undoing_is_told_how_to(live: LiveStation, tmp_path: Path) -> None:
    worker = live.working()
    worker.step(1)
    with open_console(live.home, tmp_path, worker.rollout, "--as", "ben") as terminal:
        # A key counts once the rollout itself has been read, which may be after the connection.
        until(lambda: terminal.shows(b"live") and terminal.shows(b"running"), "it is there")
        os.write(terminal.master, b"p")
        until(lambda: terminal.shows(b"takes it back"), "it is paused")
        os.write(terminal.master, b"q")
        undo = f"to undo it: houston rollout resume {worker.rollout}".encode()
        until(lambda: terminal.shows(undo), "how to undo it")
        assert terminal.leaves() == 0
