"""How a person attaches to a terminal of a rollout: to its tmux session, read-only.

Says the command, here or over SSH by the rights of whoever sits at the console, or why there is
none. Runs nothing.
"""

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from houston_shared import terminal_log_files
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.records import RolloutSpec
from houston_shared.store.presence_queries import login_name

LEAVE_HINT = "read-only: ctrl+q leaves"


class AttachCommand(NamedTuple):
    """A command that attaches; or why this user cannot, and what would do."""

    command: tuple[str, ...]
    reason: str = ""
    suggestion: str = ""


def attach_command(spec: RolloutSpec, host: str, name: str) -> AttachCommand:
    """The command that attaches to a terminal of a rollout."""
    if host != LOCAL_HOST:
        return _ssh_attach_command(spec, host, name)
    terminals = terminal_log_files.terminals_folder(Path(spec.host_root), spec.rollout)
    note = terminal_log_files.socket_note(terminals)
    try:
        socket = note.read_text().strip()
        owner = Path(socket).stat().st_uid
    except PermissionError:
        command = _shell_command(f'"$(cat {shlex.quote(str(note))})"', name)
        return AttachCommand(
            (), "This user may not see where its session is.", f"its owner: {command}"
        )
    except OSError:
        return AttachCommand(
            (), "It has no tmux session here: it was not opened, or has been closed."
        )
    if owner not in (os.geteuid(), 0) and os.geteuid():
        command = _shell_command(shlex.quote(socket), name)
        user = login_name(owner)
        return AttachCommand((), f"The session is {user}'s.", f"sudo -u {user} {command}")
    return AttachCommand(("tmux", "-S", socket, *_tmux_words(name)))


def _tmux_words(name: str) -> tuple[str, ...]:
    return (
        *("bind-key", "-n", "C-q", "detach-client", ";"),
        *("attach-session", "-r", "-t", f"={name}", ";"),
        *("display-message", "-d", "2500", LEAVE_HINT),
    )


def _shell_command(socket: str, name: str) -> str:
    """A command as people type it; socket: as the shell reads it."""
    return f"tmux -S {socket} {shlex.join(_tmux_words(name))}"


def _ssh_attach_command(spec: RolloutSpec, host: str, name: str) -> AttachCommand:
    """Over SSH, by the rights of whoever sits here."""
    settings = spec.hosts.get(host)
    if settings is None:
        return AttachCommand((), f"The rollout does not say where the host {host} is.")
    root = settings.get("host_root") or f"~/.local/state/houston/{spec.host_key}"
    terminals = terminal_log_files.terminals_folder(Path(root), spec.rollout)
    note = str(terminal_log_files.socket_note(terminals))
    quoted = f"~/{shlex.quote(note[2:])}" if note.startswith("~/") else shlex.quote(note)
    options = [
        *(("-p", str(settings["port"])) if settings.get("port") else ()),
        *(("-i", settings["identity_file"]) if settings.get("identity_file") else ()),
        *(("-F", settings["ssh_config"]) if settings.get("ssh_config") else ()),
    ]
    far = _shell_command(f'"$(cat {quoted})"', name)
    return AttachCommand(("ssh", "-t", *options, "--", settings.get("ssh", ""), far))
