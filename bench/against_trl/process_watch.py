"""What several processes take together, looked at once a second: processor time and memory.

They are those whose environment has one variable with one value, which children inherit. Memory is
the proportional share (`Pss`), so that pages which several map count once.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

VARIABLE = "HOUSTON_BENCH_SIDE"
"""Its value says whose process it is."""
_SECONDS = 1.0
_TICK = os.sysconf("SC_CLK_TCK")


class ProcessWatch:
    """Looks from entering to leaving."""

    def __init__(self, side: str, parts: Mapping[str, str]) -> None:
        """side: value of `VARIABLE`. parts: name → a word of command lines of that part."""
        self._mark = f"{VARIABLE}={side}".encode()
        self._parts = parts
        self._first: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], float] = {}
        """By process and its part."""
        self.peak_mb = 0.0
        """Most memory of all at one time."""
        self.part_peaks_mb: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "ProcessWatch":
        self._look()
        self._first = dict(self._last)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """Processor seconds of each part between entering and leaving. What a process spent in its
        last second is missing."""
        spent: dict[str, float] = {}
        for (process, part), seconds in self._last.items():
            own = seconds - self._first.get((process, part), 0.0)
            spent[part] = spent.get(part, 0.0) + own
        return spent

    def _run(self) -> None:
        while not self._over.wait(_SECONDS):
            self._look()

    def _look(self) -> None:
        memory: dict[str, float] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                stat = (entry / "stat").read_text()
                share = (entry / "smaps_rollup").read_text().partition("\nPss:")[2].split()
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has just ended, or is somebody else's
            fields = stat.rpartition(")")[2].split()
            part = next((name for name, word in self._parts.items() if word in words), "others")
            # by the time it began as well: numbers of processes come again
            process = f"{entry.name} {fields[19]}", part
            self._last[process] = (int(fields[11]) + int(fields[12])) / _TICK
            memory[part] = memory.get(part, 0.0) + int(share[0] if share else 0) / 1024
        self.peak_mb = max(self.peak_mb, sum(memory.values()))
        for part, size in memory.items():
            self.part_peaks_mb[part] = max(self.part_peaks_mb.get(part, 0.0), size)
