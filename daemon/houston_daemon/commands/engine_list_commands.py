"""`houston engine list`: the engines of the configuration, how they stand, and their servers.

It reads the configuration and asks the daemon, where one runs; no engine is asked. What one can do
is `houston engine check`.
"""

import argparse

import msgspec

from houston_daemon.commands.daemon_status_commands import replica_words
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import EngineSettings, server_name
from houston_shared.control_client import ControlClient
from houston_shared.control_messages import Status
from houston_shared.errors import DaemonNotRunning
from houston_shared.wire import AskStatus

NOT_USED = "no rollout uses it"
NO_DAEMON = "no daemon runs"


def add_engine_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON line an engine")


def run_engine_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print them, the default engine's mark beside it; those of full weights, which the daemon
    alone knows, last."""
    status = _read_status(loaded)
    configured = {"embedded": EngineSettings(kind="embedded"), **loaded.config.engines}
    others = sorted((status.engines.keys() if status else set()) - configured.keys())
    for name in (*configured, *others):
        engine = configured.get(name)
        if arguments.json:
            command_output.print_json_line(_fields(name, engine, status, loaded))
            continue
        mark = "*" if name == loaded.config.default_engine else " "
        place = _place(engine) if engine else "full weights of a policy"
        policy = status.policies.get(name, "") if status else ""
        active = f"; samples with {policy}" if policy else ""
        command_output.print_line(f"{mark} {name:<16} {place:<40} {_state(name, status)}{active}")
        for replica in status.replicas.get(name, ()) if status else ():
            command_output.print_line(f"    {replica_words(replica)}")
    return 0


def _fields(
    name: str, engine: EngineSettings | None, status: Status | None, loaded: LoadedConfiguration
) -> dict[str, object]:
    return {
        "engine": name,
        "kind": engine.kind if engine else None,
        "default": name == loaded.config.default_engine,
        "state": status.engines.get(name) if status else None,
        "policy": status.policies.get(name, "") if status else "",
        "replicas": msgspec.to_builtins(status.replicas.get(name, ()) if status else ()),
    }


def _read_status(loaded: LoadedConfiguration) -> Status | None:
    """What the daemon says; None where none runs."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning:
        return None
    return status if isinstance(status, Status) else None


def _state(name: str, status: Status | None) -> str:
    return NO_DAEMON if status is None else status.engines.get(name, NOT_USED)


def _place(engine: EngineSettings) -> str:
    """What it is, and where: without what a URL may hold of a key."""
    if engine.urls:
        return f"{engine.kind}, {len(engine.urls)} servers"
    if engine.replicas > 1:
        return f"{engine.kind}, {engine.replicas} servers that the daemon starts"
    if engine.url:
        return f"{engine.kind} at {server_name(engine.url)}"
    return f"{engine.kind} of {engine.path}" if engine.path else engine.kind
