"""The child server of an engine (the embedded one, or `vllm serve`) and the pipe of its log.

It runs in its own session with GPUs from the ledger and outlives the daemon; the next daemon adopts
it by its state file, unless its command, environment or GPUs changed. Its output goes through a
named pipe, which the engine itself holds open so that it never breaks, to a log pump, which is
restarted if it was killed. `engine_supervisor` checks whether it answers; `engine_guard` ends one
without a daemon.
"""

import fcntl
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from houston_daemon.engines.engine_process import EngineProcess, ServerState
from houston_daemon.engines.hub_downloads import require_fetched
from houston_daemon.engines.local_model import model_path
from houston_daemon.engines.vllm_serve import MAX_LOADED_ADAPTERS, vllm_command
from houston_daemon.service import engine_guard
from houston_daemon.service.engine_endpoints import (
    engine_log,
    engines_folder,
    kept_port,
    output_pipe,
    state_file,
    temporary_folder,
    usable_port,
)
from houston_daemon.service.gpu_ledger import ENGINE_HOLDER_PREFIX, GpuLedger
from houston_shared.atomic_file import read_json_file
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.gpu_leases import visible_gpus_environment
from houston_shared.home import Home
from houston_shared.hub_models import with_hub_folders

LOG_PUMP_MODULE = "houston_daemon.service.log_rotation"
LOG_PIPE_BYTES = 1 << 20
"""Output that waits while there is no pump; the kernel's usual 64 KB is a moment of loading."""


