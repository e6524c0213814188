"""What the agent of a branch is told with its first observation: that its world is a new one."""

from houston_daemon.environments.workstation.hosts.place import Places
from houston_shared.records import RolloutSpec
from houston_shared.safe_text import safe_line

NAMED = 20
"""Paths that are named; the others are counted."""
_LONGEST = 120


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
    if not lost:
        return (said,)
    names = ", ".join(str(safe_line(path))[:_LONGEST] for path in lost[:NAMED])
    more = f", and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    return said, f"[these files could not be brought back: {names}{more}]"
