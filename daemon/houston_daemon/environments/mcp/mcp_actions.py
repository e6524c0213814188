"""What mcp offers in addition to the servers' tools, and what a task must name. It needs no SDK."""

import importlib.util
from typing import ClassVar

from houston_daemon.environments.tool_arguments import Arguments, Catalog
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task

MISSING = "pip install 'houston-agents[envs]'"


class Eval(Arguments, frozen=True, kw_only=True):
    """Score the workspace; submissions are limited."""

    name: ClassVar[str] = "eval"
    family: ClassVar[str] = "mcp"


class Finish(Arguments, frozen=True, kw_only=True):
    """End the task when it is done."""

    name: ClassVar[str] = "finish"
    family: ClassVar[str] = "mcp"


def own_actions(task: Task) -> Catalog:
    """Our own actions."""
    actions: dict[str, type[Arguments]] = {Finish.name: Finish}
    return Catalog({Eval.name: Eval, **actions} if task.evaluate.command else actions)


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigurationError(
            f"{task.file}: mcp needs the official SDK, which is not installed here.", next=MISSING
        )
    servers = task.task.mcp.servers
    if not servers:
        raise ConfigurationError(f"{task.file}: mcp needs a server: [mcp.servers.NAME].")
    for name, server in servers.items():
        if bool(server.command) == bool(server.url):
            raise ConfigurationError(
                f"{task.file}: `mcp.servers.{name}` needs exactly one of the keys `command` and"
                " `url`."
            )
        if server.url and not server.url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{task.file}: `mcp.servers.{name}.url` is {server.url!r}; allowed: http://…,"
                " https://…"
            )
