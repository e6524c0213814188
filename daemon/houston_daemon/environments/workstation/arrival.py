"""What the agent of a branch is told with its first observation: that its world is a new one."""

from houston_daemon.environments import lost_files
from houston_daemon.environments.workstation.hosts.place import Places
from houston_shared.records import RolloutSpec


async def arrival(spec: RolloutSpec, places: Places) -> tuple[str, ...]:
    """The lines for a branch; none for any other rollout."""
    if spec.origin is None:
        return ()
    said = (
        f"[from after step {spec.parent_step} on this work goes on in a new place: the workspace"
        " is as it was after that step, no session is open, the file window is closed, and nothing"
        " that was running then is running now]"
    )
    lost = [
        path if place is places.first else f"{place.host.name}:{path}"
        for place in places
        for path in await place.host.not_brought_back()
    ]
    return said, *lost_files.told(lost)
