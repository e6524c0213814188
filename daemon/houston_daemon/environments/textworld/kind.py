"""textworld, as it is registered."""

from houston_daemon.environments.arguments import Catalog
from houston_daemon.environments.kind import EnvironmentKind, Making
from houston_daemon.environments.protocol import Environment
from houston_shared.task import LoadedTask, Task


def _make(making: Making) -> Environment:
    from houston_daemon.environments.simulation.environment import Simulation
    from houston_daemon.environments.textworld.environment import TextWorldSimulator

    return Simulation(TextWorldSimulator(), making.spec, making.task, making.characters)


def _check(task: LoadedTask) -> None:
    from houston_daemon.environments.textworld.environment import check_task

    check_task(task)


def _catalog(task: Task) -> Catalog:
    from houston_daemon.environments.simulation.catalog import catalog

    return catalog(task)


KIND = EnvironmentKind(
    make=_make, check=_check, scores=lambda task: True, secret_score=True, catalog=_catalog
)
