"""Logs of terminals on other machines: brought here by `houston rollout printed`, piece by piece.

They are laid down as a host lays them down, in a folder that ends with the console.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from houston_shared import terminal_folder
from houston_shared.errors import HoustonError


class Fetched:
    """Logs that were brought here."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def place(self, rollout: str, host: str, name: str) -> Path:
        """Where the log of a terminal is, once it was fetched."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="houston-terminals-")
        return Path(self._folder.name) / rollout / host / name

    def has(self, rollout: str, host: str, name: str) -> bool:
        """Whether some of it is here."""
        return self._folder is not None and self.place(rollout, host, name).is_dir()

    async def fetch(self, home: Path, rollout: str, host: str, name: str) -> None:
        """Bring what is new. Raises HoustonError where the machine cannot be reached."""
        folder = self.place(rollout, host, name)
        folder.mkdir(parents=True, exist_ok=True)
        segments = terminal_folder.segments(folder)
        start = segments[-1][0] + segments[-1][1].stat().st_size if segments else 0
        file, into = terminal_folder.segment(folder, start), folder / "coming"
        into.unlink(missing_ok=True)
        words = ["rollout", "printed", rollout, f"--host={host}", f"--into={into}"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "houston_shared.command", "--home", str(home)),
            *(*words, f"--from={start}", "--", name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        if process.returncode:
            lines = said.decode(errors="replace").removeprefix("houston: ").splitlines()
            raise HoustonError(lines[0] if lines else "The log could not be read.")
        if into.stat().st_size or not segments:
            into.replace(file)

    def close(self) -> None:
        """Nothing of it stays."""
        if self._folder is not None:
            self._folder.cleanup()
