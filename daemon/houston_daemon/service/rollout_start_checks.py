"""What a rollout is started with: checks of task, engine, machine, GPUs and hosts, and its spec.

Finds everything that would make a rollout fail at once, before anything is stored: tools, signals
and rules that a task names, paths that it maps, placeholders of an importer, engines without a
model or server. Then builds one spec for each rollout, with seeds, settings and hidden paths.
Checks this machine only. Used by `rollout start`, `task validate`, `mcp serve` and, for edited
tasks, by the running daemon, which imports it late because it loads environments.
"""

import asyncio
import importlib.util
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from houston_daemon.agent.flow.episode_memory import check_packages
from houston_daemon.agent.rollout_setup import make_dialect_and_tokenizer
from houston_daemon.engines.engine_registry import (
    check_request_settings,
    missing_variables,
    plugin_factory,
)
from houston_daemon.engines.hub_downloads import fetched_engine
from houston_daemon.engines.local_model import model_path
from houston_daemon.engines.script_engine import read_script
from houston_daemon.engines.vllm_install import vllm_path
from houston_daemon.engines.vllm_serve import check_vllm_args
from houston_daemon.environments.environment_registry import kind
from houston_daemon.environments.local_host_setup import local_host
from houston_daemon.hosts.sandbox import sandbox_profile
from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile, hidden_paths
from houston_daemon.hosts.sandbox.sandboxed_process import probe_sandbox
from houston_daemon.hosts.ssh.remote_part import home_key
from houston_daemon.importers.imported_task import PLACEHOLDER_FILE, find_placeholder
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.review.attention_catalog import load_signals
from houston_daemon.review.rules import rule_catalog as rules
from houston_daemon.service import engine_probes
from houston_daemon.service.engine_endpoints import (
    connection_problem,
    is_port_taken,
    parse_address,
    port_taken_error,
)
from houston_daemon.service.engine_replicas import replica_names
from houston_daemon.training.policies import policy_constraints
from houston_shared import command_output
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.engine_settings import ENGINE_KINDS, EngineSettings
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError, UsageError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.records import RoleEngine, RolloutSpec
from houston_shared.sample_roles import SampleRole
from houston_shared.secret_redaction import install_secrets
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.task import LoadedTask, Task, purify_settings
from houston_shared.toml_file import parse_toml


def check_task_names(task: LoadedTask) -> None:
    """Raise ConfigurationError for a tool, signal or rule that is none, or a path not here."""
    definition = task.task
    with _naming(f"{task.file}: `environment`"):
        environment = kind(definition.environment)
    environment.check(task)
    with _naming(f"{task.file}: `attention.signals`"):
        load_signals(definition.attention.signals)
    if definition.memory.enabled:
        with _naming(str(task.file)):
            check_packages()
    with _naming(f"{task.file}: `rules`"):
        rules.load_rules(definition.rules)
    on_this_host = LOCAL_HOST in definition.hosts
    mapped = definition.mapped
    for key, paths in (("read", mapped.read), ("devices", mapped.devices)):
        for path in paths:
            if not Path(path).is_absolute() or (on_this_host and not _is_on_this_machine(path)):
                raise ConfigurationError(
                    f"{task.file}: `sandbox.{key}` names {path!r}, which is not an absolute "
                    f"path{' that exists on this machine' if on_this_host else ''}."
                )
    for name, path in definition.data.mounts.items():
        if not _is_on_this_machine(str(task.folder / path)):
            raise ConfigurationError(
                f"{task.file}: `data.mounts.{name}` names {path!r}, which is not on this machine."
            )
    _check_activate(task)
    _check_placeholders(task)
    _check_image(task)


def check_mapped_places(loaded: LoadedConfiguration, task: LoadedTask) -> None:
    """Raise ConfigurationError where the task maps what no sandbox of this home shows."""
    definition = task.task
    if LOCAL_HOST not in definition.hosts or not kind(definition.environment).sandbox:
        return
    spec = RolloutSpec(
        rollout="check",
        task=task.record(),
        engine="",
        engine_settings={},
        host_root=str(loaded.host_root),
        hidden=hidden_paths(loaded.home),
    )
    try:
        local_host(spec, definition).sandbox.refuse_hidden()
    except HoustonError as problem:
        raise ConfigurationError(f"{task.file}: {problem.cause}", next=problem.next) from None


