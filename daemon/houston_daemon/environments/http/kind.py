"""http, as it is registered."""

import os

from houston_daemon.environments.kind import EnvironmentKind, Making
from houston_daemon.environments.protocol import Environment
from houston_shared.task import LoadedTask


def _make(making: Making) -> Environment:
    from houston_daemon.environments.http.environment import HttpEnvironment

    variable = making.task.http.api_key_env
    key = os.environ.get(variable, "").strip() if variable else ""  # a file's newline is none
    return HttpEnvironment(making.spec, making.task, making.characters, key)


def _check(task: LoadedTask) -> None:
    from houston_daemon.environments.http.catalog import check_task

    check_task(task)


KIND = EnvironmentKind(make=_make, check=_check, scores=lambda task: task.http.score)
