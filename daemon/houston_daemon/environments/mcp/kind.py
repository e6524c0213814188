"""mcp, as it is registered."""

from houston_daemon.environments.kind import EnvironmentKind, Making
from houston_daemon.environments.protocol import Environment
from houston_shared.task import LoadedTask


def _make(making: Making) -> Environment:
    from houston_daemon.environments.mcp.build import build

    return build(making)


def _check(task: LoadedTask) -> None:
    from houston_daemon.environments.mcp.catalog import check_task

    check_task(task)


KIND = EnvironmentKind(make=_make, check=_check, sandbox=True)
