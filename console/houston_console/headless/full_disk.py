"""What rollouts do while the home's disk is full, which nobody can write down then.

With a little room left the worker's own words are stored and say more; a quota is not seen here.
"""

import shutil

from msgspec.structs import replace

from houston_shared import lock
from houston_shared.home import Home
from houston_shared.records import LOW_DISK
from houston_shared.store.queries.rollouts import Rollout


def as_it_is(found: list[Rollout], home: Home) -> list[Rollout]:
    """Rollouts with what they do now: on a full disk, those that a daemon runs wait for room."""
    room = shutil.disk_usage(home.path)
    if not room.total or room.free >= LOW_DISK or lock.holder(home) is None:
        return found
    return [replace(one, activity=_waiting(one)) for one in found]


def _waiting(one: Rollout) -> str:
    if one.state != "running" or one.activity.startswith("waiting: "):
        return one.activity
    return "waiting: the disk is full"