@contextmanager
def _naming(place: str, effect: str | None = None) -> Iterator[None]:
    """Begin the sentence of a ConfigurationError with its place; effect: instead of its own."""
    try:
        yield
    except ConfigurationError as problem:
        effect = problem.effect if effect is None else effect
        raise ConfigurationError(f"{place}: {problem.cause}", effect, problem.next) from None


def _check_placeholders(task: LoadedTask) -> None:
    """An importer's placeholder is no instructions, and no data."""
    own = task.task.instructions_file
    placeholders = [find_placeholder(task.folder / own if own else task.file, task.instructions)]
    for file in sorted(task.folder.glob(f"*/{PLACEHOLDER_FILE}")) + sorted(
        task.folder.glob(f"*/*/{PLACEHOLDER_FILE}")
    ):
        placeholders.append(
            find_placeholder(file, file.read_text(encoding="utf-8", errors="replace"))
        )
    if placeholders_left := [line for line in placeholders if line]:
        raise ConfigurationError(
            f"The imported task {task.task.name} is not complete. {'; '.join(placeholders_left)}.",
            next=f"Fill that in, then: houston task validate {task.folder}",
        )


def _check_image(task: LoadedTask) -> None:
    """An image, another place of the workspace and an evaluator's copy are for this machine."""
    definition, mapped = task.task, task.task.mapped
    used = {
        "sandbox.image": bool(mapped.image),
        "sandbox.workdir": bool(mapped.workdir),
        "evaluate.copy": definition.evaluate.copy,
    }
    for key in (name for name, is_used in used.items() if is_used):
        if definition.hosts != (LOCAL_HOST,):
            raise ConfigurationError(
                f"{task.file}: `{key}` works only on the host {LOCAL_HOST!r}.",
                next="Take the other hosts out of `hosts`.",
            )
        if mapped.kind == "none":
            raise ConfigurationError(f"{task.file}: `{key}` needs the sandbox, which is `none`.")
    if mapped.workdir and not _is_plain_place(mapped.workdir, mapped.image):
        raise ConfigurationError(
            f"{task.file}: `sandbox.workdir` is {mapped.workdir!r}, which is not an absolute "
            "path of a folder that the sandbox can create."
        )
    if mapped.image and not _is_on_this_machine(str(task.folder / mapped.image)):
        raise ConfigurationError(
            f"{task.file}: `sandbox.image` names {mapped.image!r}, which does not exist: the "
            "task has no image to run in.",
            next="houston task import creates it where podman or docker is installed.",
        )


def _is_plain_place(workdir: str, image: str) -> bool:
    """Whether the workspace can be mapped there: an image has room anywhere but at its root."""
    place = PurePosixPath(workdir)
    if not place.is_absolute() or ".." in place.parts or len(place.parts) < 2:
        return False
    return bool(image) or not any(map(place.is_relative_to, sandbox_profile.RESERVED_FOLDERS))


def _check_activate(task: LoadedTask) -> None:
    definition = task.task
    other_hosts = [name for name in definition.hosts if name != LOCAL_HOST]
    if definition.activate and other_hosts and not definition.activate.startswith("/"):
        raise ConfigurationError(
            f"{task.file}: `activate` names {definition.activate!r} next to the task file, "
            f"which {other_hosts[0]} does not have.",
            next="Name the absolute path that the environment has on every host of the task.",
        )
    if definition.activate and LOCAL_HOST in definition.hosts:
        try:
            sandbox_profile.check_python_environment(task.folder / definition.activate)
        except HoustonError as problem:
            raise ConfigurationError(f"{task.file}: `activate`: {problem.cause}") from None


