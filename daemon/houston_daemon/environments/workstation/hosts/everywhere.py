"""Actions on the sessions of every host: listing them, and closing them all."""

from collections.abc import Sequence

import msgspec

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.command.actions import CommandAction
from houston_daemon.environments.workstation.command.observations import Session, Sessions
from houston_daemon.environments.workstation.hosts.place import Place
from houston_daemon.hosts.errors import HostAway


async def act(places: Sequence[Place], arguments: CommandAction, stop: Stop) -> Observation:
    """Run the action on each host; one that is away is named and stops nothing."""
    found: list[tuple[str, Observation]] = []
    away: list[str] = []
    for place in places:
        try:
            found.append((place.host.name, await place.commands.act(arguments, stop)))
        except HostAway as problem:
            away.append(f"{problem.host} ({problem.why})")
    if not found:
        return Failed(error=f"No host can be reached now: {', '.join(away)}.")
    return _joined(found, tuple(away))


def _joined(found: Sequence[tuple[str, Observation]], away: tuple[str, ...]) -> Observation:
    if isinstance(found[0][1], Session):
        closed = tuple(
            f"{host}:{name}"
            for host, one in found
            if isinstance(one, Session)
            for name in one.closed
        )
        return Session(session_id="", change="closed", closed=closed, away=away)
    entries = tuple(
        msgspec.structs.replace(entry, host=host)
        for host, one in found
        if isinstance(one, Sessions)
        for entry in one.sessions
    )
    return Sessions(sessions=entries, away=away)
