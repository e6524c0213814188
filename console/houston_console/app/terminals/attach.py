"""How a person looks at a terminal's own tmux session, read-only. Nothing is run here.

The session's server belongs to the user of the daemon on that machine, and only that user (or root)
may attach; nobody can type: tmux drops what a read-only client sends. The sessions have no prefix
key, so that a key for leaving is bound as one attaches.
"""

import os
import pwd
import shlex
from pathlib import Path
from typing import NamedTuple

from houston_shared import terminal_folder
from houston_shared.records import RolloutSpec

LEAVE = "read-only: ctrl+q leaves"


class Way(NamedTuple):
    """A command that attaches; or why this user cannot, and what would do."""

    command: tuple[str, ...]
    reason: str = ""
    next: str = ""


def way(spec: RolloutSpec, host: str, name: str) -> Way:
    """The way to a terminal of a rollout."""
    if host != "local":
        return _there(spec, host, name)
    terminals = terminal_folder.terminals_folder(Path(spec.host_root), spec.rollout)
    note = terminal_folder.socket_note(terminals)
    try:
        socket = note.read_text().strip()
        owner = Path(socket).stat().st_uid
    except PermissionError:
        command = _spoken(f'"$(cat {shlex.quote(str(note))})"', name)
        return Way((), "This user may not see where its session is.", f"its owner: {command}")
    except OSError:
        return Way((), "It has no tmux session here: it was not opened, or has been closed.")
    if owner not in (os.geteuid(), 0) and os.geteuid():
        command = _spoken(shlex.quote(socket), name)
        user = _login(owner)
        return Way((), f"The session is {user}'s.", f"sudo -u {user} {command}")
    return Way(("tmux", "-S", socket, *_words(name)))


def _words(name: str) -> tuple[str, ...]:
    return (
        *("bind-key", "-n", "C-q", "detach-client", ";"),
        *("attach-session", "-r", "-t", f"={name}", ";"),
        *("display-message", "-d", "2500", LEAVE),
    )


def _spoken(socket: str, name: str) -> str:
    """A command as people type it; socket: as the shell reads it."""
    return f"tmux -S {socket} {shlex.join(_words(name))}"


def _there(spec: RolloutSpec, host: str, name: str) -> Way:
    """Over SSH, by the rights of whoever sits here."""
    settings = spec.hosts.get(host)
    if settings is None:
        return Way((), f"The rollout does not say where the host {host} is.")
    root = settings.get("host_root") or f"~/.local/state/houston/{spec.host_key}"
    terminals = terminal_folder.terminals_folder(Path(root), spec.rollout)
    note = str(terminal_folder.socket_note(terminals))
    quoted = f"~/{shlex.quote(note[2:])}" if note.startswith("~/") else shlex.quote(note)
    given = [
        *(("-p", str(settings["port"])) if settings.get("port") else ()),
        *(("-i", settings["identity_file"]) if settings.get("identity_file") else ()),
        *(("-F", settings["ssh_config"]) if settings.get("ssh_config") else ()),
    ]
    far = _spoken(f'"$(cat {quoted})"', name)
    return Way(("ssh", "-t", *given, "--", settings.get("ssh", ""), far))


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
