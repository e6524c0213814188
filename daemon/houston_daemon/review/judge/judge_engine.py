"""The engine that a judge asks: at its URL, as the daemon's child, or started for as long as it is
needed.

A child that no rollout has used does not run; the first sample starts it (`LazyEngine`), under the
daemon's own state file, so the daemon can take it over. `open_judge_client` gives the client with
tokenizer, dialect and window. The module itself asks nothing.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.agent.rollout_setup import engine_price, tokenizer_file
from houston_daemon.engines.engine_process import EngineProcess
from houston_daemon.engines.engine_protocol import Engine, EngineSample, SampleRequest
from houston_daemon.engines.engine_registry import choose_engine, missing_variables
from houston_daemon.engines.hub_downloads import fetched_engine
from houston_daemon.engines.local_model import configured_window, model_path
from houston_daemon.engines.token_engine import TokenEngine
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, TokenEstimator
from houston_daemon.review.judge.judge_client import JudgeClient
from houston_daemon.service.engine_child import engine_child_command
from houston_daemon.service.engine_endpoints import engine_log, kept_port, state_file, usable_port
from houston_daemon.service.engine_guard import start_engine_guard, used_lock
from houston_daemon.service.engine_replicas import replica_names
from houston_daemon.service.trainer_launch import TRAINER_VARIABLE
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.control_client import engine_state
from houston_shared.errors import ConfigurationError, HoustonError

START_SECONDS = 300.0
"""How long a child may take to answer: vLLM compiles for more than a minute."""
NOTHING_JUDGED_MESSAGE = "Nothing more was judged."
_POLL_SECONDS = 0.2


class JudgeEnginePlace:
    """Where one engine is asked while the context lasts."""

    def __init__(self, loaded: LoadedConfiguration, name: str, note: Callable[[str], None]) -> None:
        """note: told in one line what takes long. Raises ConfigurationError for an engine that
        there is not, or that only plays a file."""
        self._loaded = loaded
        self._engine = fetched_engine(loaded, name, note)
        self._note = note
        self._own_process: EngineProcess | None = None
        self._engine_locks: list[int] = []
        """Locks that say that this command asks the child, or its replicas."""
        self.abandoned = threading.Event()
        """Set when nobody waits for the child any more."""
        self.name = name
        self.settings: dict[str, Any] = msgspec.to_builtins(self._engine)
        """For `choose_engine`; `url` is empty while a child does not run."""
        if self._engine.kind in FILE_ENGINES:
            raise ConfigurationError(
                f"Engine {name!r} plays a file: it cannot judge.",
                "Nothing was judged.",
                "Name another with --engine.",
            )
        self.child = self._engine.is_daemon_child
        """Whether it is a server that is started when it is needed."""

    def child_settings(self) -> dict[str, Any]:
        """The settings with the URL of the child, or of each replica that answers; one is started
        if need be. Blocks. Raises HoustonError."""
        self._hold()
        running = self._running_processes()
        if not running:
            running = [self._start()]
        answering = [process for process in running if process.healthy()]
        if not answering:
            self._wait(running[0])
            answering = running[:1]
        if len(answering) == 1:
            return {**self.settings, "url": answering[0].url}
        return {**self.settings, "urls": [process.url for process in answering]}

    @property
    def serves_packaged_model(self) -> bool:
        """Whether it serves the small model that Houston fetches where nobody names one."""
        return self.child and _is_packaged_model(self.settings)

    def running(self) -> bool:
        """Whether the child runs already, or one of its replicas."""
        return bool(self._running_processes())

    def _running_processes(self) -> list[EngineProcess]:
        names = replica_names(self.name, self._engine)
        processes = [self._process([], "", name) for name in names]
        return [process for process in processes if process.adopt()]

    def daemon_state(self) -> str:
        """What the daemon says of it; empty where no daemon has it (`engine_state`)."""
        return engine_state(self._loaded.home, self.name)

    def __enter__(self) -> "JudgeEnginePlace":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started here and the daemon does not use."""
        if self._own_process is not None and not self.daemon_state():
            self._own_process.stop()
        while self._engine_locks:
            os.close(self._engine_locks.pop())

    def _hold(self) -> None:
        """Keep the guards of the child and its replicas from ending them while they are asked."""
        if self._engine_locks:
            return
        for name in replica_names(self.name, self._engine):
            file = used_lock(state_file(self._loaded.home, name))
            file.parent.mkdir(parents=True, exist_ok=True)
            self._engine_locks.append(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(self._engine_locks[-1], fcntl.LOCK_SH)

    def _start(self) -> EngineProcess:
        if self._engine.gpus:
            raise HoustonError(
                f"Engine {self.name!r} is not running, and it needs GPUs that only the daemon "
                "can lease.",
                NOTHING_JUDGED_MESSAGE,
                f"houston rollout start TASK.toml --engine {self.name}",
            )
        home = self._loaded.home
        last_port = kept_port(home, self.name, self._engine)
        port = usable_port(home, self.name, self._engine, last_port)
        command = engine_child_command(self.name, self._engine, port)
        process = self._process(command, f"http://127.0.0.1:{port}/v1")
        self._note(f"engine {self.name} does not run yet: starting it for this command")
        process.start()
        self._own_process = process
        self._guard(process)
        return process

    def _guard(self, process: EngineProcess) -> None:
        """Have it end by itself some minutes after this command, should that be killed."""
        assert process.state is not None, "it was started"
        home, seconds = self._loaded.home, self._loaded.config.daemon.engine_orphan_seconds
        state, log = state_file(home, self.name), engine_log(home, self.name)
        start_engine_guard(state, process.state, home.lock_file, seconds, log)

    def _process(self, command: list[str], url: str, name: str = "") -> EngineProcess:
        """name: of a replica; empty for the first, which is called as the engine."""
        home, name = self._loaded.home, name or self.name
        state, log = state_file(home, name), engine_log(home, name)
        # It may outlive a trainer that starts it, whose end ends all that has the trainer's mark.
        environment = {**self._engine.environment, TRAINER_VARIABLE: ""}
        return EngineProcess(name, command, url, state, log, environment)

    def _wait(self, process: EngineProcess) -> None:
        end = time.monotonic() + START_SECONDS
        while not process.healthy():
            if not process.alive():
                line = process.failing_line() or "it wrote nothing"
                raise HoustonError(f"Engine {self.name!r} ended: {line}.", NOTHING_JUDGED_MESSAGE)
            if time.monotonic() > end:
                raise HoustonError(
                    f"Engine {self.name!r} does not answer after {START_SECONDS:g} s.",
                    NOTHING_JUDGED_MESSAGE,
                    "houston daemon status",
                )
            if self.abandoned.wait(_POLL_SECONDS):
                raise HoustonError(
                    f"The wait for engine {self.name!r} was stopped.", NOTHING_JUDGED_MESSAGE
                )


@contextlib.contextmanager
def choose_judge_place(
    loaded: LoadedConfiguration, note: Callable[[str], None], *names: str, effect: str = ""
) -> Iterator[JudgeEnginePlace]:
    """The place of the first engine that is named, else of `[judge] engine`, else the default one.

    effect: what a wrong configuration led to, in the error. Raises ConfigurationError.
    """
    config = loaded.config
    name = next(filter(None, (*names, config.judge.engine)), config.default_engine)
    try:
        with JudgeEnginePlace(loaded, name, note) as place:
            yield place
    except ConfigurationError as problem:
        raise ConfigurationError(
            problem.cause, effect or problem.effect, problem.next, problem.code
        ) from None


class LazyEngine:
    """Stands for a child server that does not run yet."""

    token_ids = True
    window: int | None = None

    def __init__(self, name: str, make: Callable[[], Engine]) -> None:
        """make: starts the server and gives its client; blocks for as long as that takes."""
        self.name = name
        self._make = make
        self._turn = asyncio.Lock()
        self._engine: Engine | None = None

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """See `Engine.sample`."""
        async with self._turn:
            if self._engine is None:
                engine = await asyncio.to_thread(self._make)
                await engine.ready()
                self._engine = engine
        return await self._engine.sample(request, stop)

    async def ready(self) -> None:
        """At once: whether it comes up shows when it is needed."""

    async def close(self) -> None:
        """Release connections; the server is its starter's."""
        if self._engine is not None:
            await self._engine.close()


DEFAULT_CHAT_WINDOW = 32_768
"""Taken for a chat endpoint whose window nobody says."""


@contextlib.asynccontextmanager
async def open_judge_client(
    place: JudgeEnginePlace, policy: str, window: int, ask: bool = True
) -> AsyncIterator[JudgeClient]:
    """A client for an engine: once it answers, or with a child that the first question starts.

    window: how much of the engine's window is used, in tokens; 0 for all. ask: if false, the engine
    is not asked and may be down; sizes come from the configuration. Raises EngineUnavailable and
    ConfigurationError.
    """
    engine: Engine | None = None
    try:
        engine = await asyncio.to_thread(_open_engine, place, ask)
        if ask:
            await engine.ready()
        yield make_judge_client(place.name, engine, place.settings, policy, window)
    finally:
        place.abandoned.set()
        if engine is not None:
            await engine.close()


def _open_engine(place: JudgeEnginePlace, ask: bool) -> Engine:
    for variable, key in missing_variables(place.settings).items():
        raise ConfigurationError(
            f"The variable {variable}, named by `{key}` of engine {place.name!r}, is not set here.",
            "Nothing was judged.",
            f"export {variable}=…",
        )
    if not place.child:
        return choose_engine(place.settings, None, place.name)
    if ask and place.running():
        return _engine_client(place)
    return LazyEngine(place.name, lambda: _engine_client(place))


def _engine_client(place: JudgeEnginePlace) -> Engine:
    return choose_engine(place.child_settings(), None, place.name)


def make_judge_client(
    name: str, engine: Engine, settings: Mapping[str, Any], policy: str = "", window: int = 0
) -> JudgeClient:
    """The client at an engine. Raises ConfigurationError where its tokenizer is not known."""
    own = engine.window or int(settings.get("window") or 0)
    own = own or _model_window(settings) or DEFAULT_CHAT_WINDOW
    exact = engine.token_ids
    return JudgeClient(
        name=name,
        engine=engine,
        model=_model_name(engine, settings),
        window=min(own, window) if window else own,
        tokens=_load_tokens(settings) if exact else TokenEstimator(),
        dialect=choose_dialect(str(settings.get("dialect") or "chatml-json")) if exact else None,
        policy=policy,
        reasoning=bool(settings.get("reasoning")) and not exact,
        price=engine_price(settings),
    )


def _load_tokens(settings: Mapping[str, Any]) -> PromptTokenizer:
    try:
        return PromptTokenizer(tokenizer_file(settings))
    except ConfigurationError as problem:
        raise ConfigurationError(
            problem.cause, "Nothing was judged.", problem.next, problem.code
        ) from None


def _model_window(settings: Mapping[str, Any]) -> int:
    """The window that the model's own folder says; 0 where there is none."""
    try:
        return configured_window(Path(tokenizer_file(settings)).parent)
    except ConfigurationError:
        return 0


def _is_packaged_model(settings: Mapping[str, Any]) -> bool:
    own = settings.get("model") or settings.get("command")
    return settings.get("kind") in ("embedded", "vllm") and not own


def _model_name(engine: Engine, settings: Mapping[str, Any]) -> str:
    """The model for the cache: as configured, a child's folder, or as the server names it."""
    if configured := settings.get("model"):
        return str(configured)
    if _is_packaged_model(settings):
        return str(model_path())
    return engine.model if isinstance(engine, TokenEngine) else ""