def _is_on_this_machine(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # in a folder that this user may not enter: not for the agent either
        return False


NOTHING_STARTED = "No rollout was started."


def build_rollout_specs(
    loaded: LoadedConfiguration,
    task: LoadedTask,
    engine_name: str,
    count: int,
    seed: int | None,
    share_gpus: bool = False,
    hints: bool = False,
    *,
    policy: str = "",
    purify: Mapping[str, Any] | None = None,
    without_memory: bool = False,
) -> tuple[RolloutSpec, ...]:
    """Specs of `count` rollouts of one group; seeds are `seed`, `seed + 1`, … (or random).

    share_gpus, hints: whether they may share GPUs and are shown the task's hints, whatever it says.
    policy: empty for the one that is active as they are queued. purify: values over the task's
    `[purify]`. without_memory: neither recall earlier rollouts nor be recalled: for evaluations.
    Raises ConfigurationError for what only home and configuration tell: hosts, GPUs, engines of
    roles, and places that no sandbox shows.
    """
    check_mapped_places(loaded, task)
    engine = loaded.engine(engine_name)
    if engine_name not in loaded.config.engines and engine.kind in FILE_ENGINES:
        engine_name = f"{engine.kind}:{engine.path}"  # absolute: workers have another folder
    planner = planner_engine(loaded, task)
    roles = task_role_engines(loaded, task, engine_name)
    if planner:
        engine_name, engine = planner, loaded.engine(planner)
    group = f"g-{secrets.token_hex(4)}"
    first = secrets.randbelow(2**31) if seed is None else seed
    record, settings = task.record(hints), msgspec.to_builtins(engine)
    tools = msgspec.to_builtins(loaded.tools)
    machines, places = task_host_settings(loaded, task), hidden_paths(loaded.home)
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
            host_key=home_key(loaded.home.path),
            host_memory_mb=loaded.config.hosts.memory_mb,
            gpus=task_gpus(loaded, task),
            gpus_shared=task.task.gpus_shared or share_gpus,
            hidden=places,
            thoughts=task.task.sampling.thoughts,
            tool_settings=tools,
            policy=policy,
            purify=dict(purify or {}),
            without_memory=without_memory,
            # A recording is played by a worker of another kind.
            shares_worker=engine.kind != "recorded" and kind(task.task.environment).shares_worker,
            role_engines=roles,
        )
        for index in range(count)
    )


def task_role_engines(
    loaded: LoadedConfiguration, task: LoadedTask, engine: str
) -> dict[str, RoleEngine]:
    """By role, the engines other than the one that samples the steps: those that the task names
    and, if it names one for its planner, `engine` for all others. Raises ConfigurationError for an
    unknown one."""
    steps = planner_engine(loaded, task) or engine
    role_engines: dict[str, RoleEngine] = {}
    for role in task.task.roles:
        if role == task.task.step_role:
            continue
        named = _named_engine(loaded, task, role) or engine
        if named != steps:
            settings = msgspec.to_builtins(loaded.engine(named))
            role_engines[role] = RoleEngine(engine=named, engine_settings=settings)
    return role_engines


def planner_engine(loaded: LoadedConfiguration, task: LoadedTask) -> str:
    """The engine that replaces the rollout's own if the task names one for its planner; empty if it
    does not. Raises ConfigurationError for an unknown one."""
    return _named_engine(loaded, task, "planner") if task.task.step_role == "planner" else ""


def _named_engine(loaded: LoadedConfiguration, task: LoadedTask, role: SampleRole) -> str:
    """The engine that the task names for a role, as the configuration calls it; empty for none."""
    named = task.task.role(role).engine
    kind_name, colon, path = named.partition(":")
    if colon and kind_name in FILE_ENGINES:
        named = f"{kind_name}:{task.folder / path}"
    if not named:
        return ""
    with _naming(f"{task.file}: `agent.{role}.engine`", NOTHING_STARTED):
        settings = loaded.engine(named)
    if settings.kind == "recorded":
        raise ConfigurationError(
            f"{task.file}: `agent.{role}.engine` plays a recorded rollout, which cannot answer.",
            NOTHING_STARTED,
        )
    return named


def parse_purify_words(task: Task, words: str) -> dict[str, Any]:
    """What `--purify` sets over the task's `[purify]`: `on` for every one of the rollouts, `off`,
    or `KEY=VALUE,…`. Raises ConfigurationError for a key or value that is none."""
    named: dict[str, dict[str, Any]] = {
        "": {},
        "on": {"enabled": True, "share": 1.0},
        "off": {"enabled": False},
    }
    changed = named.get(words)
    if changed is None:
        changed = parse_toml("\n".join(words.split(",")), "--purify")
    purify_settings(task, changed)
    return changed


