"""Rollouts on a workstation whose node offers what a test names."""

from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.environment_registry import make_environment
from tests.integration.environments.conftest import Station

BROWSE = {"seconds": 2.0, "megabytes": 1.0, "cache_seconds": 60.0}
"""Limits of browsing that tests reach soon."""


async def opened(
    folder: Path, rollout: str = "r1", settings: dict[str, Any] | None = None, **task: Any
) -> Station:
    """An opened rollout; settings: `[tools]` of the node."""
    (folder / "task" / "workspace").mkdir(parents=True, exist_ok=True)
    station = Station(folder, rollout, **task)
    await use(station, settings or {"browse": BROWSE})
    return station


async def use(station: Station, settings: dict[str, Any]) -> None:
    """Open the station's environment with other settings of the node."""
    station.spec = msgspec.structs.replace(station.spec, tool_settings=settings)
    station.environment = make_environment(station.spec, station.task)
    await station.environment.open()
