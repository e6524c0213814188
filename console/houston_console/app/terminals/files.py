"""Where a terminal's output can be read on this machine: its log, else tmux, else why not.

The layout is the host's (`terminal_folder`). Nothing is written and no key is ever typed here.
"""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

from houston_console.app.drawing.lines import Line
from houston_console.app.terminals.text import tail_lines
from houston_shared import terminal_folder

TAIL_BYTES = 64 * 1024
"""Bytes of a log's end that are looked at: far more than a screen."""


class Tail(NamedTuple):
    """The end of a terminal's output, or why it cannot be seen."""

    lines: list[Line]
    origin: str
    """`log`, `tmux`, or empty."""
    mark: int = -1
    """Length of the log: as long as it is the same there is nothing new. −1 when there is none."""
    reason: str = ""


async def tail(host_root: str, rollout: str, host: str, name: str, seen: int = -1) -> Tail | None:
    """The end of one terminal's output; None when its log is as long as `seen`."""
    if host != "local":
        fetch = f"houston steps {rollout} --printed"
        return Tail([], "", reason=f"Its log is on the host {host}, not here: {fetch} fetches it.")
    if not host_root or not terminal_folder.is_name(name):
        return Tail([], "", reason="The rollout names no folder for its terminals.")
    terminals = terminal_folder.terminals_folder(Path(host_root), rollout)
    try:
        return await asyncio.to_thread(_from_log, terminals / name, seen)
    except OSError as problem:
        return await _from_tmux(terminals, name, problem)


def known(host_root: str, rollout: str) -> list[str]:
    """Terminals that have a log on this machine, also before a step recorded them."""
    try:
        return terminal_folder.with_log(terminal_folder.terminals_folder(Path(host_root), rollout))
    except OSError:
        return []


def _from_log(folder: Path, seen: int) -> Tail | None:
    segments = terminal_folder.segments(folder)
    if not segments:
        raise FileNotFoundError(2, "no log yet", str(folder))
    size = segments[-1][0] + segments[-1][1].stat().st_size
    if size == seen:
        return None
    data = b""
    for _, path in reversed(segments):
        data = _end(path, TAIL_BYTES - len(data)) + data
        if len(data) >= TAIL_BYTES:
            break
    if len(data) >= TAIL_BYTES:
        data = data.partition(b"\n")[2]
    return Tail(tail_lines(data), "log", size)


def _end(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read(most)


async def _from_tmux(terminals: Path, name: str, problem: OSError) -> Tail:
    why = f"Its log cannot be read ({problem.strerror})"
    try:
        socket = terminal_folder.socket_note(terminals).read_text().strip()
    except OSError:
        return Tail([], "", reason=f"{why}, and it has no tmux session here.")
    tmux = shutil.which("tmux")
    if tmux is None:
        return Tail([], "", reason=f"{why}, and tmux is not installed here.")
    command = (tmux, "-S", socket, "capture-pane", "-e", "-p", "-t", f"={name}:")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    if process.returncode:
        return Tail([], "", reason=f"{why}, and tmux does not show it to this user.")
    return Tail(tail_lines(output), "tmux")
