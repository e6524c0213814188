"""A workspace on disk and the file actions on it, without a host."""

from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.workstation.confined_paths import ConfinedFolder
from houston_daemon.environments.workstation.file_actions import FileActions
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.environments.workstation_actions import ACTIONS


class Files:
    """File actions by name, on one workspace."""

    def __init__(self, root: Path, characters: int = 6_000) -> None:
        self.root = root
        self.state = WorkstationState()
        self.actions = FileActions(ConfinedFolder(root), lambda: self.state, characters)

    async def __call__(self, name: str, **arguments: Any) -> Any:
        return await self.actions.act(ACTIONS[name](**arguments), Stop())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def files(workspace: Path) -> Files:
    return Files(workspace)
