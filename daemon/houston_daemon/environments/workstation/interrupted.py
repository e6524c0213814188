"""The honest result of a call that was running when the worker ended."""

from houston_daemon.environments.observation import Interrupted
from houston_daemon.environments.workstation.hosts.place import Place
from houston_daemon.hosts.errors import HostAway
from houston_shared.records import Call


async def observation(call: Call, place: Place) -> Interrupted:
    """Say that the outcome is unknown, and what the terminal or the file shows now."""
    try:
        now = await standing(call, place)
    except HostAway as away:
        now = f"The host {away.host} cannot be reached now: {away.why}."
    return Interrupted(error=f"The daemon went down while {call.name} ran.", now=now)


async def standing(call: Call, place: Place) -> str:
    """What the call was about shows now. Raises HostAway."""
    path = call.arguments.get("path") or call.arguments.get("filename")
    if "session_id" in call.arguments:
        return await place.commands.standing(call.arguments["session_id"])
    if call.name in ("create_file", "edit_file") and path:
        return await place.files.standing(path)
    return "No submission was used." if call.name == "eval" else ""
