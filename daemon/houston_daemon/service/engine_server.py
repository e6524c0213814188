"""What is behind each engine's name: a child of ours, a URL, or nothing (a file, a plug-in)."""

from collections.abc import Callable

from houston_daemon.service.engine_child import Child
from houston_daemon.service.engine_places import address_of, refusal
from houston_daemon.service.engine_watch import Server
from houston_daemon.service.gpus import GpuLedger
from houston_daemon.service.policy_engines import engine_of
from houston_daemon.service.policy_engines import is_child as is_child
from houston_shared.config import FILE_ENGINES, Loaded
from houston_shared.engine_kinds import KINDS
from houston_shared.errors import ConfigurationError, HoustonError


def servers(loaded: Loaded, gpus: GpuLedger) -> Callable[[str], Server | None]:
    """Make the server behind an engine's name, from the configuration in force."""

    def make(name: str) -> Server | None:
        try:
            engine = engine_of(loaded, name)
        except ConfigurationError as problem:
            return Missing(problem)
        if engine.kind in FILE_ENGINES or (engine.kind not in KINDS and not engine.url):
            return None
        if engine.url:
            return Remote(engine.url)
        settings = loaded.config.daemon
        size = settings.log_mb * 1_000_000
        orphan = settings.engine_orphan_seconds
        return Child(loaded.home, name, engine, size, settings.log_files, gpus, orphan)

    return make


class Missing:
    """An engine that the configuration no longer knows."""

    url = ""

    def __init__(self, problem: ConfigurationError) -> None:
        self._problem = problem

    def bring_up(self) -> None:
        """Raise what is wrong."""
        raise self._problem

    def alive(self) -> bool:
        """Never."""
        return False

    def healthy(self) -> bool:
        """Never."""
        return False

    def reason(self) -> str:
        """What is wrong."""
        return str(self._problem)

    def end(self, seconds: float = 10.0) -> None:
        """Nothing to end."""


class Remote:
    """A server at a URL that somebody else keeps: asked only whether its port answers."""

    def __init__(self, url: str) -> None:
        self.url = ""  # workers have it in their settings
        self._address = address_of(url)
        self._why = ""

    def bring_up(self) -> None:
        """Raise HoustonError while nobody listens there."""
        if not self.healthy():
            raise HoustonError(self._why)

    def alive(self) -> bool:
        """As far as asking can tell."""
        return self.healthy()

    def healthy(self) -> bool:
        """Whether a connection is accepted."""
        self._why = refusal(self._address)
        return not self._why

    def reason(self) -> str:
        """Why not."""
        return self._why

    def end(self, seconds: float = 10.0) -> None:
        """It is not ours."""
