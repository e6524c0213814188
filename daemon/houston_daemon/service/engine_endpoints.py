"""Where engines are: ports, addresses, logs and state files; and whether a server answers there.

A child's port is chosen once for a home and engine and kept, so a worker's retry reaches the
restarted server. A server behind a proxy is asked through it, as workers do. Starts nothing and is
light to import.
"""

import errno
import os
import secrets
import socket
import tempfile
from collections.abc import Container
from pathlib import Path
from urllib.parse import quote, urlsplit

from houston_shared.engine_settings import EngineSettings, server_name
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home

_LONGEST_TEMPORARY_BYTES = 64
"""Bytes of a folder in which vLLM's sockets, of 37 bytes each, still have room (107 in all)."""

_PROXY_REFUSALS = frozenset({407, 502, 503, 504})
"""What a proxy says that does not reach a server, or lets nobody through."""


def engines_folder(home: Home) -> Path:
    """Where children's ports and pids are kept; in the home, also where its sockets are not."""
    return home.path / "run" / "engines"


def state_file(home: Home, name: str) -> Path:
    """Where pid and address of a child are kept."""
    return engines_folder(home) / f"{engine_file_name(name)}.json"


def engine_log(home: Home, name: str) -> Path:
    """Log of a child."""
    return home.logs / "engines" / f"{engine_file_name(name)}.log"


def output_pipe(home: Home, name: str) -> Path:
    """The pipe that a child writes its log into."""
    return engines_folder(home) / f"{engine_file_name(name)}.pipe"


def temporary_folder(home: Home, name: str) -> Path:
    """A new path for a child's temporary files: in the home, or elsewhere if that is too long."""
    inside = engines_folder(home).absolute() / f"{engine_file_name(name)}.{secrets.token_hex(4)}"
    if len(os.fsencode(inside)) <= _LONGEST_TEMPORARY_BYTES:
        return inside
    return Path(tempfile.gettempdir()) / f"houston-{secrets.token_hex(8)}"


def kept_port(home: Home, name: str, engine: EngineSettings) -> int:
    """The port of this engine in this home: configured, or chosen once and kept."""
    if engine.port:
        return engine.port
    file = engines_folder(home) / f"{engine_file_name(name)}.port"
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return _choose_port(file)


def usable_port(home: Home, name: str, engine: EngineSettings, port: int) -> int:
    """`port` if nobody listens there; else another, or HoustonError when it is configured."""
    if not is_port_taken(port):
        return port
    if engine.port:
        raise port_taken_error(name, port)
    return _choose_port(engines_folder(home) / f"{engine_file_name(name)}.port")


def port_taken_error(name: str, port: int) -> HoustonError:
    """The sentence for a configured port that another program holds."""
    return HoustonError(
        f"Port {port} of engine {name!r} is taken by another program.",
        "The engine was not started.",
        f"Set `engines.{name}.port` to another (0 takes a free one), or end that program.",
    )


def is_port_taken(port: int) -> bool:
    """Whether another program listens on a loopback port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as problem:
            return problem.errno == errno.EADDRINUSE
    return False


def parse_address(url: str) -> tuple[str, int]:
    """Host and port of a URL. Raises ConfigurationError when it is none."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise ConfigurationError(f"{url!r} is not an http(s) address of an engine.")
    return parts.hostname, port


def connection_problem(url: str, seconds: float = 3.0) -> str:
    """Why nobody answers at an engine's address; empty when somebody does. Raises
    ConfigurationError when it is no address."""
    host, port = parse_address(url)
    from houston_daemon.engines import engine_http  # see `engine_process.is_healthy`

    if engine_http.has_proxy(url):
        return answer_problem(url.rstrip("/") + "/models", seconds, _PROXY_REFUSALS)
    try:
        socket.create_connection((host, port), seconds).close()
    except OSError as problem:
        reason = problem.strerror or (
            "no answer" if isinstance(problem, TimeoutError) else "unknown"
        )
        return f"{host}:{port} cannot be reached ({reason.lower()})"
    return ""


def answer_problem(page: str, seconds: float, faults: Container[int] = range(500, 600)) -> str:
    """Why a page is not answered within `seconds`; empty if it is, unless with one of the statuses
    `faults`: a server may lack the page, or require a key."""
    import httpx  # see `engine_process.is_healthy`

    from houston_daemon.engines.engine_http import connection_settings

    try:
        with httpx.stream("GET", page, timeout=seconds, **connection_settings(page)) as answer:
            status = answer.status_code  # a list of models may be long, and nobody reads it
    except (httpx.HTTPError, ImportError, ValueError) as problem:  # a proxy that httpx cannot use
        return f"{server_name(page)} does not answer ({str(problem) or type(problem).__name__})"
    return f"it answers {status}" if status in faults else ""


def _choose_port(file: Path) -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = int(trial.getsockname()[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{port}\n")
    return port


def engine_file_name(name: str) -> str:
    """An engine's name as part of a file name: no two names have the same."""
    return quote(name, safe="@#")
