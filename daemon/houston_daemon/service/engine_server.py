"""What is behind each engine's name: a child server of ours, a URL, or nothing (a file).

A child's port is chosen once for a home and engine and kept, so that a worker's retry reaches the
server that was started again. The child itself is a session of its own and outlives the daemon.
"""

import errno
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from houston_daemon.engines.install import vllm_command
from houston_daemon.engines.model import model_path
from houston_daemon.engines.process import EngineProcess
from houston_daemon.service.engine_watch import Server
from houston_shared.config import FILE_ENGINES, Engine, Loaded
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home

EMBEDDED = "houston_daemon.engines.embedded"


def servers(loaded: Loaded) -> Callable[[str], Server | None]:
    """Make the server behind an engine's name, from the configuration in force."""

    def make(name: str) -> Server | None:
        try:
            engine = loaded.engine(name)
        except ConfigurationError as problem:
            return Missing(problem)
        if engine.kind in FILE_ENGINES:
            return None
        if engine.url:
            return Remote(engine.url)
        return Child(loaded.home, name, engine)

    return make


def is_child(engine: Engine) -> bool:
    """Whether the daemon starts this engine itself."""
    return engine.kind in ("embedded", "vllm") and not engine.url


class Missing:
    """An engine that the configuration no longer knows."""

    url = ""

    def __init__(self, problem: ConfigurationError) -> None:
        self._problem = problem

    def bring_up(self) -> None:
        """Raise what is wrong."""
        raise self._problem

    def alive(self) -> bool:
        """Never."""
        return False

    def healthy(self) -> bool:
        """Never."""
        return False

    def reason(self) -> str:
        """What is wrong."""
        return str(self._problem)

    def end(self) -> None:
        """Nothing to end."""


class Remote:
    """A server at a URL that somebody else keeps: asked only whether its port answers."""

    def __init__(self, url: str) -> None:
        self.url = ""  # workers have it in their settings
        self._address = address_of(url)
        self._why = ""

    def bring_up(self) -> None:
        """Raise HoustonError while nobody listens there."""
        if not self.healthy():
            raise HoustonError(self._why)

    def alive(self) -> bool:
        """As far as asking can tell."""
        return self.healthy()

    def healthy(self) -> bool:
        """Whether a connection is accepted."""
        self._why = refusal(self._address)
        return not self._why

    def reason(self) -> str:
        """Why not."""
        return self._why

    def end(self) -> None:
        """It is not ours."""


class Child:
    """A server that this daemon starts: the embedded one, or `vllm serve`."""

    def __init__(self, home: Home, name: str, engine: Engine) -> None:
        self._home = home
        self._name = name
        self._engine = engine
        self.url = ""
        self._process: EngineProcess | None = None

    def bring_up(self) -> None:
        """Find the child of an earlier daemon, or start one on its port."""
        port = kept_port(self._home, self._name, self._engine)
        process = self._make(port)
        if not process.adopt():
            port = free_port(self._home, self._name, self._engine, port)
            process = self._make(port)
            process.start()
        self._process = process
        self.url = process.url

    def _make(self, port: int) -> EngineProcess:
        return engine_process(self._home, self._name, self._engine, port)

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.alive()

    def healthy(self) -> bool:
        """Whether it answers."""
        return self._process is not None and self._process.healthy()

    def reason(self) -> str:
        """The last line of its log."""
        from houston_daemon.service.log import last_line

        log = engine_log(self._home, self._name)
        return f"it ended: {last_line(log) or 'it wrote nothing'} (see {log})"

    def end(self) -> None:
        """End it; waits until it is gone."""
        if self._process is not None:
            self._process.stop()


def end_left_over(home: Home) -> list[str]:
    """End engines that an earlier daemon of this home left; returns their names."""
    ended = []
    for state in sorted(engines_folder(home).glob("*.json")):
        process = EngineProcess(state.stem, [], "", state, engine_log(home, state.stem), {})
        if process.adopt():
            process.stop()
            ended.append(state.stem)
    return ended


def engine_process(home: Home, name: str, engine: Engine, port: int) -> EngineProcess:
    """The child as it would be started now. Raises HoustonError when its parts are missing."""
    folder = engines_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    return EngineProcess(
        name,
        child_command(name, engine, port),
        f"http://127.0.0.1:{port}/v1",
        folder / f"{_file(name)}.json",
        engine_log(home, name),
        engine.environment,
    )


def child_command(name: str, engine: Engine, port: int) -> list[str]:
    """Command of a child. Raises HoustonError when the model or vLLM is not there."""
    if engine.command:
        return [part.replace("{port}", str(port)) for part in engine.command]
    model = Path(engine.model) if engine.model else model_path()
    if model is None:
        raise HoustonError(
            f"The model of engine {name!r} is not on this machine.",
            next="houston doctor --fetch-model",
            code=ExitCode.CONFIGURATION,
        )
    if engine.kind == "vllm":
        return vllm_command(model, port)
    return [sys.executable, "-m", EMBEDDED, "--model", str(model), "--port", str(port)]


def engines_folder(home: Home) -> Path:
    """Where children's ports and pids are kept."""
    return home.run / "engines"


def engine_log(home: Home, name: str) -> Path:
    """Log of a child."""
    return home.logs / "engines" / f"{_file(name)}.log"


def kept_port(home: Home, name: str, engine: Engine) -> int:
    """The port of this engine in this home: configured, or chosen once and kept."""
    if engine.port:
        return engine.port
    file = engines_folder(home) / f"{_file(name)}.port"
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return _choose(file)


def free_port(home: Home, name: str, engine: Engine, port: int) -> int:
    """`port` if nobody listens there; else another, or HoustonError when it is configured."""
    if not taken(port):
        return port
    if engine.port:
        raise port_taken(name, port)
    return _choose(engines_folder(home) / f"{_file(name)}.port")


def port_taken(name: str, port: int) -> HoustonError:
    """The sentence for a configured port that another program holds."""
    return HoustonError(
        f"Port {port} of engine {name!r} is taken by another program.",
        "The engine was not started.",
        f"Set `engines.{name}.port` to another (0 takes a free one), or end that program.",
    )


def taken(port: int) -> bool:
    """Whether another program listens on a loopback port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as problem:
            return problem.errno == errno.EADDRINUSE
    return False


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a URL. Raises ConfigurationError when it is none."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise ConfigurationError(f"{url!r} is no http(s) address of an engine.")
    return parts.hostname, port


def refusal(address: tuple[str, int], seconds: float = 3.0) -> str:
    """Why nobody answers at `address`; empty when somebody does."""
    try:
        socket.create_connection(address, seconds).close()
    except OSError as problem:
        host, port = address
        why = problem.strerror or ("no answer" if isinstance(problem, TimeoutError) else "unknown")
        return f"{host}:{port} cannot be reached ({why.lower()})"
    return ""


def _choose(file: Path) -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = int(trial.getsockname()[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{port}\n")
    return port


def _file(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)
