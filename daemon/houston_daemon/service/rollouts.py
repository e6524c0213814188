"""What a rollout is started with: checks of task, engine and machine, and its spec.

Used by `houston rollout start`. Everything that would make the rollout fail at once is found here,
before anything is stored.
"""

import asyncio
import hashlib
import importlib.util
import os
import re
import secrets
import socket
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.dialects.choose import choose_dialect
from houston_daemon.engines.choose import check_request, plugin
from houston_daemon.engines.install import check_args, engine_path
from houston_daemon.engines.model import model_path
from houston_daemon.engines.script import read_script
from houston_daemon.environments.environment_registry import kind
from houston_daemon.hosts.sandbox.probe import probe
from houston_daemon.hosts.sandbox.profile import Sandbox
from houston_daemon.hosts.user_secrets import secret_places
from houston_daemon.rollout.begin import writing
from houston_daemon.service.engine_places import address_of, port_taken, refusal, taken
from houston_daemon.service.policy_engines import is_child
from houston_daemon.training.policies import live
from houston_shared.config import FILE_ENGINES, Loaded
from houston_shared.config_engine import Engine
from houston_shared.config_hosts import LOCAL
from houston_shared.engine_kinds import KINDS
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.policy_names import BASE
from houston_shared.records import RolloutSpec
from houston_shared.store.reader import Reader
from houston_shared.task import LoadedTask

NOTHING = "No rollout was started."


def specs(
    loaded: Loaded,
    task: LoadedTask,
    engine_name: str,
    count: int,
    seed: int | None,
    share_gpus: bool = False,
    hints: bool = False,
    *,
    policy: str = "",
) -> tuple[RolloutSpec, ...]:
    """Specs of `count` rollouts of one group; seeds are `seed`, `seed + 1`, … (or random).

    share_gpus, hints: whether they may share GPUs and are shown the task's hints, whatever it says.
    policy: empty for the one that is active as they are queued.
    """
    engine = loaded.engine(engine_name)
    if engine_name not in loaded.config.engines and engine.kind in FILE_ENGINES:
        engine_name = f"{engine.kind}:{engine.path}"  # absolute: workers have another folder
    group = f"g-{secrets.token_hex(4)}"
    first = secrets.randbelow(2**31) if seed is None else seed
    record, settings, places = task.record(hints), msgspec.to_builtins(engine), hidden(loaded)
    tools = msgspec.to_builtins(loaded.tools)
    machines = hosts(loaded, task)
    return tuple(
        RolloutSpec(
            rollout="",
            task=record,
            engine=engine_name,
            engine_settings=settings,
            group=group,
            seed=first + index,
            host_root=str(loaded.host_root),
            hosts=machines,
            host_key=_node_key(loaded),
            host_memory_mb=loaded.config.hosts.memory_mb,
            gpus=gpus(loaded, task),
            gpus_shared=task.task.gpus_shared or share_gpus,
            hidden=places,
            thoughts=task.task.sampling.thoughts,
            tool_settings=tools,
            policy=policy,
        )
        for index in range(count)
    )


def hosts(loaded: Loaded, task: LoadedTask) -> dict[str, dict[str, Any]]:
    """The settings of the task's hosts but this one. Raises ConfigurationError for one that is not
    in the configuration, or named twice.
    """
    names = task.task.hosts
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{task.file}: `hosts` names one twice.", NOTHING)
    found = {name: loaded.host(name) for name in names if name != LOCAL}
    return {name: msgspec.to_builtins(host) for name, host in found.items()}


def gpus(loaded: Loaded, task: LoadedTask) -> dict[str, int]:
    """How many GPUs a rollout leases on each host.

    Raises ConfigurationError for more than there are.
    """
    asked, names = task.task.gpus, task.task.hosts
    wanted = asked if isinstance(asked, dict) else {names[0]: asked}
    for name, count in wanted.items():
        if name not in names:
            raise ConfigurationError(f"{task.file}: `gpus` names {name!r}, which is no host of it.")
        has = loaded.gpus(name)
        if count > has:
            raise ConfigurationError(
                f"{task.file}: `gpus` asks for {count} on {name}, which has {has}.",
                NOTHING,
                f"Say in {loaded.source} how many it has: `gpus` of [hosts]"
                + (f" or [hosts.{name}]." if name != LOCAL else "."),
            )
    return {name: count for name, count in wanted.items() if count}


def _node_key(loaded: Loaded) -> str:
    """What tells this home from those of other machines."""
    try:
        node = Path("/etc/machine-id").read_text().strip()
    except OSError:
        node = socket.gethostname()
    return hashlib.sha256(os.fsencode(f"{node}:{loaded.home.path}")).hexdigest()[:12]


def hidden(loaded: Loaded) -> tuple[str, ...]:
    """Places that no sandbox may map: the home, its sockets, keys, the user's configuration."""
    places = [loaded.home.path, loaded.home.run, loaded.home.logs, *secret_places()]
    return tuple(dict.fromkeys(str(place) for place in places))