def task_host_settings(loaded: LoadedConfiguration, task: LoadedTask) -> dict[str, dict[str, Any]]:
    """The settings of the task's hosts but this one. Raises ConfigurationError for one that is not
    in the configuration, or named twice.
    """
    names = task.task.hosts
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{task.file}: `hosts` names a host twice.", NOTHING_STARTED)
    hosts = {name: loaded.host(name) for name in names if name != LOCAL_HOST}
    return {name: msgspec.to_builtins(host) for name, host in hosts.items()}


def task_gpus(loaded: LoadedConfiguration, task: LoadedTask) -> dict[str, int]:
    """How many GPUs a rollout leases on each host.

    Raises ConfigurationError for more than there are.
    """
    gpus, names = task.task.gpus, task.task.hosts
    gpus_by_host = gpus if isinstance(gpus, dict) else {names[0]: gpus}
    for name, count in gpus_by_host.items():
        if name not in names:
            raise ConfigurationError(
                f"{task.file}: `gpus` names {name!r}, which is not one of its hosts."
            )
        if name == LOCAL_HOST and loaded.config.ray.schedules_gpus:
            continue  # how many a node has, and whether any will, is the cluster's to know
        count_there = loaded.gpus(name)
        if count > count_there:
            raise ConfigurationError(
                f"{task.file}: `gpus` asks for {count} on {name}, which has {count_there}.",
                NOTHING_STARTED,
                f"Set in {loaded.source} how many it has: `gpus` of [hosts]"
                + (f" or [hosts.{name}]." if name != LOCAL_HOST else "."),
            )
    return {name: count for name, count in gpus_by_host.items() if count}


def check_policy(loaded: LoadedConfiguration, engine: str, policy: str) -> None:
    """Raise HoustonError for a policy that was never activated on the engine, or whose rollouts
    would need more live adapters than fit."""
    if policy in ("", BASE_MODEL):
        return
    kind = loaded.engine(engine).kind
    if kind not in policy_constraints.POLICY_ENGINES:
        raise UsageError(
            f"Engine {engine} is of kind {kind}, which takes no policies: it samples with its own"
            " model.",
            NOTHING_STARTED,
            f"Leave {policy} out, or name an engine that it was activated on: houston policy list",
        )
    with Reader(loaded.home) as reader:
        if not reader.run(policy_queries.was_activated(engine, policy)):
            raise HoustonError(
                f"Policy {policy} was never activated on engine {engine}.",
                NOTHING_STARTED,
                f"houston policy activate {policy} --engine {engine}",
            )
        reader.run(
            policy_constraints.require_adapter_room(
                engine, policy, policy_constraints.adapter_limit(loaded.engine(engine))
            )
        )


def check_machine(task: LoadedTask) -> None:
    """Raise HoustonError when this machine cannot do what the task asks."""
    if not kind(task.task.environment).sandbox:
        return
    scratch = Path("/tmp")
    trial = SandboxProfile(
        kind=task.task.mapped.kind, workspace=scratch, home=scratch, temporary=scratch
    )
    if problem := asyncio.run(probe_sandbox(trial)):
        raise problem


def check_engines(
    loaded: LoadedConfiguration, task: LoadedTask, name: str, running: dict[str, str]
) -> None:
    """The same for all engines of its rollouts, with those of roles."""
    roles = task_role_engines(loaded, task, name).values()
    steps = planner_engine(loaded, task) or name
    for each in dict.fromkeys((steps, *(own.engine for own in roles))):
        check_engine(loaded, each, running)
        if task.task.budget.cost and loaded.engine(each).price is None:
            raise ConfigurationError(
                f"{task.file}: `budget.cost` is {task.task.budget.cost:g}, and engine {each!r} has"
                " no price.",
                NOTHING_STARTED,
                f"Set `engines.{each}.price` in {loaded.source}.",
            )


