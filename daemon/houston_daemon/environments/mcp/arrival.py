"""What the agent of a branch is told with its first observation: what its world is, and what not.

Only the workspace is branched. What servers know beside it, no snapshot holds.
"""

from houston_daemon.environments import lost_files
from houston_daemon.hosts.local import LocalHost
from houston_shared.records import RolloutSpec
from houston_shared.task import Task


async def arrival(spec: RolloutSpec, task: Task, host: LocalHost) -> tuple[str, ...]:
    """The lines for a branch; none for any other rollout."""
    if spec.origin is None:
        return ()
    servers = task.mcp.servers.items()
    here = ", ".join(name for name, one in servers if not one.url)
    away = ", ".join(name for name, one in servers if one.url)
    said = [
        f"from after step {spec.parent_step} on this work goes on in a new place: the workspace is"
        " as it was after that step"
    ]
    if here:
        said.append(f"what these servers knew beside it is gone, they were started anew: {here}")
    if away:
        said.append(f"these servers are as they are now, not as they were then: {away}")
    return f"[{'; '.join(said)}]", *lost_files.told(await host.not_brought_back())
