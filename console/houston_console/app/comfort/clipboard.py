"""How a text gets from here into the clipboard of the person at the other end of SSH and tmux.

Terminals take OSC 52; tmux takes it from a program only when it was told to, but sets the clipboard
of the terminals that look at it for `tmux load-buffer -w`, whatever its settings. So that comes
first where the console itself runs in a tmux. What is too long for a terminal goes into a file.
Nothing here writes to the terminal; the driver's gate is in `driver`.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from houston_console.app.driver import clipboard_sequence

Way = Literal["tmux", "passed through", "terminal"]

LONGEST = 74_994
"""Characters of base64 that terminals take in one sequence; xterm is the narrowest."""
SECONDS = 3.0
"""How long tmux may take."""


class Copied(NamedTuple):
    """What became of it, for the person."""

    words: str
    good: bool = True


def way(environment: Mapping[str, str]) -> Way:
    """How the clipboard is reached from a terminal with this environment.

    `passed through`: a tmux or screen somewhere between here and the person, which must hand the
    sequence on (`set -g allow-passthrough on`).
    """
    if environment.get("TMUX"):
        return "tmux"
    if environment.get("TERM", "").startswith(("tmux", "screen")):
        return "passed through"
    return "terminal"


async def copy(
    text: str, what: str, environment: Mapping[str, str], write: Callable[[str], None], folder: Path
) -> Copied:
    """Put `text` into the clipboard, or into a file of `folder` where that cannot be.

    what: how the text is named to the person. write: sends a sequence to the terminal. Raises
    OSError when not even the file can be written.
    """
    size = f"{what}, {len(text):,} characters"
    reached = way(environment)
    if reached == "tmux" and await _loaded(text, environment):
        return Copied(f"Copied {size}, through tmux.")
    if len(text.encode()) * 4 / 3 > LONGEST:
        path = await asyncio.to_thread(_kept, text, folder)
        return Copied(f"Too long for the clipboard ({size}); it is in {path}", False)
    write(clipboard_sequence(text, reached == "passed through"))
    return Copied(f"Copied {size}.")


async def _loaded(text: str, environment: Mapping[str, str]) -> bool:
    """Whether tmux took it, for itself and for the terminals that look at it."""
    try:
        child = await asyncio.create_subprocess_exec(
            *("tmux", "load-buffer", "-w", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
        )
    except OSError:  # no tmux here, although somebody's is named: the terminal is asked
        return False
    try:
        async with asyncio.timeout(SECONDS):
            await child.communicate(text.encode())
    except TimeoutError:
        child.kill()
        await child.wait()
        return False
    return child.returncode == 0


def _kept(text: str, folder: Path) -> Path:
    """Write it where only the person can read it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(prefix="copied-", suffix=".txt", dir=folder)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