class EngineLogPipe:
    """The pipe of one engine."""

    def __init__(self, pipe: Path, log: Path, limit: int, keep: int) -> None:
        """limit: bytes of one log file; keep: older files that are kept."""
        self._pipe = pipe
        self._pump = [sys.executable, "-m", LOG_PUMP_MODULE, str(log), str(limit), str(keep)]

    def open(self) -> int:
        """A descriptor for an engine's output, to be closed here once it runs; the pump runs too.

        Raises OSError.
        """
        self._pipe.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkfifo(self._pipe, 0o600)
        end = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # more than this user may have; then it stays as it is
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, LOG_PIPE_BYTES)
            self.ensure_pump()
        except OSError:
            os.close(end)
            raise
        return end

    def ensure_pump(self) -> None:
        """Start the pump unless it runs, or there is nothing to pump. Raises OSError."""
        fd = self._free()
        if fd is None:
            return
        try:
            subprocess.Popen(
                self._pump,
                stdin=fd,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(fd)  # the pump has the same open file, and with it the lock

    def wait_until_written(self, seconds: float) -> None:
        """Wait until the pump has written all and ended, at most `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (fd := self._free()) is not None:
                os.close(fd)
                return
            if not self._pipe.exists():
                return
            time.sleep(0.02)

    def _free(self) -> int | None:
        """The reading end with its lock; None where a pump has it, or there is no pipe."""
        try:
            fd = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd


EMBEDDED_SERVER_MODULE = "houston_daemon.engines.embedded"
LAST_LINES_SECONDS = 2.0
"""How long the last lines of an engine that ended may take to reach its log."""


class EngineChild:
    """A server that this daemon starts: the embedded one, or `vllm serve`."""

    def __init__(
        self,
        home: Home,
        name: str,
        engine: EngineSettings,
        log_bytes: int,
        log_files: int,
        gpus: GpuLedger,
        orphan_seconds: float,
    ) -> None:
        """log_bytes, log_files: size of one log file, and how many older ones are kept.

        orphan_seconds: how long it goes on when the daemon is gone and no other comes.
        """
        self._orphan_seconds = orphan_seconds
        self._gpus = gpus
        self._home = home
        self._name = name
        self._engine = engine
        self._pipe = EngineLogPipe(
            output_pipe(home, name), engine_log(home, name), log_bytes, log_files
        )
        self.url = ""
        self._process: EngineProcess | None = None
        self._visible: dict[str, str] = {}

    def bring_up(self) -> None:
        """Find the child of an earlier daemon, or start one on its port.

        A child that was started with another command, environment or GPUs (the configuration
        changed) is ended first.
        """
        self._engine = with_hub_folders(self._engine, self._home)  # fetched since it was made?
        port = kept_port(self._home, self._name, self._engine)
        self._lease()
        self._pump()
        process = self._make(port)
        adopted = process.adopt()
        if adopted and not process.is_started_alike():
            process.stop()
            adopted = False
        if not adopted:
            port = usable_port(self._home, self._name, self._engine, port)
            process = self._make(port)
            process.start()
        self._process = process
        self.url = process.url
        self._guard(process)

    def _guard(self, process: EngineProcess) -> None:
        """Have the engine end by itself when no daemon has it any more."""
        if process.state is not None:
            state, log = state_file(self._home, self._name), engine_log(self._home, self._name)
            lock = self._home.lock_file
            engine_guard.start_engine_guard(state, process.state, lock, self._orphan_seconds, log)

    def _command(self, port: int) -> list[str]:
        return engine_child_command(self._name, self._engine, port)

    def _make(self, port: int) -> EngineProcess:
        return EngineProcess(
            self._name,
            self._command(port),
            f"http://127.0.0.1:{port}/v1",
            state_file(self._home, self._name),
            engine_log(self._home, self._name),
            {**self._engine.environment, **self._visible},
            self._pipe.open,
            temporary_folder(self._home, self._name),
        )

    def _lease(self) -> None:
        """Have the GPUs that it asks for. Raises HoustonError while they are taken."""
        holder = engine_gpu_holder(self._name)
        if not self._engine.gpus:
            if self._gpus.gpus_of(holder):
                self._gpus.release(holder)
            return
        gpus_by_host = {LOCAL_HOST: self._engine.gpus}
        leased = self._gpus.lease(holder, gpus_by_host, self._engine.gpus_shared)
        if isinstance(leased, str):
            recorded_process(self._home, self._name).stop()  # others may get what it runs on
            raise HoustonError(f"Engine {self._name} {leased}.")
        self._visible = visible_gpus_environment(leased[LOCAL_HOST])

    def _pump(self) -> None:
        try:
            self._pipe.ensure_pump()
        except OSError as problem:
            raise HoustonError(
                f"The log of engine {self._name} cannot be written: {problem}."
            ) from problem

    def alive(self) -> bool:
        """Whether its process runs; what writes its log is kept running, too. HoustonError."""
        self._pump()
        return self._process is not None and self._process.alive()

    def healthy(self) -> bool:
        """Whether it answers."""
        return self._process is not None and self._process.healthy()

    def failure_reason(self) -> str:
        """What its log says about its end."""
        self._pipe.wait_until_written(LAST_LINES_SECONDS)
        last_line = self._process.failing_line() if self._process else ""
        return f"it ended: {last_line or 'it wrote nothing'} ({engine_log(self._home, self._name)})"

    def end(self, seconds: float = 10.0) -> None:
        """End it; waits until it is gone, by force after most of `seconds`.

        Also ends a child of an earlier daemon that was not adopted yet.
        """
        process = self._process or self._make(0)
        if self._process is not None or process.adopt():
            process.stop(max(0.2, seconds - 1.0))
        self._gpus.release(engine_gpu_holder(self._name))


def engine_gpu_holder(name: str) -> str:
    """An engine as the ledger of GPUs has it."""
    return ENGINE_HOLDER_PREFIX + name


def release_gpus_of_dead_engines(home: Home, gpus: GpuLedger) -> None:
    """Free what engines had that ended while no daemon ran."""
    for holder in {lease.holder for lease in gpus.snapshot().leases}:
        name = holder.removeprefix(ENGINE_HOLDER_PREFIX)
        if name != holder and not recorded_process(home, name).adopt():
            gpus.release(holder)


def recorded_process(home: Home, name: str) -> EngineProcess:
    """The child that the state file names, to be adopted where it still runs."""
    return EngineProcess(name, [], "", state_file(home, name), engine_log(home, name), {})


def end_orphaned_engines(home: Home, seconds: float = 3.0) -> list[str]:
    """End engines that an earlier daemon left, all at once, by force after `seconds`.

    Returns their names.
    """
    states = sorted(engines_folder(home).glob("*.json"))
    orphans = {
        state.stem: EngineProcess(state.stem, [], "", state, engine_log(home, state.stem), {})
        for state in states
    }
    running = {name: process for name, process in orphans.items() if process.adopt()}
    with ThreadPoolExecutor(max_workers=max(1, len(running))) as pool:
        list(pool.map(lambda process: process.stop(seconds), running.values()))
    return list(running)


def end_former_replicas(loaded: LoadedConfiguration, seconds: float = 3.0) -> None:
    """End children of an earlier daemon that the edited configuration has no place for: nobody
    would find them again."""
    home = loaded.home
    for file in sorted(engines_folder(home).glob("*#*.json")):
        replica = unquote(file.stem)
        name, _, number = replica.rpartition("#")
        engine = loaded.config.engines.get(name)
        if replica in loaded.config.engines or "@" in name:  # full weights' are not configured
            continue
        if engine is None or not number.isdecimal() or int(number) > engine.replicas:
            process = recorded_process(home, replica)
            if process.adopt():
                process.stop(seconds)


def recorded_command(home: Home, name: str) -> list[str]:
    """The command that the recorded child was started with; empty when none is recorded."""
    state = read_json_file(state_file(home, name), ServerState, FileNotFoundError)
    return list(state.command) if state else []


def engine_child_command(name: str, engine: EngineSettings, port: int) -> list[str]:
    """Command of a child. Raises HoustonError when the model or vLLM is not there."""
    if engine.command:
        return [part.replace("{port}", str(port)) for part in engine.command]
    require_fetched(name, engine)
    model = Path(engine.model) if engine.model else model_path()
    if model is None:
        raise HoustonError(
            f"The model of engine {name!r} is not on this machine.",
            next="houston doctor --fetch-model",
            code=ExitCode.CONFIGURATION,
        )
    if engine.kind == "vllm":
        adapters = (engine.max_adapters or MAX_LOADED_ADAPTERS) if engine.lora else 0
        variables, args = engine.environment, engine.args
        return vllm_command(model, port, adapters=adapters, variables_given=variables, args=args)
    return [
        sys.executable,
        "-m",
        EMBEDDED_SERVER_MODULE,
        "--model",
        str(model),
        "--port",
        str(port),
    ]
