"""The honest result of a call that was running when the worker ended."""

from houston_daemon.environments.observation import Interrupted
from houston_daemon.environments.workstation.command.family import CommandActions
from houston_daemon.environments.workstation.files.family import FileActions
from houston_shared.records import Call


async def observation(call: Call, commands: CommandActions, files: FileActions) -> Interrupted:
    """Say that the outcome is unknown, and what the terminal or the file shows now."""
    now = ""
    path = call.arguments.get("path") or call.arguments.get("filename")
    if "session_id" in call.arguments:
        now = await commands.standing(call.arguments["session_id"])
    elif call.name in ("create_file", "edit_file") and path:
        now = await files.standing(path)
    elif call.name == "eval":
        now = "No submission was used."
    return Interrupted(error=f"The daemon went down while {call.name} ran.", now=now)
