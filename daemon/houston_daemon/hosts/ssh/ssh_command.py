"""How a machine is reached with OpenSSH: settings, command line, the one shared connection to it.

All rollouts of a node share one connection (ControlMaster). One worker at a time makes it, since an
sshd refuses some of many simultaneous attempts (MaxStartups). If sshd allows no more sessions on
it, ssh opens another automatically. Nothing here runs anything.
"""

import asyncio
import contextlib
import hashlib
import os
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from houston_daemon.hosts.host_files import private_folder, try_lock
from houston_shared.config_sections import HostSettings

_MAX_TURN_SECONDS = 15.0
_TURN_PAUSE_SECONDS = 0.05


@contextlib.asynccontextmanager
async def connection_turn(shared: Path) -> AsyncIterator[None]:
    """Hold the turn to connect inside the block, unless a connection at `shared` exists already.

    After 15 s the block runs anyway: another process may hang while it holds the turn.
    """
    descriptor = os.open(shared.with_suffix(".turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + _MAX_TURN_SECONDS
        while not (shared.exists() or try_lock(descriptor)):
            if time.monotonic() > end:
                break
            await asyncio.sleep(_TURN_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


CONNECT_SECONDS = 10
_ALIVE_SECONDS = 5
_ALIVE_COUNT = 3
_PERSIST_SECONDS = 60
_SERVE_COMMAND = "host-serve"


def decode_host_settings(stored: dict[str, object]) -> HostSettings:
    """The settings of a host as a rollout was started with them."""
    return msgspec.convert(stored, HostSettings)


def ssh_command_line(host: HostSettings) -> list[str]:
    """What starts Houston's process on the machine, over a shared connection.

    Raises HoustonError when the folder of shared connections is somebody else's.
    """
    options = {
        "BatchMode": "yes",
        "ControlMaster": "auto",
        "ControlPath": str(control_socket(host)),
        "ControlPersist": str(_PERSIST_SECONDS),
        "ServerAliveInterval": str(_ALIVE_SECONDS),
        "ServerAliveCountMax": str(_ALIVE_COUNT),
        "ConnectTimeout": str(CONNECT_SECONDS),
        "RequestTTY": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }
    named = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    words = ["ssh", *_target_options(host), *named]
    return [*words, "--", host.ssh, f"exec {remote_path(host.command)} {_SERVE_COMMAND}"]


def manual_command(host: HostSettings) -> str:
    """What a person types to see why it cannot be reached; it must ask nothing."""
    remote_command = f"{remote_path(host.command)} --version"
    return shlex.join(["ssh", *_target_options(host), host.ssh, remote_command])


def _target_options(host: HostSettings) -> list[str]:
    words = ["-F", _expand_path(host.ssh_config)] if host.ssh_config else []
    if host.port:
        words += ["-p", str(host.port)]
    if host.identity_file:
        words += ["-i", _expand_path(host.identity_file), "-o", "IdentitiesOnly=yes"]
    return words


def remote_path(command: str) -> str:
    """A path for the shell there; `~/` begins in the home folder of the user there."""
    if command.startswith("~/"):
        return "~/" + shlex.quote(command[2:])
    return shlex.quote(command)


def _expand_path(name: str) -> str:
    return str(Path(name).expanduser())


def control_socket(host: HostSettings) -> Path:
    """Where the shared connection's socket lies: short, for a Unix socket's path is."""
    settings_text = "\0".join((host.ssh, str(host.port), host.identity_file, host.ssh_config))
    name = hashlib.sha256(os.fsencode(settings_text)).hexdigest()[:16]
    return private_folder("connections") / f"ssh-{name}"
