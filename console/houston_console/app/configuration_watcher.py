"""Applies edits of houston.toml and of the keymap while the console is open.

Changes in the folders of both files wake it; it also looks from time to time. A refused edit is
reported and changes nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from houston_console.app.key_bindings import keymap_path, load_keymap
from houston_console.widgets.styled_text import Tone
from houston_shared.config import LoadedConfiguration
from houston_shared.config_reload import (
    SETTLE_SECONDS,
    ConfigurationFile,
    EditedFiles,
    FolderWatcher,
)
from houston_shared.errors import HoustonError

EDIT_POLL_SECONDS = 5.0
"""How often it looks where nothing wakes it."""
CONSOLE_KEYS = ("console.", "default_engine")
"""Keys that a console goes by; of the others the daemon says what became of them."""
RESTART_KEYS = ("home", "console.name")
"""Keys that hold for as long as a console is open."""


class ConfigurationWatcher:
    """Applies edits of the configuration and the keymap while the console is open."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        tell: Callable[[str, Tone], None],
        apply_theme: Callable[[str], None],
    ) -> None:
        """tell: says a line to the person, in a tone. apply_theme: takes a theme's name."""
        self._loaded, self._tell, self._apply_theme = loaded, tell, apply_theme
        self._configuration = ConfigurationFile(loaded)
        self._keymap_path = keymap_path()
        self._edited_files = EditedFiles()
        # It may have changed since it was read.
        self._edited_files.follow([self._configuration.path], report_existing=True)
        self._edited_files.follow([self._configuration.path, self._keymap_path])
        self._wake_event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watcher = FolderWatcher(self._wake)

    async def run(self) -> None:
        """Look whenever something changed, and now and then."""
        while True:
            self._watcher.follow(self._edited_files.followed)
            pause = SETTLE_SECONDS if self._take_edits() else EDIT_POLL_SECONDS
            try:
                await asyncio.wait_for(self._wake_event.wait(), pause)
            except TimeoutError:
                continue
            self._wake_event.clear()

    def _wake(self) -> None:
        """Called from the watcher's thread, at the very end without a loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake_event.set)

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()

    def _take_edits(self) -> bool:
        """Take what has settled; whether something has not."""
        for path in self._edited_files.changed(time.monotonic()):
            if path == self._keymap_path:
                self._check_keymap()
            else:
                self._apply_configuration()
        return self._edited_files.due(time.monotonic()) is not None

    def _check_keymap(self) -> None:
        try:
            load_keymap(self._keymap_path)
        except HoustonError as problem:
            self._tell(f"{problem.cause} The keys stay as they were.", "error")
        else:
            self._tell("Your keys were edited: open the console again to use them.", "dim")

    def _apply_configuration(self) -> None:
        edit = self._configuration.take(restart=RESTART_KEYS)
        if edit.refused:
            self._tell(edit.refused, "error")
            return
        if not edit.changed and not edit.later:
            return
        if "console.theme" in edit.changed:
            self._apply_theme(self._loaded.config.console.theme)
        ours = [key for key in edit.changed if key.startswith(CONSOLE_KEYS)]
        parts = [f"{', '.join(ours)} in force"] if ours else []
        if edit.later:
            parts.append(f"{', '.join(edit.later)}: open the console again")
        words = "; ".join(parts) or "none of it concerns the console"
        self._tell(f"{self._configuration.path.name} was edited: {words}.", "success")
