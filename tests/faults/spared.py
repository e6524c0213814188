"""Deaths spread over rollouts: none dies so often without a closed step that it would rightly fail.

A fault in a folder is carried out by whoever comes by first, and that can be one rollout every
time. Deaths since a rollout's last closed step are counted in a folder, by workers themselves just
before they die and by whoever kills one; a worker of a rollout that had its share comes by its
points as if nothing was ordered, and the order waits for another.
"""

import os
import sys
from pathlib import Path
from typing import Any

from houston_daemon.agent import recorder_client
from houston_shared import wire
from tests.faults import injection

VARIABLE = "HOUSTON_SPARED"
SHARE = 3
"""Below the supervisor's limit by those that nobody counts: a fork that dies before it is a
worker."""
DEADLY = frozenset({"kill", "exit", "raise"})


class Deaths:
    """Deaths of each rollout's workers since its last closed step: a file each, a byte a death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, rollout: str) -> int:
        """How often its workers died since."""
        file = self._folder / rollout
        return file.stat().st_size if file.exists() else 0

    def had_its_share(self, rollout: str) -> bool:
        """Whether one more could be one too many."""
        return self.of(rollout) >= SHARE

    def add(self, rollout: str) -> None:
        """Its worker is about to die."""
        with (self._folder / rollout).open("ab", buffering=0) as file:
            file.write(b"+")

    def closed(self, rollout: str) -> None:
        """It closed a step."""
        (self._folder / rollout).unlink(missing_ok=True)


def rollout_in(words: list[str]) -> str:
    """Whose worker a command line is of; empty where it is none's."""
    return words[words.index("--rollout") + 1] if "--rollout" in words else ""


def attend(folder: str) -> None:
    """From now on every worker of this process keeps the count, and is spared by it."""
    deaths = Deaths(Path(folder))
    act, come_by, ask = (
        injection.carry_out_fault,
        injection.FaultFolder.__call__,
        recorder_client.IngestSocket.ask,
    )

    def came_by(self: injection.FaultFolder, name: str) -> None:
        rollout = rollout_in(sys.argv)
        if not (rollout and deaths.had_its_share(rollout)):
            come_by(self, name)

    def acted(fault: injection.Fault, name: str) -> None:
        rollout = rollout_in(sys.argv)
        if rollout and fault.action in DEADLY:
            deaths.add(rollout)
        act(fault, name)

    async def asked(self: Any, message: Any, kind: Any) -> Any:
        reply = await ask(self, message, kind)
        if isinstance(message, wire.StoreObservation):
            deaths.closed(message.rollout)
        return reply

    injection.FaultFolder.__call__ = came_by  # type: ignore[method-assign]
    injection.carry_out_fault = acted
    recorder_client.IngestSocket.ask = asked  # type: ignore[method-assign]


def made(folder: Path) -> dict[str, str]:
    """Make the folder; what the daemon's environment must hold so that workers keep the count."""
    folder.mkdir()
    return {VARIABLE: os.fspath(folder)}
