"""What an agent is told of a host that is away, or went away while its call ran."""

from houston_daemon.environments.observation import Failed, Interrupted, Observation
from houston_daemon.environments.workstation import interrupted
from houston_daemon.environments.workstation.hosts.place import Place
from houston_daemon.hosts.errors import HostAway
from houston_shared.records import Call

_GO_ON = "Its sessions and what runs in them go on there, and the connection is tried again."


async def observation(call: Call, place: Place, away: HostAway) -> Observation:
    """The honest result; where the host is back by now, with what it shows."""
    if not away.cut:
        return Failed(
            error=f"The host {away.host} cannot be reached now: {away.why}. {call.name} was not "
            f"done. {_GO_ON} Try again later"
        )
    try:
        now = await interrupted.standing(call, place)
        now = f"The host is back.\n{now}" if now else "The host is back."
    except HostAway:
        now = _GO_ON
    return Interrupted(
        error=f"The host {away.host} went away while {call.name} ran ({away.why}).", now=now
    )
