"""`houston mcp serve`: Houston's `python` and `search` tools for any client of MCP, on stdio.

Nothing but the protocol goes to stdout. It needs no daemon and records nothing. The MCP SDK is
imported when it serves, not before.
"""

import argparse
import asyncio
import importlib.util
import secrets
import shutil
from importlib.metadata import version
from pathlib import Path

import msgspec

from houston_daemon.hosts.sandbox.sandbox_profile import hidden_paths
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, ExitCode, UsageError
from houston_shared.records import RolloutSpec, TaskRecord
from houston_shared.secret_redaction import install_secrets
from houston_shared.task import Task, TaskSearchSettings
from houston_shared.task_tables import PythonToolSettings

MCP_INSTALL_COMMAND = "pip install 'houston-agents[envs]'"


def add_mcp_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """`--python`, `--corpus`, `--seconds`, `--memory-mb`."""
    parser.add_argument("--python", action="store_true", help="serve the code tool")
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        help="serve search in this folder or .jsonl file; else as [tools.search] says",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of a code run (10)")
    parser.add_argument(
        "--memory-mb", type=int, default=1024, help="memory limit of a code run (1024)"
    )


def run_mcp_serve(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Serve until stdin ends; exit code 78 when nothing can be served."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigurationError(
            "MCP needs the official SDK, which is not installed.", next=MCP_INSTALL_COMMAND
        )
    install_secrets(loaded.config)
    settings = loaded.tools.search
    search = bool(arguments.corpus or settings.provider or settings.corpus)
    if not (arguments.python or search):
        raise ConfigurationError(
            "There is nothing to serve: no --python, no --corpus, no [tools.search].",
            next="houston mcp serve --python",
        )
    try:
        python = msgspec.convert(
            {"seconds": arguments.seconds, "memory_mb": arguments.memory_mb}, PythonToolSettings
        )
    except msgspec.ValidationError as problem:
        raise UsageError(f"{problem}.") from None
    asyncio.run(_serve_tools(arguments, loaded, python, search))
    return int(ExitCode.DONE)


async def _serve_tools(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    settings: PythonToolSettings,
    search: bool,
) -> None:
    from houston_daemon.environments.local_host_setup import local_host
    from houston_daemon.environments.mcp.mcp_tool_server import tool_server
    from houston_daemon.environments.python.python_tool import PythonTool
    from houston_daemon.environments.retrieval.searcher import make_searcher

    spec, task = _stand_in_rollout(arguments, loaded, settings)
    searcher = make_searcher(spec, task) if search else None
    if not arguments.python:
        return await tool_server(version("houston-agents"), None, searcher).run_stdio_async()
    host = local_host(spec, task)
    try:
        await host.prepare(None)
        tool = PythonTool(host, settings)
        await tool_server(version("houston-agents"), tool, searcher).run_stdio_async()
    finally:
        await host.destroy_terminals()
        await host.close()
        await asyncio.to_thread(shutil.rmtree, host.folder, ignore_errors=True)
        (Path(spec.host_root) / "prepared" / spec.rollout).unlink(missing_ok=True)
    return None


def _stand_in_rollout(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, settings: PythonToolSettings
) -> tuple[RolloutSpec, Task]:
    """What a rollout with these tools would have."""
    corpus = Path(arguments.corpus).expanduser().absolute() if arguments.corpus else None
    if corpus and not (corpus.is_dir() or (corpus.suffix == ".jsonl" and corpus.is_file())):
        raise ConfigurationError(
            f"{corpus} is neither a folder nor a .jsonl file.",
            code=ExitCode.CONFIGURATION if corpus.exists() else ExitCode.NOT_FOUND,
        )
    spec = RolloutSpec(
        # No process id: in a container it is the same at every start.
        rollout=f"mcp-serve-{secrets.token_hex(6)}",
        task=TaskRecord(
            name="mcp-serve",
            folder=str(corpus.parent if corpus else Path.cwd()),
            definition="",
            instructions="",
        ),
        engine="",
        engine_settings={},
        host_root=str(loaded.host_root),
        hidden=hidden_paths(loaded.home),
        tool_settings=msgspec.to_builtins(loaded.tools),
    )
    search = TaskSearchSettings(corpus=corpus.name if corpus else "")
    return spec, Task(name="mcp-serve", search=search, python=settings)
