"""What the rollouts of one machine use together, where the kernel does not add it up.

Each rollout's worker has its own guard. Every second each writes down what its rollout uses, beside
the note of its control groups, and reads what the others have written.
"""

from contextlib import suppress
from pathlib import Path

FRESH_SECONDS = 5.0
"""A figure that is older is of a worker that has ended, or hangs: it counts no more."""
_SUFFIX = ".used"


class Together:
    """The figures of all rollouts, and one's own among them."""

    def __init__(self, folder: Path, rollout: str) -> None:
        """folder: of the notes of all of them."""
        self._folder = folder
        self._own = folder / f"{rollout}{_SUFFIX}"

    def add(self, used: int) -> tuple[int, int]:
        """Write down what this rollout uses, bytes; what all use, and the most that another does.

        Raises OSError.
        """
        self._own.write_text(str(used))
        oldest = self._own.stat().st_mtime - FRESH_SECONDS
        others = [
            figure
            for file in self._folder.glob(f"*{_SUFFIX}")
            if file != self._own and (figure := _fresh(file, oldest)) is not None
        ]
        return used + sum(others), max(others, default=0)

    def leave(self) -> None:
        """The rollout uses nothing any more."""
        with suppress(OSError):
            self._own.unlink(missing_ok=True)


def _fresh(file: Path, oldest: float) -> int | None:
    try:
        return int(file.read_text()) if file.stat().st_mtime >= oldest else None
    except (OSError, ValueError):  # it has just been removed, or is just being written
        return None
