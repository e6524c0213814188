"""Texts that a person says again and again: a file of their own, one after the other.

Plain text with a line of three dashes between two of them, so that any editor changes them.
"""

from pathlib import Path

from platformdirs import user_config_path

from houston_shared import synced_file

_BETWEEN = "---"


def own_file() -> Path:
    """Where a person keeps theirs."""
    return user_config_path("houston") / "snippets.txt"


def kept(path: Path) -> list[str]:
    """The texts in the file, in its order; none when there is no file. Raises OSError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == _BETWEEN:
            parts.append([])
        else:
            parts[-1].append(line)
    return [found for part in parts if (found := "\n".join(part).strip())]


def keep(path: Path, text: str) -> bool:
    """Add a text at the end; returns whether it was new. Raises OSError."""
    known = kept(path)
    if text.strip() in known:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = f"\n{_BETWEEN}\n".join([*known, text.strip()]) + "\n"
    synced_file.write(path, whole.encode())
    return True
