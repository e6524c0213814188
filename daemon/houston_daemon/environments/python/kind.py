"""python, as it is registered."""

from houston_daemon.environments.arguments import Catalog
from houston_daemon.environments.kind import EnvironmentKind, Making
from houston_daemon.environments.protocol import Environment
from houston_shared.config_hosts import LOCAL
from houston_shared.task import LoadedTask, Task


def _make(making: Making) -> Environment:
    from houston_daemon.environments.local import local_host
    from houston_daemon.environments.python.environment import PythonEnvironment

    leased = tuple(making.gpus.get(LOCAL, ()))
    host = local_host(making.spec, making.task, making.owner, gpus=leased)
    return PythonEnvironment(making.spec, making.task, host, making.characters)


def _check(task: LoadedTask) -> None:
    from houston_daemon.environments.python.catalog import check_task

    check_task(task)


def _catalog(task: Task) -> Catalog:
    from houston_daemon.environments.python.catalog import catalog

    return catalog(task)


KIND = EnvironmentKind(
    make=_make,
    check=_check,
    scores=lambda task: bool(task.questions.file),
    secret_score=True,
    sandbox=True,
    catalog=_catalog,
)
