"""What a task file names that the machine and the environment decide: tools and folders.

Only this machine is looked at: what a task maps is looked for where `local` is one of its hosts.
"""

from pathlib import Path

from houston_daemon.environments.environment_registry import kind
from houston_daemon.hosts.sandbox import activation
from houston_daemon.importers.findings import FILE_TO_FILL_IN, unfilled
from houston_daemon.supervision.attention.catalog import chosen
from houston_daemon.supervision.rules import catalog as rules
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.task import LoadedTask


def check_names(task: LoadedTask) -> None:
    """Raise ConfigurationError for a tool, signal or rule that is none, or a path not here."""
    definition = task.task
    try:
        found = kind(definition.environment)
    except ConfigurationError as problem:
        cause = f"{task.file}: `environment`: {problem.cause}"
        raise ConfigurationError(cause, problem.effect, problem.next) from None
    found.check(task)
    try:
        chosen(definition.attention.signals)
    except ConfigurationError as problem:
        cause = f"{task.file}: `attention.signals`: {problem.cause}"
        raise ConfigurationError(cause, problem.effect, problem.next) from None
    try:
        rules.chosen(definition.rules)
    except ConfigurationError as problem:
        cause = f"{task.file}: `rules`: {problem.cause}"
        raise ConfigurationError(cause, problem.effect, problem.next) from None
    here = LOCAL in definition.hosts
    mapped = definition.mapped
    for key, paths in (("read", mapped.read), ("devices", mapped.devices)):
        for path in paths:
            if not Path(path).is_absolute() or (here and not _here(path)):
                raise ConfigurationError(
                    f"{task.file}: `sandbox.{key}` names {path!r}, which is no absolute path"
                    f"{' of something on this machine' if here else ''}."
                )
    for name, path in definition.data.mounts.items():
        if not _here(str(task.folder / path)):
            raise ConfigurationError(
                f"{task.file}: `data.mounts.{name}` names {path!r}, which is not on this machine."
            )
    _check_activate(task)
    _check_filled_in(task)


def _check_filled_in(task: LoadedTask) -> None:
    """An importer's placeholder is no instructions, and no data."""
    own = task.task.instructions_file
    found = [unfilled(task.folder / own if own else task.file, task.instructions)]
    for file in sorted(task.folder.glob(f"*/{FILE_TO_FILL_IN}")) + sorted(
        task.folder.glob(f"*/*/{FILE_TO_FILL_IN}")
    ):
        found.append(unfilled(file, file.read_text(encoding="utf-8", errors="replace")))
    if left := [line for line in found if line]:
        raise ConfigurationError(
            f"The imported task {task.task.name} is not complete. {'; '.join(left)}.",
            next=f"Fill that in, then: houston task validate {task.folder}",
        )


def _check_activate(task: LoadedTask) -> None:
    definition = task.task
    others = [name for name in definition.hosts if name != LOCAL]
    if definition.activate and others and not definition.activate.startswith("/"):
        raise ConfigurationError(
            f"{task.file}: `activate` names {definition.activate!r}, beside the task file, which is"
            f" not on {others[0]}.",
            next="Name the absolute path that the environment has on every host of the task.",
        )
    if definition.activate and LOCAL in definition.hosts:
        try:
            activation.check(task.folder / definition.activate)
        except HoustonError as problem:
            raise ConfigurationError(f"{task.file}: `activate`: {problem.cause}") from None


def _here(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # in a folder that this user may not enter: not for the agent either
        return False
