"""One tmux server per rollout, used through its own socket and never with the user's settings.

Knows how to make, query and end sessions, and where a socket can be (a path ends at 107 bytes, so
for a long folder the socket gets a short path elsewhere). It knows nothing of the shell inside.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from houston_daemon.hosts.host_files import private_folder
from houston_daemon.hosts.process_table import MARK_VARIABLE
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.terminal_log_files import PANE_COLUMNS, PANE_ROWS, socket_note

_LONGEST_SOCKET = 99
_PIECE = re.compile(r"\0|[^\0]{1,2000}")
"""What one command of tmux types."""


def find_tmux_socket(folder: Path) -> Path:
    """The socket for the terminals under `folder`; the same one for ever, from its `socket` file.

    Raises HoustonError when the folder for short sockets belongs to somebody else.
    """
    note = socket_note(folder)
    noted = note.read_text().strip() if note.exists() else ""
    if noted:  # a power cut may have left it empty
        chosen = Path(noted)
        chosen.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return chosen
    chosen = folder / "tmux"
    if len(os.fsencode(chosen)) > _LONGEST_SOCKET:
        chosen = (
            private_folder("terminal sockets")
            / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        )
    atomic_file.write_atomically(note, os.fsencode(chosen) + b"\n", durable=False)
    return chosen


class TmuxServer:
    """Commands to one server; every call is a short tmux process (about 3 ms)."""

    def __init__(self, socket: Path, mark: str = "") -> None:
        self.socket = socket
        self._mark = mark
        """What the server carries in its environment, to be found by when its socket is lost."""

    async def call(self, *arguments: str) -> tuple[int, str]:
        """Run one tmux command; returns its exit code and output (the error text on failure)."""
        process = await asyncio.create_subprocess_exec(
            *self._command(arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_server_environment(), MARK_VARIABLE: self._mark},
            cwd="/",
            start_new_session=True,
        )
        out, error = await process.communicate()
        code = process.returncode or 0
        return code, (error if code else out).decode("utf-8", "replace").strip()

    async def new_session(self, name: str, command: str, sink: str) -> None:
        """Start a session whose pane runs the shell line `command`, its bytes piped into `sink`.

        Raises HoustonError with tmux's own words when it refuses.
        """
        setup: list[str] = ["start-server"]
        for option, value in (
            ("remain-on-exit", "on"),
            ("default-terminal", "screen-256color"),
            ("default-shell", "/bin/sh"),
            ("default-size", f"{PANE_COLUMNS}x{PANE_ROWS}"),
            ("history-limit", "5000"),
            ("status", "off"),
            ("allow-rename", "off"),
            ("set-titles", "off"),
            ("set-clipboard", "off"),
            ("escape-time", "0"),
            ("prefix", "None"),
        ):
            setup += [";", "set-option", "-g", option, value]
        size = ("-x", str(PANE_COLUMNS), "-y", str(PANE_ROWS))
        target = f"={name}:"
        code, answer = await self.call(
            *setup,
            *(";", "new-session", "-d", "-s", name, *size, command),
            # Not set before: tmux 3.3 ends when a session is made while it is "manual" for all.
            *(";", "set-option", "-w", "-t", target, "window-size", "manual"),
            *(";", "pipe-pane", "-t", target, _escape_formats(sink)),
        )
        if code:
            raise HoustonError(
                f"tmux could not open a terminal: {answer}.",
                "No terminal was opened.",
                f"Look at the server with: tmux -S {self.socket} ls",
            )

    async def pipe(self, name: str, sink: str) -> bool:
        """Pipe the pane's bytes into `sink` from now on, in place of what was there."""
        code, _ = await self.call("pipe-pane", "-t", f"={name}:", _escape_formats(sink))
        return code == 0

    async def pane_pid(self, name: str) -> int | None:
        """Pid of what the session's pane runs; None without such a session."""
        code, answer = await self.call("display-message", "-p", "-t", f"={name}:", "#{pane_pid}")
        return int(answer) if code == 0 and answer.isdigit() else None

    async def type_keys(self, name: str, text: str) -> bool:
        """Type `text` as it is; a line feed is the Enter key. False without such a session."""
        keys = text.replace("\r\n", "\r").replace("\n", "\r")
        for piece in _PIECE.findall(keys):
            # No argument can hold a NUL, which a keyboard gives at Ctrl-@.
            typed = ("--", "C-@") if piece == "\0" else ("-l", "--", _escape_keys(piece))
            code, _ = await self.call("send-keys", "-t", f"={name}:", *typed)
            if code:
                return False
        return True

    async def kill_session(self, name: str) -> None:
        """End a session; nothing happens when there is none."""
        await self.call("kill-session", "-t", f"={name}")

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [
            shutil.which("tmux") or "tmux",
            "-f",
            "/dev/null",
            "-S",
            str(self.socket),
            *arguments,
        ]


def _server_environment() -> dict[str, str]:
    """What the server may know: nothing of the daemon's secrets, for panes inherit it."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "TERM": "screen-256color",
        "LANG": "C.UTF-8",
    }


def _escape_formats(command: str) -> str:
    """A command that tmux's formats and strftime leave alone."""
    return command.replace("%", "%%").replace("#", "##")


def _escape_keys(text: str) -> str:
    """A trailing `;` would end tmux's own command."""
    return text[:-1] + "\\;" if text.endswith(";") else text
