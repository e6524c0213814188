"""Which actions a workstation offers for one task, with the bounds that the task sets."""

from houston_daemon.environments.arguments import Arguments, Bounds, Catalog
from houston_daemon.environments.workstation.browse.actions import BROWSE_ACTIONS
from houston_daemon.environments.workstation.command.actions import COMMAND_ACTIONS
from houston_daemon.environments.workstation.files.actions import FILE_ACTIONS
from houston_daemon.environments.workstation.hosts.choosing import on_hosts
from houston_daemon.environments.workstation.parse.actions import PARSE_ACTIONS
from houston_daemon.environments.workstation.search.actions import SEARCH_ACTIONS
from houston_daemon.environments.workstation.system.actions import SYSTEM_ACTIONS
from houston_shared.errors import ConfigurationError
from houston_shared.task import Task

ACTIONS: dict[str, type[Arguments]] = {
    action.name: action
    for action in (
        *COMMAND_ACTIONS,
        *FILE_ACTIONS,
        *PARSE_ACTIONS,
        *SEARCH_ACTIONS,
        *BROWSE_ACTIONS,
        *SYSTEM_ACTIONS,
    )
}
"""Every action of the workstation by name."""
EVAL = "eval"


def catalog(task: Task) -> Catalog:
    """The task's tools, on its hosts.

    Raises ConfigurationError when it names one that does not exist.
    """
    unknown = [name for name in task.tools if name not in ACTIONS]
    if unknown:
        raise ConfigurationError(
            f"Task {task.name}: `tools` names {unknown[0]!r}; the workstation has "
            f"{', '.join(ACTIONS)}."
        )
    names = [name for name in ACTIONS if not task.tools or name in task.tools]
    chosen = {name: on_hosts(ACTIONS[name], task.hosts) for name in names}
    # A task may keep `eval` from the agent; the loop scores it all the same.
    scoring = {EVAL: ACTIONS[EVAL]} if task.evaluate.command and EVAL not in chosen else {}
    return Catalog(chosen, _bounds(task), scoring)


def _bounds(task: Task) -> Bounds:
    """A model that decodes under the schema cannot ask for a longer sleep than the task allows."""
    longest = max(1, int(task.budget.sleep_seconds))
    return {"sleep": {"sleep_time": {"maximum": min(86_400, longest)}}}
