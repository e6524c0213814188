"""Where a worker reaches the recorder: the address of `ingest`, and keys where that is a TCP port.

This is all that a worker needs to find its daemon, whoever starts it: an argument on this machine,
a file on another one (`houston host add` writes it), or this struct. `agent.recorder_client`
connects; `recorder.disk.host_keys` decides who may.
"""

import re
from pathlib import Path

import msgspec

from houston_shared.errors import ConfigurationError, ExitCode

_CURVE_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""Z85 (rfc.zeromq.org/spec/32) of 32 bytes."""
_TCP_ADDRESS = re.compile(r"tcp://(?:[^:/\s]+|\[[0-9a-fA-F:.]+\]):([1-9]\d{0,4})")


def is_curve_key(text: str) -> bool:
    """Whether it may be a CURVE key."""
    return _CURVE_KEY.fullmatch(text) is not None


def is_tcp_address(text: str) -> bool:
    """Whether it is `tcp://HOST:PORT`."""
    match = _TCP_ADDRESS.fullmatch(text)
    return match is not None and int(match[1]) < 65_536


class RecorderEndpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One address of the recorder; over `tcp://` with CURVE keys, in Z85."""

    address: str
    """`ipc://PATH`, or `tcp://HOST:PORT`."""
    server_key: str = ""
    """The public key of the home, by which a worker knows that it speaks with its daemon."""
    public_key: str = ""
    secret_key: str = ""
    """The pair by which the daemon knows the worker's host."""
    file: str = ""
    """Where it was read from; agents on this machine must not see that file."""

    @property
    def is_remote(self) -> bool:
        """Whether it is reached over a network."""
        return self.address.startswith("tcp://")

    def __repr__(self) -> str:
        """Without the secret key: this may stand in a log."""
        return f"RecorderEndpoint({self.address!r})"


def parse_endpoint(text: str) -> RecorderEndpoint:
    """What a worker's `--endpoint` names: an `ipc://` address, or a file of `houston host add`.

    Raises ConfigurationError.
    """
    if text.startswith("ipc://"):
        return RecorderEndpoint(text)
    if "://" in text:
        raise ConfigurationError(
            f"{text.partition('://')[0]}:// needs the keys of a host.",
            "Nothing was connected.",
            "Name the file that `houston host add NAME` wrote.",
        )
    return read_endpoint_file(Path(text))


def read_endpoint_file(path: Path) -> RecorderEndpoint:
    """Read what `houston host add` wrote. Raises ConfigurationError."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as problem:
        missing = isinstance(problem, FileNotFoundError)
        raise ConfigurationError(
            f"The endpoint file {path} cannot be read: {getattr(problem, 'strerror', problem)}.",
            "Nothing was connected.",
            "On the daemon's machine: houston host add NAME",
            ExitCode.NOT_FOUND if missing else ExitCode.CONFIGURATION,
        ) from None
    try:
        endpoint = msgspec.json.decode(data, type=RecorderEndpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        endpoint = RecorderEndpoint("")
    keys = (endpoint.server_key, endpoint.public_key, endpoint.secret_key)
    if not is_tcp_address(endpoint.address) or not all(map(is_curve_key, keys)):
        raise ConfigurationError(
            f"{path} is no endpoint file: it needs a tcp:// address and three keys.",
            "Nothing was connected.",
            "On the daemon's machine: houston host add NAME",
        )
    return msgspec.structs.replace(endpoint, file=str(path.absolute()))
