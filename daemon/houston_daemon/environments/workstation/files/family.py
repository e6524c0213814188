"""The eleven file actions: each runs in a thread, the looking ones within a limit of time."""

import asyncio
from collections.abc import Callable
from typing import Any

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.files import actions as act
from houston_daemon.environments.workstation.files.confine import Confined, PathRefused
from houston_daemon.environments.workstation.files.edit import FileEdit
from houston_daemon.environments.workstation.files.observations import FileWindow
from houston_daemon.environments.workstation.files.search import FileSearch, Limit
from houston_daemon.environments.workstation.files.window import FileView
from houston_daemon.environments.workstation.state import State


class FileActions:
    """Actions on the files of one workspace."""

    def __init__(self, confined: Confined, state: Callable[[], State], characters: int) -> None:
        view = FileView(confined, state, characters)
        self._view = view
        self._edit = FileEdit(confined, state, view)
        search = FileSearch(confined)
        self._quick: dict[type[Arguments], Callable[[Any], Observation]] = {
            act.OpenFile: view.open_file,
            act.FileGotoLine: view.goto,
            act.FileScrollDown: view.scroll_down,
            act.FileScrollUp: view.scroll_up,
            act.GetFileInfo: view.info,
            act.CreateFile: self._edit.create,
            act.EditFile: self._edit.edit,
        }
        self._limited: dict[type[Arguments], Callable[[Any, Limit], Observation]] = {
            act.SearchDir: search.search_dir,
            act.SearchFile: search.search_file,
            act.FindFile: search.find_file,
            act.ListFiles: search.list_files,
        }

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused, whose text is for the agent."""
        quick = self._quick.get(type(arguments))
        if quick is not None:
            return await asyncio.to_thread(quick, arguments)
        limit = Limit()
        try:
            return await asyncio.to_thread(self._limited[type(arguments)], arguments, limit)
        finally:
            limit.cancelled.set()  # a cancelled call leaves its thread nothing to do

    async def write(self, path: str, content: str) -> FileWindow | Failed:
        """Write what another action made, as create_file does, and show its beginning."""
        return await asyncio.to_thread(
            self._edit.create, act.CreateFile(filename=path, content=content)
        )

    def take_touched(self) -> list[str]:
        """Paths written since this was asked last: hints for a snapshot."""
        touched, self._edit.touched = self._edit.touched, []
        return touched

    async def standing(self, path: str) -> str:
        """What a file is now, for a call whose outcome is unknown."""
        try:
            return await asyncio.to_thread(self._view.facts, path)
        except PathRefused as refused:
            return str(refused)
