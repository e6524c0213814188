"""The engines that rollouts use: which are watched, how they stand, whose rollouts wait for them.

An engine that is down for long (half a minute) pauses its rollouts (by `engine`), so that their
state says what is the matter; when it answers again they are resumed. Shorter gaps are bridged by
the workers' own retries.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from houston_daemon.recorder.protocol import RecorderHandle
from houston_daemon.service.engine_watch import EngineState, EngineWatch, Server
from houston_daemon.service.log import LOGGER

PATIENCE_SECONDS = 30.0
"""How long an engine may be down before its rollouts are paused."""
DROP_SECONDS = 20.0
"""What an engine that is let go may take to end."""


@dataclass(slots=True)
class _Watched:
    watch: EngineWatch | None
    state: str = "starting"
    url: str = ""
    down_since: float | None = None
    restarts: int = 0
    again: float = 0.0
    resumes: bool = True
    """Whether rollouts may be paused for it, by this daemon or an earlier one."""
    waiting: bool = False
    """Whether it was said that its rollouts wait."""


MakeServer = Callable[[str], Server | None]
"""What is behind an engine's name; None for engines that need nothing (script)."""


class Engines:
    """All engines of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        make: MakeServer,
        recorder: RecorderHandle,
        tell: Callable[[EngineState], None],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """patience: seconds that an engine may be down before its rollouts are paused."""
        self.patience = patience
        self._make = make
        self._recorder = recorder
        self._tell = tell
        self._watched: dict[str, _Watched] = {}
        self._stale: set[str] = set()
        """Engines that run with settings which were edited since."""

    @property
    def states(self) -> dict[str, str]:
        """Engine name → `ready`, `starting` or `down: <reason>`."""
        return {name: watched.state for name, watched in self._watched.items() if watched.watch}

    @property
    def restarts(self) -> int:
        """How often engines were brought up again since the daemon's start."""
        return sum(watched.restarts for watched in self._watched.values())

    def troubles(self, now: float) -> dict[str, str]:
        """Engines that came down again after they were brought up, for the status."""
        return {
            f"engine {name}": f"brought up again {watched.restarts} times; "
            f"again in {max(0.0, watched.again - now):.0f} s; {watched.state}"
            for name, watched in self._watched.items()
            if watched.restarts and watched.state.startswith("down")
        }

    def use(self, names: Iterable[str]) -> None:
        """Watch these engines from now on; those already watched go on."""
        for name in set(names) - self._watched.keys():
            server = self._make(name)
            if server is None:
                self._watched[name] = _Watched(None, "ready", resumes=False)
                continue
            watch = EngineWatch(name, server, self._tell)
            self._watched[name] = _Watched(watch)
            watch.start()

    def drop(self, name: str) -> None:
        """Watch an engine no more and end it, in a thread: that may take its time."""
        watched = self._watched.pop(name, None)
        if watched and watched.watch:
            args = (False, DROP_SECONDS)
            threading.Thread(target=watched.watch.stop, args=args, daemon=True).start()

    def edited(self, name: str) -> None:
        """Its settings are others: it is made anew as soon as no rollout uses it."""
        if name in self._watched:
            self._stale.add(name)

    def renew(self, used: Collection[str]) -> None:
        """Let go of engines that were edited and that nobody uses now."""
        for name in self._stale - set(used):
            LOGGER.info("engine %s was edited and is not used: it is made anew when needed", name)
            self._stale.discard(name)
            self.drop(name)

    @property
    def stale(self) -> tuple[str, ...]:
        """Engines that go on with the settings from before an edit."""
        return tuple(sorted(self._stale))

    def reachable(self, name: str) -> str | None:
        """URL of an engine that answers (empty where workers know it), None while it does not."""
        watched = self._watched.get(name)
        return watched.url if watched and watched.state == "ready" else None

    def changed(self, event: EngineState, now: float) -> None:
        """Take note of what a watch said."""
        watched = self._watched.get(event.name)
        if watched is None:
            return  # it was let go meanwhile
        watched.state, watched.url = event.state, event.url
        watched.restarts, watched.again = event.restarts, event.again
        if event.state == "ready":
            watched.down_since = None
        elif event.state.startswith("down") and watched.down_since is None:
            watched.down_since = now

    def pause_and_resume(self, now: float) -> None:
        """Pause rollouts whose engine has been down for long, resume those whose engine is back.

        Raises HoustonError when the recorder cannot store it now; the next call tries again.
        """
        for name, watched in self._watched.items():
            if watched.resumes and watched.state == "ready":
                self._recorder.pause_for_engine(name, False)
                watched.resumes = watched.waiting = False
            since = watched.down_since
            if since is not None and now - since > self.patience:
                # Each time: rollouts that were started since wait for it, too.
                self._recorder.pause_for_engine(name, True, watched.state)
                watched.resumes = True
                if not watched.waiting:
                    LOGGER.warning("rollouts of engine %s wait: %s", name, watched.state)
                watched.waiting = True

    def stop(self, keep: bool, seconds: float) -> None:
        """Stop watching; end our engines unless they are to be kept. At once for all, bounded."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=watched.watch.stop, args=(keep, seconds), daemon=True)
            for watched in self._watched.values()
            if watched.watch
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
