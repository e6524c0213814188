"""What rollouts do while the home's disk has no byte left, which nobody can write down then.

With a little room left the daemon stores that they are paused; a quota is not seen here.
"""

import shutil

from msgspec.structs import replace

from houston_shared import lock
from houston_shared.home import Home
from houston_shared.records import LOW_DISK
from houston_shared.store.queries.rollouts import Rollout


def as_it_is(found: list[Rollout], home: Home) -> list[Rollout]:
    """Rollouts as they are now: on a full disk, those that a daemon would run are paused by it."""
    room = shutil.disk_usage(home.path)
    if not room.total or room.free >= LOW_DISK or lock.holder(home) is None:
        return found
    reason = f"{room.free // 1_000_000} MB free on the disk of the home"
    return [
        replace(one, state="paused", paused_by="disk", reason=reason)
        if one.state in ("queued", "running")
        else one
        for one in found
    ]