def check_engine(loaded: LoadedConfiguration, name: str, running: dict[str, str]) -> None:
    """Raise HoustonError when rollouts could not sample from this engine; what it names on the hub
    is fetched.

    A server at a URL is asked what costs nothing (`engine_probes`), unless its key is only where
    the daemon was started. running: engines that the daemon watches now, with their states; their
    ports are their own.
    """
    engine = fetched_engine(loaded, name, command_output.print_note)
    require_engine(loaded, name, engine, running)
    if missing := missing_variables(msgspec.to_builtins(engine)):
        command_output.print_note(
            f"Engine {name!r} was not checked: its key is not set in this shell. If the daemon "
            "was started without it too, the rollout waits until you run: export "
            f"{min(missing)}=…; houston daemon restart"
        )


def require_engine(
    loaded: LoadedConfiguration, name: str, engine: EngineSettings, running: dict[str, str]
) -> None:
    """The same for an engine as it is; nothing is fetched."""
    if engine.url and (reason := connection_problem(engine.url)):
        raise HoustonError(
            f"Engine {name!r} at {engine.url}: {reason}.",
            NOTHING_STARTED,
            f"Start it, or correct `engines.{name}.url` in {loaded.source}.",
        )
    check_engine_settings(loaded, name, engine)
    settings: dict[str, Any] = msgspec.to_builtins(engine)
    if engine.urls:
        settings["url"] = _answering_url(loaded, name, engine)
    should_probe = engine_probes.is_probed(settings) and has_engine_key(engine)
    install_secrets(loaded.config)
    if should_probe and (failed := engine_probes.first_failure(name, settings)):
        raise HoustonError(
            f"Engine {name!r}, {failed.name}: {failed.text}.",
            NOTHING_STARTED,
            f"{failed.next} All lines: houston engine check {name}",
        )
    is_running = running.get(name, "down").split(":")[0] != "down"
    if engine.is_daemon_child and engine.port and not is_running and is_port_taken(engine.port):
        raise port_taken_error(name, engine.port)


def _answering_url(loaded: LoadedConfiguration, name: str, engine: EngineSettings) -> str:
    """The first of an engine's servers that somebody answers at; the others are told of. Raises
    HoustonError where there is none."""
    problems = {url: connection_problem(url) for url in engine.urls}
    reasons = "; ".join(filter(None, problems.values()))
    answering = [url for url, problem in problems.items() if not problem]
    if not answering:
        raise HoustonError(
            f"None of the {len(problems)} servers of engine {name!r} answers: {reasons}.",
            NOTHING_STARTED,
            f"Start one, or correct `engines.{name}.urls` in {loaded.source}.",
        )
    if reasons:
        command_output.print_note(
            f"Engine {name!r}: {reasons}; rollouts use only the "
            f"other{' servers' if len(answering) > 1 else ' server'}."
        )
    return answering[0]


def has_engine_key(engine: EngineSettings) -> bool:
    """Whether its key and headers are in this process's environment, which may differ from the
    environment that the daemon was started in."""
    return not missing_variables(msgspec.to_builtins(engine))


def check_engine_settings(loaded: LoadedConfiguration, name: str, engine: EngineSettings) -> None:
    """Raise HoustonError for what can be seen to be wrong without asking anybody: keys, files, the
    tokenizer, and what a child is started with."""
    if engine.kind in FILE_ENGINES:
        return check_engine_file(engine, NOTHING_STARTED)
    check_servers(loaded, name, engine)
    if not engine.addressed and engine.kind in ENGINE_KINDS and not engine.is_daemon_child:
        raise ConfigurationError(
            f"{loaded.source}: `engines.{name}.url` is required for kind {engine.kind!r}.",
            NOTHING_STARTED,
        )
    if not engine.addressed and engine.kind not in ENGINE_KINDS:
        plugin_factory(engine.kind)
    _check_settings(loaded, name, engine)
    if engine.is_daemon_child:
        _check_child(name, engine)


