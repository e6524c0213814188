"""Moves a log aside: `log` becomes `log.1`, `log.1` becomes `log.2`, …; the oldest goes.

Whoever has the file open writes on into `log.1` until it opens `log` again: no line is lost, and
none is torn. A kill between two renames leaves a gap in the numbers, which the next turn closes
before it lets go of anything. Standard library only: the log pump of an engine imports it.
"""

from pathlib import Path


def rotate(path: Path, keep: int) -> None:
    """Move `path` aside and keep `keep` older files. Raises OSError; a missing log is none."""
    gap = (n for n in range(1, keep) if not numbered(path, n).exists())
    for number in range(next(gap, keep), 1, -1):
        numbered(path, number - 1).replace(numbered(path, number))
    if path.exists():
        path.replace(numbered(path, 1))


def rotated(path: Path) -> list[Path]:
    """The older files that there are, the newest first."""
    found = []
    for file in path.parent.glob(f"{_literal(path.name)}.*"):
        number = file.name.removeprefix(f"{path.name}.")
        if number.isdecimal():
            found.append((int(number), file))
    return [file for _, file in sorted(found)]


def numbered(path: Path, number: int) -> Path:
    """`log.3` of `log`."""
    return path.with_name(f"{path.name}.{number}")


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
