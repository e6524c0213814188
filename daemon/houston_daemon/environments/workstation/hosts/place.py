"""One host of a rollout with what the workstation does on it, and all of them by name.

The first is where files, snapshots and evaluations are when a call names none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.command.family import CommandActions
from houston_daemon.environments.workstation.command.sessions import Sessions
from houston_daemon.environments.workstation.files.observations import FileWindow
from houston_daemon.environments.workstation.parse.documents import Documents
from houston_daemon.environments.workstation.state import State
from houston_daemon.hosts.errors import HostAway
from houston_daemon.hosts.limits import Hit
from houston_daemon.hosts.protocol import Host


class Files(Protocol):
    """The file actions on one host; `files.family` describes them."""

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused."""
        ...

    async def write(self, path: str, content: str) -> FileWindow | Failed:
        """Write what another action made."""
        ...

    def take_touched(self) -> list[str]:
        """Paths written since this was asked last."""
        ...

    async def standing(self, path: str) -> str:
        """What a file is now."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """One host, and what is done on it."""

    host: Host
    state: Callable[[], State]
    sessions: Sessions
    commands: CommandActions
    files: Files
    documents: Documents


class Places:
    """The hosts of one rollout, in the task's order."""

    def __init__(self, first: Place, *others: Place) -> None:
        self.first = first
        self._places = {place.host.name: place for place in (first, *others)}

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts; the first is the one meant when none is named."""
        return tuple(self._places)

    def of(self, arguments: Mapping[str, Any]) -> Place:
        """The host that the arguments of a call name."""
        return self._places.get(str(arguments.get("host", "")), self.first)

    async def running(self) -> tuple[str, ...] | None:
        """Sessions in which a command runs now; None where a host cannot say."""
        found: list[str] = []
        for place in self:
            names = await place.sessions.running()
            if names is None:
                return None
            other = place is not self.first
            found += [f"{place.host.name}:{name}" if other else name for name in names]
        return tuple(found)

    async def limits_met(self) -> list[Hit]:
        """Limits that were met on any host that can be asked now."""
        found: list[Hit] = []
        for place in self:
            try:
                found += await place.host.limits_met()
            except HostAway:
                continue  # it is told when the host is back: nobody has asked there meanwhile
        return found
