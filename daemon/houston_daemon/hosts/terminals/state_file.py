"""What is remembered of a terminal on disk, so that a new process finds it as it was left."""

import os
from pathlib import Path

import msgspec

from houston_daemon.hosts.processes import NOBODY, ProcessKey
from houston_daemon.hosts.terminals.marks import Nonces


class TerminalState(msgspec.Struct):
    """One terminal and its last command; written whole, beside and then over the old one."""

    name: str
    token: str = ""
    """Names the processes of this start in their environment; not a secret."""
    pane: ProcessKey = NOBODY
    """tmux's child."""
    init: ProcessKey = NOBODY
    """First process of the sandbox: ending it ends all others there."""
    shell: ProcessKey = NOBODY
    sink: ProcessKey = NOBODY
    """What writes the log."""
    tty: str = ""
    """Path of the shell's terminal, as the shell sees it."""
    closed: bool = False
    ended: bool = False
    """The shell was seen to have ended."""
    shell_code: int | None = None
    """What the shell ended with; None when its session was ended over its head."""
    command: str = ""
    nonces: Nonces | None = None
    """None before the first command."""
    sent_at: int = 0
    """Log offset when the last command was handed over."""
    started_at: int | None = None
    """Log offset of its first output byte."""
    running: bool = False
    exit_code: int | None = None

    def end(self) -> str:
        """How the shell ended, in words that follow a name; empty while it lives."""
        if not self.ended:
            return ""
        if self.closed:
            return "it was closed"
        if self.shell_code is not None:
            return f"its shell ended with exit code {self.shell_code}"
        return "its tmux session was ended from outside, and what ran in it was ended too"


def load(folder: Path) -> TerminalState | None:
    """The state in a terminal's folder; None where there is none, or a power cut left half."""
    try:
        data = (folder / "state.json").read_bytes()
        return msgspec.json.decode(data, type=TerminalState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def save(folder: Path, state: TerminalState) -> None:
    """Replace the state in one move; readable by this user only, for it holds the nonces."""
    beside = folder / "state.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(state))
    beside.replace(folder / "state.json")
