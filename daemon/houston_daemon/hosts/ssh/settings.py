"""How one machine is reached with OpenSSH: the command line, and where connections are shared.

All rollouts of a node share one connection to a machine (ControlMaster); where sshd allows no more
sessions on it, ssh opens another by itself. Nothing here runs anything.
"""

import hashlib
import os
import shlex
from pathlib import Path

import msgspec

from houston_daemon.hosts.private_folder import private_folder
from houston_shared.config_hosts import Host

CONNECT_SECONDS = 10
_ALIVE_SECONDS = 5
_ALIVE_COUNT = 3
_PERSIST_SECONDS = 60
_SERVE = "host-serve"


def settings_of(stored: dict[str, object]) -> Host:
    """The settings of a host as a rollout was started with them."""
    return msgspec.convert(stored, Host)


def command_line(host: Host) -> list[str]:
    """What starts Houston's process on the machine, over a shared connection.

    Raises HoustonError when the folder of shared connections is somebody else's.
    """
    options = {
        "BatchMode": "yes",
        "ControlMaster": "auto",
        "ControlPath": str(control(host)),
        "ControlPersist": str(_PERSIST_SECONDS),
        "ServerAliveInterval": str(_ALIVE_SECONDS),
        "ServerAliveCountMax": str(_ALIVE_COUNT),
        "ConnectTimeout": str(CONNECT_SECONDS),
        "RequestTTY": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }
    named = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    words = ["ssh", *_where(host), *named]
    return [*words, "--", host.ssh, f"exec {far_path(host.command)} {_SERVE}"]


def by_hand(host: Host) -> str:
    """What a person types to see why it cannot be reached; it must ask nothing."""
    return f"{shlex.join(['ssh', *_where(host), host.ssh])} {far_path(host.command)} --version"


def _where(host: Host) -> list[str]:
    words = ["-F", _path(host.ssh_config)] if host.ssh_config else []
    if host.port:
        words += ["-p", str(host.port)]
    if host.identity_file:
        words += ["-i", _path(host.identity_file), "-o", "IdentitiesOnly=yes"]
    return words


def far_path(command: str) -> str:
    """A path for the shell there; `~/` begins in the home folder of the user there."""
    if command.startswith("~/"):
        return "~/" + shlex.quote(command[2:])
    return shlex.quote(command)


def _path(name: str) -> str:
    return str(Path(name).expanduser())


def control(host: Host) -> Path:
    """Where the shared connection's socket lies: short, for a Unix socket's path is."""
    how = "\0".join((host.ssh, str(host.port), host.identity_file, host.ssh_config))
    name = hashlib.sha256(os.fsencode(how)).hexdigest()[:16]
    return private_folder("connections") / f"ssh-{name}"
