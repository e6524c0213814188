"""The workstation, as it is registered."""

from houston_daemon.environments.arguments import Catalog
from houston_daemon.environments.kind import EnvironmentKind, Making
from houston_daemon.environments.protocol import Environment
from houston_shared.task import LoadedTask, Task


def _make(making: Making) -> Environment:
    from houston_daemon.environments.workstation.build import build

    return build(making)


def _check(task: LoadedTask) -> None:
    from houston_daemon.environments.workstation.catalog import catalog

    catalog(task.task)


def _catalog(task: Task) -> Catalog:
    from houston_daemon.environments.workstation.catalog import catalog

    return catalog(task)


KIND = EnvironmentKind(make=_make, check=_check, workspace=True, sandbox=True, catalog=_catalog)
