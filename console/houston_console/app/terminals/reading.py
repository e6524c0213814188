"""What one terminal shows now: its log, what tmux shows of it, or why neither can be read here.

tmux is asked where there is no log, and where a program paints its whole screen: its log is then no
text. Nothing is written and no key is ever typed.
"""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

from houston_console.app.drawing.lines import Line
from houston_console.app.terminals.log import Index, grown, read
from houston_console.app.terminals.text import tail_lines
from houston_shared import terminal_folder

_LOOK_BACK = 64 * 1024
"""Bytes at the end of a log in which a program may have begun to paint its screen."""
_PAINTS = (b"\x1b[?1049h", b"\x1b[?47h", b"\x1b[?1047h")
_PAINTED = (b"\x1b[?1049l", b"\x1b[?47l", b"\x1b[?1047l")


class Shown(NamedTuple):
    """A terminal as it stands; the same again when nothing was printed."""

    log: Index | None = None
    """Its log; None where there is none."""
    screen: tuple[Line, ...] = ()
    """What tmux shows, where it was asked."""
    origin: str = ""
    """Of what is shown: `log`, `tmux`, or empty."""
    reason: str = ""
    """Why nothing can be seen."""


NOTHING = Shown()


def folder_of(host_root: str, rollout: str, name: str) -> Path | None:
    """Where a terminal of this machine has its log; None where there can be none."""
    if not host_root or not terminal_folder.is_name(name):
        return None
    return terminal_folder.terminals_folder(Path(host_root), rollout) / name


def with_log(host_root: str, rollout: str) -> list[str]:
    """Terminals that have a log on this machine, also before a step recorded them."""
    try:
        return terminal_folder.with_log(terminal_folder.terminals_folder(Path(host_root), rollout))
    except OSError:
        return []


async def look(folder: Path, before: Shown, live: bool) -> Shown:
    """A terminal as it stands now. live: a program that paints its screen is shown by tmux."""
    known = before.log if before.log and before.log.folder == folder else Index(folder)
    try:
        index = await asyncio.to_thread(grown, known)
        paints = live and await asyncio.to_thread(_paints, index)
    except OSError as problem:
        why = f"Its log cannot be read ({problem.strerror})"
        screen, reason = await _ask_tmux(folder)
        return Shown(None, screen, "tmux") if not reason else Shown(reason=f"{why}, and {reason}.")
    if paints:
        screen, reason = await _ask_tmux(folder)
        if not reason:
            found = Shown(index, screen, "tmux")
            return before if found == before else found
    if index is before.log and before.origin == "log":
        return before
    return Shown(index, (), "log")


def _paints(index: Index) -> bool:
    """Whether a program has the whole screen to itself (xterm's alternate screen)."""
    end = read(index.folder, max(index.start, index.end - _LOOK_BACK), index.end)
    begun = max(end.rfind(one) for one in _PAINTS)
    return begun >= 0 and begun > max(end.rfind(one) for one in _PAINTED)


async def _ask_tmux(folder: Path) -> tuple[tuple[Line, ...], str]:
    """What the session's pane shows, or why it cannot be asked."""
    try:
        socket = terminal_folder.socket_note(folder.parent).read_text().strip()
    except OSError:
        return (), "it has no tmux session here"
    tmux = shutil.which("tmux")
    if tmux is None:
        return (), "tmux is not installed here"
    process = await asyncio.create_subprocess_exec(
        *(tmux, "-S", socket, "capture-pane", "-e", "-p", "-t", f"={folder.name}:"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    if process.returncode:
        return (), "tmux does not show it to this user"
    return tuple(tail_lines(output)), ""