def check_policy(loaded: Loaded, engine: str, policy: str) -> None:
    """Raise HoustonError where rollouts with this policy would make more live than fit."""
    if policy in ("", BASE):
        return
    with Reader(loaded.home) as reader:
        reader.run(live.room(engine, policy, live.limit(loaded.engine(engine))))


def check_machine(task: LoadedTask) -> None:
    """Raise HoustonError when this machine cannot do what the task asks."""
    if not kind(task.task.environment).sandbox:
        return
    scratch = Path("/tmp")
    trial = Sandbox(kind=task.task.mapped.kind, workspace=scratch, home=scratch, temporary=scratch)
    if problem := asyncio.run(probe(trial)):
        raise problem


def check_engine(loaded: Loaded, name: str, running: dict[str, str]) -> None:
    """Raise HoustonError when rollouts could not sample from this engine.

    running: engines that the daemon watches now, with their states; their ports are their own.
    """
    engine = loaded.engine(name)
    if engine.kind in FILE_ENGINES:
        check_file(engine, NOTHING)
    elif engine.url:
        if why := refusal(address_of(engine.url)):
            raise HoustonError(
                f"Engine {name!r} at {engine.url}: {why}.",
                NOTHING,
                f"Start it, or correct `engines.{name}.url` in {loaded.source}.",
            )
        _check_settings(loaded, name, engine)
    elif engine.kind not in KINDS:
        plugin(engine.kind)
        _check_settings(loaded, name, engine)
    elif is_child(engine):
        _check_settings(loaded, name, engine)
        _check_child(name, engine, running)
    else:
        raise ConfigurationError(
            f"{loaded.source}: `engines.{name}.url` is required for kind {engine.kind!r}.", NOTHING
        )


def _check_settings(loaded: Loaded, name: str, engine: Engine) -> None:
    """Raise ConfigurationError for what a worker, or the engine, would stumble over."""
    try:
        _hold(engine)
    except ConfigurationError as problem:
        cause = f"{loaded.source}, [engines.{name}]: {problem.cause}"
        raise ConfigurationError(cause, NOTHING, problem.next) from None


def _hold(engine: Engine) -> None:
    settings, chats = msgspec.to_builtins(engine), engine.kind == "chat"
    choose_dialect(engine.dialect)
    if engine.kind not in KINDS:
        return  # what else it needs, and whether it takes ids, only its package knows
    check_request(settings)
    if chats and not engine.model:
        raise ConfigurationError("An engine of kind 'chat' needs the key `model`.")
    if engine.args and (engine.kind != "vllm" or not is_child(engine) or engine.command):
        raise ConfigurationError(
            "`args` are those of a `vllm` child without a `command` of its own."
        )
    check_args(engine.args)
    if is_child(engine) and not engine.command:
        _check_model(engine)
    own = is_child(engine) and not engine.model and not engine.tokenizer
    if not chats and not (own and model_path() is None):  # `_check_child` says how to fetch that
        writing(settings, engine.reasoning, token_ids=True)


def _check_model(engine: Engine) -> None:
    """Raise ConfigurationError when the model's folder is not there. vLLM also takes a name, which
    it looks up in its cache of models."""
    named = engine.kind == "vllm" and re.fullmatch(r"[\w.-]+/[\w.-]+", engine.model)
    if engine.model and not named and not Path(engine.model).is_dir():
        raise ConfigurationError(
            f"There is no folder {engine.model}, which `model` names.",
            next="Name the folder with the model's config.json and weights.",
        )


def check_file(engine: Engine, effect: str = "") -> None:
    """Raise ConfigurationError when the file that an engine plays is not there.

    A script is read whole: a line that is no step is found now and not hours later.
    """
    if not Path(engine.path).is_file():
        raise ConfigurationError(f"There is no file {engine.path} for the engine.", effect)
    if engine.kind == "script":
        try:
            read_script(Path(engine.path))
        except ConfigurationError as problem:
            raise ConfigurationError(problem.cause, effect, problem.next) from None


def _check_child(name: str, engine: Engine, running: dict[str, str]) -> None:
    if not engine.command and not engine.model and model_path() is None:
        raise _missing(f"The model of engine {name!r} is not here.", "--fetch-model")
    if engine.kind == "vllm" and not engine.command and engine_path() is None:
        raise _missing(f"vLLM, for engine {name!r}, is not installed.", "--install-engine")
    if engine.kind == "embedded" and not importlib.util.find_spec("torch"):
        raise HoustonError(
            f"Engine {name!r} needs torch and transformers, which are not installed.",
            NOTHING,
            "pip install 'houston-agents[local]'",
            ExitCode.CONFIGURATION,
        )
    ours = running.get(name, "down").split(":")[0] != "down"
    if engine.port and not ours and taken(engine.port):
        raise port_taken(name, engine.port)


def _missing(cause: str, flag: str) -> HoustonError:
    return HoustonError(cause, NOTHING, f"houston doctor {flag}", ExitCode.CONFIGURATION)
