"""`houston engine list`: the engines of the configuration, their states, and their servers.

It reads the configuration and asks the daemon, if one runs; it asks no engine. `houston engine
check` shows what an engine can do.
"""

import argparse
from collections.abc import Sequence

import msgspec

from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import ControlClient
from houston_shared.control_messages import ReplicaStatus, Status
from houston_shared.daemon_status_text import replica_words
from houston_shared.engine_settings import EngineSettings, server_name
from houston_shared.errors import DaemonNotRunning
from houston_shared.wire import AskStatus

NOT_USED = "no rollout uses it"
NO_DAEMON = "no daemon runs"


def add_engine_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON line per engine")


def run_engine_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print them, the default engine's mark beside it; those of full weights, which the daemon
    alone knows, last."""
    status = _read_status(loaded)
    configured = {"embedded": EngineSettings(kind="embedded"), **loaded.config.engines}
    others = sorted(status.engines.keys() - configured.keys()) if status else ()
    for name in (*configured, *others):
        engine = configured.get(name)
        is_default = name == loaded.config.default_engine
        state, policy, replicas = _engine_status(name, status)
        if arguments.json:
            command_output.print_json_line(
                {
                    "engine": name,
                    "kind": engine.kind if engine else None,
                    "default": is_default,
                    "state": state,
                    "policy": policy,
                    "replicas": msgspec.to_builtins(replicas),
                }
            )
            continue
        mark = "*" if is_default else " "
        place = _place(engine) if engine else "full weights of a policy"
        state = state or (NOT_USED if status else NO_DAEMON)
        active = f"; samples with {policy}" if policy else ""
        command_output.print_line(f"{mark} {name:<16} {place:<40} {state}{active}")
        for replica in replicas:
            command_output.print_line(f"    {replica_words(replica)}")
    return 0


def _engine_status(
    name: str, status: Status | None
) -> tuple[str | None, str, Sequence[ReplicaStatus]]:
    """State, active policy and servers of an engine, as far as the daemon knows."""
    if status is None:
        return None, "", ()
    return status.engines.get(name), status.policies.get(name, ""), status.replicas.get(name, ())


def _read_status(loaded: LoadedConfiguration) -> Status | None:
    """What the daemon says; None where none runs."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning:
        return None
    return status if isinstance(status, Status) else None


def _place(engine: EngineSettings) -> str:
    """What it is, and where: without what a URL may hold of a key."""
    if engine.urls:
        return f"{engine.kind}, {len(engine.urls)} servers"
    if engine.replicas > 1:
        return f"{engine.kind}, {engine.replicas} servers that the daemon starts"
    if engine.url:
        return f"{engine.kind} at {server_name(engine.url)}"
    return f"{engine.kind} of {engine.path}" if engine.path else engine.kind