def check_servers(loaded: LoadedConfiguration, name: str, engine: EngineSettings) -> None:
    """Raise ConfigurationError for `urls` and `replicas` that contradict other keys."""
    table = f"{loaded.source}, [engines.{name}]"
    problem = ""
    if engine.urls and engine.url:
        problem = "`url` and `urls` are both set; `urls` alone says where its servers are"
    elif engine.urls and engine.kind not in ("token", "chat", "vllm", "embedded"):
        problem = f"`urls` is for token, chat, vllm or embedded, but the kind is {engine.kind!r}"
    elif len(replica_names(name, engine)) < len(engine.urls):
        problem = "`urls` names a server twice"
    elif engine.replicas > 1 and not engine.is_daemon_child:
        problem = "`replicas` are servers that the daemon starts; name others in `urls`"
    elif engine.replicas > 1 and engine.port:
        problem = "`port` is for one server; without it, each of the `replicas` gets a separate one"
    elif taken_names := set(replica_names(name, engine)[1:]) & loaded.config.engines.keys():
        problem = f"another engine is called {min(taken_names)}, as one of the `replicas`"
    if problem:
        raise ConfigurationError(f"{table}: {problem}.", NOTHING_STARTED)
    for url in engine.urls:
        parse_address(url)


def _check_settings(loaded: LoadedConfiguration, name: str, engine: EngineSettings) -> None:
    """Raise ConfigurationError for what a worker, or the engine, would stumble over."""
    with _naming(f"{loaded.source}, [engines.{name}]", NOTHING_STARTED):
        _check_engine_keys(engine)


def _check_engine_keys(engine: EngineSettings) -> None:
    settings, chats = msgspec.to_builtins(engine), engine.kind == "chat"
    choose_dialect(engine.dialect)
    if engine.kind not in ENGINE_KINDS:
        return  # what else it needs, and whether it takes ids, only its package knows
    check_request_settings(settings)
    if chats and not engine.model:
        raise ConfigurationError("An engine of kind 'chat' needs the key `model`.")
    if engine.args and (engine.kind != "vllm" or not engine.is_daemon_child or engine.command):
        raise ConfigurationError("`args` is only for a `vllm` child that has no `command`.")
    check_vllm_args(engine.args)
    if engine.is_daemon_child and not engine.command:
        _check_model(engine)
    own = engine.is_daemon_child and not engine.model and not engine.tokenizer
    if not chats and not (own and model_path() is None):  # `_check_child` says how to fetch that
        make_dialect_and_tokenizer(settings, engine.reasoning, token_ids=True)


def _check_model(engine: EngineSettings) -> None:
    """Raise ConfigurationError when the model's folder is not there."""
    if engine.model and not Path(engine.model).is_dir():
        raise ConfigurationError(
            f"There is no folder {engine.model}, which `model` names.",
            next="Name the folder with the model's config.json and weights, or a model of the hub: "
            "org/name@revision.",
        )


def check_engine_file(engine: EngineSettings, effect: str = "") -> None:
    """Raise ConfigurationError when the file that an engine plays is not there.

    A script is read whole: a line that is no step is found now and not hours later.
    """
    if not Path(engine.path).is_file():
        raise ConfigurationError(
            f"There is no file {engine.path} for the engine.", effect, code=ExitCode.NOT_FOUND
        )
    if engine.kind == "script":
        try:
            read_script(Path(engine.path))
        except ConfigurationError as problem:
            raise ConfigurationError(problem.cause, effect, problem.next, problem.code) from None


def _check_child(name: str, engine: EngineSettings) -> None:
    if not engine.command and not engine.model and model_path() is None:
        raise _missing_error(
            f"The model of engine {name!r} is not on this machine.", "--fetch-model"
        )
    if engine.kind == "vllm" and not engine.command and vllm_path() is None:
        raise _missing_error(f"vLLM, for engine {name!r}, is not installed.", "--install-engine")
    if engine.kind == "embedded" and not importlib.util.find_spec("torch"):
        raise HoustonError(
            f"Engine {name!r} needs torch and transformers, which are not installed.",
            NOTHING_STARTED,
            "pip install 'houston-agents[local]'",
            ExitCode.CONFIGURATION,
        )


def _missing_error(cause: str, flag: str) -> HoustonError:
    return HoustonError(cause, NOTHING_STARTED, f"houston doctor {flag}", ExitCode.CONFIGURATION)
