"""The open page: what the agent looks at, kept in the rollout's folder over a worker's death.

The page itself is a file named by its content, so that a state saved before still finds its own;
where the agent is in it stands in the workstation's state.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from houston_daemon.environments.workstation.browse import cache
from houston_daemon.environments.workstation.browse.page import Page
from houston_daemon.environments.workstation.state import OpenPage, State

_PREFIX = "page-"


class PageStore:
    """The open page of one rollout. Its methods block; they run in a thread."""

    def __init__(self, folder: Path, state: Callable[[], State]) -> None:
        self._folder = folder
        self._state = state
        self._known: tuple[str, Page] | None = None

    def open(self, page: Page) -> None:
        """Make `page` the open one."""
        digest = hashlib.sha256(msgspec.msgpack.encode(page)).hexdigest()[:32]
        name = _PREFIX + digest
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        cache.write(self._folder / name, page)
        before = self._state().page
        for file in self._folder.glob(f"{_PREFIX}*"):
            # The one before stays: its state is replaced only after this call.
            if file.name != name and (before is None or file.name != before.file):
                file.unlink(missing_ok=True)
        self._known = (name, page)
        self._state().page = OpenPage(file=name)

    def now(self) -> tuple[Page, OpenPage] | None:
        """The open page and the place in it; None when none is open, or it was lost."""
        place = self._state().page
        if place is None:
            return None
        if self._known is None or self._known[0] != place.file:
            page = cache.read(self._folder / place.file)
            if page is None:
                return None
            self._known = (place.file, page)
        return self._known[1], place
