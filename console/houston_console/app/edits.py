"""What people edit while the console is open: houston.toml and their own keys.

Colours and the default engine are taken at once; what was read before stays where a file is wrong,
and the message row says why. Keys and names are given as the console is opened, so of these it says
that it has to be opened again. Snippets are read whenever they are shown: nothing is to be done.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from houston_console.app.comfort.keymap import own_file, own_keys
from houston_shared.edits import SETTLE_SECONDS, ConfigurationFile, Edited, Watcher
from houston_shared.errors import HoustonError

if TYPE_CHECKING:
    from houston_console.app.app import HoustonConsole

LOOK_SECONDS = 5.0
"""How often it looks where nothing wakes it."""
OURS = ("console.", "default_engine")
"""Keys that a console goes by; of the others the daemon says what became of them."""
OPENED = ("home", "console.name")
"""Keys that hold for as long as a console is open."""


class Edits:
    """Takes what was edited, for ever."""

    def __init__(self, app: "HoustonConsole") -> None:
        """app: what is told, and dressed."""
        self._app = app
        self._file = ConfigurationFile(app.loaded)
        self._keys = own_file()
        self._edited = Edited()
        self._edited.follow([self._file.path], as_changed=True)  # since it was read, maybe
        self._edited.follow([self._file.path, self._keys])
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watcher = Watcher(self._wake)

    async def run(self) -> None:
        """Look whenever something changed, and now and then."""
        while True:
            self._watcher.follow(self._edited.followed)
            pause = SETTLE_SECONDS if self._look() else LOOK_SECONDS
            try:
                await asyncio.wait_for(self._woken.wait(), pause)
            except TimeoutError:
                continue
            self._woken.clear()

    def _wake(self) -> None:
        """Called from the watcher's thread, at the very end without a loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watcher.close()

    def _look(self) -> bool:
        """Take what has settled; whether something has not."""
        for path in self._edited.changed(time.monotonic()):
            if path == self._keys:
                self._rekeyed()
            else:
                self._reconfigured()
        return self._edited.due(time.monotonic()) is not None

    def _rekeyed(self) -> None:
        try:
            own_keys(self._keys)
        except HoustonError as problem:
            self._app.front.tell(f"{problem.cause} The keys stay as they were.", "error")
        else:
            self._app.front.tell("Your keys were edited: open the console again for them.", "dim")

    def _reconfigured(self) -> None:
        edit = self._file.take(restart=OPENED)
        if edit.refused:
            self._app.front.tell(edit.refused, "error")
            return
        if not edit.changed and not edit.later:
            return
        if "console.theme" in edit.changed:
            self._app.dress(self._app.loaded.config.console.theme)
        ours = [key for key in edit.changed if key.startswith(OURS)]
        said = [f"{', '.join(ours)} in force"] if ours else []
        if edit.later:
            said.append(f"{', '.join(edit.later)}: open the console again")
        words = "; ".join(said) or "nothing of it is for the console"
        self._app.front.tell(f"{self._file.path.name} was edited: {words}.", "success")
