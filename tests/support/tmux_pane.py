"""What a real tmux shows of bytes: a pane as terminals of rollouts have it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from houston_shared.terminal_log_files import PANE_COLUMNS, PANE_ROWS

_PRINTER = """
import os, sys, tty
tty.setraw(0)
with open(sys.argv[1], "rb") as file:
    data = file.read()
while data:
    data = data[os.write(1, data):]
os.write(1, b"\\x1b[5n")  # answered once all before it was read
answer = b""
while not answer.endswith(b"\\x1b[0n"):
    answer += os.read(0, 1)
os.system(f"tmux -S {sys.argv[2]} wait-for -S shown")
os.read(0, 1)
"""


class Shown(NamedTuple):
    """What tmux shows; without blanks at the ends of lines, and empty lines at the end."""

    lines: list[str]
    """All of them, those that wrap joined."""
    screen: list[str]
    """Those on the screen."""
    coloured: bytes
    """All lines with the sequences of their colours."""


class TmuxPane:
    """A tmux server of its own; `show` gives each text a pane."""

    def __init__(self, folder: Path) -> None:
        self._socket, self._folder = folder / "tmux", folder
        (folder / "printer.py").write_text(_PRINTER)
        (folder / "tmux.conf").write_text(
            "set -g default-terminal screen-256color\nset -g history-limit 100000\n"
            "set -g status off\nset -g exit-empty off\n"
        )
        self._call("-f", str(folder / "tmux.conf"), "start-server")

    def _call(self, *words: str) -> str:
        command = ["tmux", "-u", "-S", str(self._socket), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def show(self, data: bytes) -> Shown:
        """Print bytes into a new pane, and look at it."""
        printed = self._folder / "printed"
        printed.write_bytes(data)
        script = str(self._folder / "printer.py")
        size = ("-x", str(PANE_COLUMNS), "-y", str(PANE_ROWS))
        words = [sys.executable, script, str(printed), str(self._socket)]
        self._call("new-session", "-d", "-s", "pane", *size, *words)
        try:
            self._call("wait-for", "shown")
            whole = ("capture-pane", "-p", "-J", "-S", "-", "-E", "-", "-t", "=pane:")
            lines, coloured = self._call(*whole), self._call(*whole, "-e")
            screen = self._call("capture-pane", "-p", "-J", "-t", "=pane:")
        finally:
            self._call("kill-session", "-t", "=pane")
        return Shown(_lines(lines), _lines(screen), coloured.encode())

    def close(self) -> None:
        """End the server."""
        self._call("kill-server")


def _lines(shown: str) -> list[str]:
    lines = [line.rstrip() for line in shown.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
