"""The command that brings what a terminal on another machine printed.

`houston rollout printed` runs as a process of its own, for `houston steps` and for the console: it
speaks SSH, which neither is to wait for or import. Where the bytes go is the caller's.
"""

import sys
from pathlib import Path


def fetch_command(
    home: Path, rollout: str, terminal: tuple[str, str], out: Path, start: int, end: int | None
) -> list[str]:
    """What writes bytes `start` to `end` of a log (None: its end) to `out`.

    terminal: its host and name.
    """
    host, name = terminal
    words = ["rollout", "printed", rollout, f"--host={host}", f"--out={out}", f"--from={start}"]
    words += [] if end is None else [f"--to={end}"]
    return [sys.executable, "-m", "houston_shared.command", "--home", str(home), *words, "--", name]


def first_error_line(stderr: bytes) -> str:
    """The reason why it failed; empty where it gave none."""
    lines = stderr.decode(errors="replace").removeprefix("houston: ").splitlines()
    return lines[0] if lines else ""
