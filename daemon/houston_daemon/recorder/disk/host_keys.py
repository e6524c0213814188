"""The keys of a home for workers on other machines: its own pair, and each host's public key.

They are in one file, `host-keys.json`, readable by the owner only (0600); backups leave it out. A
host's secret key is in the file that `houston host add` hands out and nowhere else. `KnownHosts` is
the recorder's view: it checks the file each time, so a removed host is refused from that moment on.
`remote_ingest` handles the connections.
"""

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Iterator

import msgspec

from houston_shared.atomic_file import write_atomically
from houston_shared.config_reload import FileStamp, read_file_stamp
from houston_shared.config_sections import RecorderSettings
from houston_shared.errors import (
    ConfigurationError,
    ExitCode,
    HoustonError,
    NotFound,
    UsageError,
    did_you_mean,
    unwritable_as_error,
)
from houston_shared.home import Home
from houston_shared.recorder_endpoint import RecorderEndpoint, is_curve_key
from houston_shared.times_and_counts import now_us

_HOST_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_EVERYWHERE = ("*", "0.0.0.0", "[::]")
"""Hosts of `listen` that no other machine can connect to by that name."""


class HostKey(msgspec.Struct, frozen=True):
    """One host whose workers may speak to the recorder."""

    public_key: str
    added: int
    """When, microseconds UTC."""


class HostKeys(msgspec.Struct, frozen=True):
    """All of `host-keys.json`; keys are CURVE keys in Z85."""

    public_key: str
    secret_key: str
    hosts: dict[str, HostKey] = {}
    """By name."""

    def __repr__(self) -> str:
        """Without the secret key."""
        return f"HostKeys({', '.join(self.hosts)})"


def read_host_keys(home: Home) -> HostKeys | None:
    """The keys, None where none were ever made. Raises HoustonError where they cannot be read."""
    try:
        keys = msgspec.json.decode(home.host_keys.read_bytes(), type=HostKeys)
        if is_curve_key(keys.public_key) and is_curve_key(keys.secret_key):
            return keys
        raise msgspec.ValidationError("a key is none")
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is damaged"
        raise HoustonError(
            f"{home.host_keys} cannot be read: {reason}.",
            "Workers on other machines cannot connect.",
            "Move it away and add each host again: houston host add NAME",
            ExitCode.CONFIGURATION,
        ) from None


def ensure_server_keys(home: Home) -> HostKeys:
    """The keys, with a pair of the home's own, which is made on first need. Raises HoustonError."""
    with _exclusive_lock(home):
        return _read_or_make(home)


def add_host(
    home: Home, settings: RecorderSettings, name: str, replace: bool = False
) -> RecorderEndpoint:
    """Create a key pair for a host and admit it; returns what the host needs, stored nowhere else.

    replace: a host of that name gets new keys, and its old ones become invalid. Raises
    HoustonError.
    """
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid host name: use lower-case letters, digits, `.` and `-`.",
            "No key was made.",
        )
    address = reachable_address(home, settings)
    import zmq  # only who makes keys needs it

    with _exclusive_lock(home):
        keys = _read_or_make(home)
        if name in keys.hosts and not replace:
            raise HoustonError(
                f"{name} has keys already.",
                "Nothing was changed.",
                f"To replace them with new ones: houston host add {name} --replace",
            )
        public_key, secret_key = (key.decode() for key in zmq.curve_keypair())
        hosts = {**keys.hosts, name: HostKey(public_key, now_us())}
        _write(home, msgspec.structs.replace(keys, hosts=hosts))
    return RecorderEndpoint(address, keys.public_key, public_key, secret_key)


def remove_host(home: Home, name: str) -> None:
    """Refuse a host from now on, also its next message to a running daemon. Raises HoustonError."""
    with _exclusive_lock(home):
        keys = read_host_keys(home)
        known_hosts = keys.hosts if keys else {}
        if keys is None or name not in known_hosts:
            raise NotFound(
                f"There is no host {name!r}; known: {', '.join(sorted(known_hosts)) or 'none'}.",
                "Nothing was changed.",
                did_you_mean(name, known_hosts) or "houston host list",
            )
        hosts = {other: key for other, key in known_hosts.items() if other != name}
        _write(home, msgspec.structs.replace(keys, hosts=hosts))


def reachable_address(home: Home, settings: RecorderSettings) -> str:
    """The address for other machines. Raises ConfigurationError where nothing is listened to."""
    if not settings.listen:
        raise ConfigurationError(
            "`[recorder] listen` is not set: the daemon listens to this machine only.",
            "No key was made.",
            f'In {home.configuration}: [recorder] listen = "tcp://*:7450"',
        )
    host, _, port = settings.listen.removeprefix("tcp://").rpartition(":")
    own = f"tcp://{socket.gethostname()}:{port}" if host in _EVERYWHERE else settings.listen
    return settings.address or own


@contextlib.contextmanager
def _exclusive_lock(home: Home) -> Iterator[None]:
    """One process at a time; raises HoustonError where this user may not write the home."""
    with unwritable_as_error(
        home.host_keys, "No key was changed.", "Ask the user whose daemon it is."
    ):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(home.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(1, "the home belongs to another user")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _read_or_make(home: Home) -> HostKeys:
    if keys := read_host_keys(home):
        return keys
    import zmq

    public_key, secret_key = (key.decode() for key in zmq.curve_keypair())
    keys = HostKeys(public_key, secret_key)
    _write(home, keys)
    return keys


def _write(home: Home, keys: HostKeys) -> None:
    write_atomically(home.host_keys, msgspec.json.encode(keys), mode=0o600)


class KnownHosts:
    """Which hosts count now; may be asked from several threads."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: tuple[FileStamp, dict[str, str]] = ((0, 0, 0), {})
        """The file as it was read last, and public key → name in it."""
        self._names: dict[str, str] = {}
        """Public key → name, also of those that were removed since."""

    def name_of(self, public_key: str) -> str | None:
        """The host of a key; None for a key that is not admitted. Raises HoustonError."""
        stamp = read_file_stamp(self._home.host_keys)
        if stamp != self._seen[0]:
            keys = read_host_keys(self._home)
            names = {key.public_key: name for name, key in keys.hosts.items()} if keys else {}
            self._names |= names
            self._seen = (stamp, names)
        return self._seen[1].get(public_key)

    def former_name_of(self, public_key: str) -> str:
        """Whose key it was."""
        return self._names.get(public_key, "unknown")
