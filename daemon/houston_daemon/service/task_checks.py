"""What a task file names that the machine and the environment decide: tools and folders."""

from pathlib import Path

from houston_daemon.environments.search_qa.catalog import check_task
from houston_daemon.environments.workstation.catalog import catalog
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask


def check_names(task: LoadedTask) -> None:
    """Raise ConfigurationError for a tool that is none, or a mapped path that is not here."""
    definition = task.task
    if definition.environment == "workstation":
        catalog(definition)
    if definition.environment == "search_qa":
        check_task(task)
    mapped = definition.mapped
    for key, paths in (("read", mapped.read), ("devices", mapped.devices)):
        for path in paths:
            if not Path(path).is_absolute() or not _here(path):
                raise ConfigurationError(
                    f"{task.file}: `sandbox.{key}` names {path!r}, which is no absolute path of "
                    "something on this machine."
                )


def _here(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # in a folder that this user may not enter: not for the agent either
        return False
