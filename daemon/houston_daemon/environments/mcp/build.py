"""Puts the servers of a rollout together from its specification."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from houston_daemon.environments.kind import Making
from houston_daemon.environments.local import local_host
from houston_daemon.environments.mcp.arrival import arrival
from houston_daemon.environments.mcp.catalog import own
from houston_daemon.environments.mcp.connection import Connection
from houston_daemon.environments.mcp.environment import McpEnvironment
from houston_daemon.environments.mcp.servers import Servers
from houston_daemon.environments.mcp.steps import Steps
from houston_daemon.hosts.branching import Past
from houston_daemon.hosts.local import LocalHost
from houston_shared.config_hosts import LOCAL
from houston_shared.secret_values import restored
from houston_shared.task_servers import McpServer
from houston_shared.terminal_folder import rollout_folder

if TYPE_CHECKING:
    from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation


def build(making: Making) -> McpEnvironment:
    """The environment; no server is started before `open`."""
    spec, task = making.spec, making.task
    commit = spec.origin.snapshot if spec.origin else ""
    past = Past(spec.parent, commit) if commit else None
    host = local_host(spec, task, making.owner, past, tuple(making.gpus.get(LOCAL, ())))
    connections = [
        Connection(name, one, partial(_start, host, one), _restored(one.headers))
        for name, one in task.mcp.servers.items()
    ]
    folder = rollout_folder(Path(spec.host_root), spec.rollout)
    steps = Steps(host, folder / "mcp-steps.json", partial(arrival, spec, task, host))
    source = task.workspace.source
    return McpEnvironment(
        task,
        spec.rollout,
        host,
        Servers(connections, own(task), task.tools, folder / "mcp.json"),
        steps,
        source=Path(spec.task.folder) / source if source else None,
        evaluation=_evaluation(making, host, steps),
        characters=making.characters,
    )


async def _start(host: LocalHost, server: McpServer) -> list[str]:
    return await host.enclosed([server.command, *server.args], _restored(server.env))


def _evaluation(making: Making, host: LocalHost, steps: Steps) -> "Evaluation | None":
    spec, task = making.spec, making.task
    if not task.evaluate.command:
        return None
    from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation
    from houston_daemon.environments.workstation.evaluation.slots import Slots

    slots = Slots(Path(spec.host_root), task.name, task.evaluate.slots, making.waiting_for_slot)
    return Evaluation(host, task, Path(spec.task.folder), slots, steps.mark)


def _restored(values: dict[str, str]) -> dict[str, str]:
    return {name: restored(value) for name, value in values.items()}
