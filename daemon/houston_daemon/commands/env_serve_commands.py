"""`houston env serve`: a task, or a suite's tasks, as a server of OpenEnv that others train on.

It needs no daemon and records nothing: the owner of the agent keeps the records. OpenEnv's server
is imported when it serves, not before.
"""

import argparse
import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec

from houston_daemon.environments.openenv.served_episode import Episodes
from houston_daemon.hosts.sandbox.sandbox_profile import hidden_paths
from houston_daemon.service import rollout_start_checks
from houston_daemon.suites.suite_catalog import SPLITS, find_suite, is_suite, write_suite_task
from houston_daemon.suites.suite_run import suites_folder
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.secret_redaction import install_secrets
from houston_shared.task import LoadedTask, load_task

SUITE_TASKS = 100_000
"""Tasks of a suite that are served; behind the last one the first comes again."""
INSTALL = "pip install 'houston-agents[openenv-serve]'"


def add_env_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """`TASK|SUITE`, `--split`, where to listen, how many clients."""
    parser.add_argument(
        "source",
        metavar="TASK|SUITE",
        help="a task file or its folder, or a suite (the seed of a reset chooses its task)",
    )
    parser.add_argument("--split", choices=SPLITS, default="train", help="split of a suite (train)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=whole_number(1, 65_535), default=8000, help="port to listen on (8000)"
    )
    parser.add_argument(
        "--sessions",
        type=whole_number(1, 10_000),
        default=64,
        metavar="N",
        help="at most N clients at once (64)",
    )


def run_env_serve(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Serve until it is interrupted; exit code 78 where nothing can be served."""
    choose, name = _task_chooser(arguments, loaded)
    _check_task(choose(0))
    if importlib.util.find_spec("openenv") is None:
        raise ConfigurationError(
            "Serving needs the Python package openenv-core, which is not installed.",
            "Nothing is served.",
            INSTALL,
        )
    install_secrets(loaded.config)

    def spec(task: LoadedTask, rollout: str, seed: int) -> RolloutSpec:
        return RolloutSpec(
            rollout=rollout,
            task=task.record(),
            engine="",
            engine_settings={},
            seed=seed,
            host_root=str(loaded.host_root),
            host_memory_mb=loaded.config.hosts.memory_mb,
            hidden=hidden_paths(loaded.home),
            tool_settings=msgspec.to_builtins(loaded.tools),
        )

    _listen(arguments, Episodes(choose, spec), name)
    return int(ExitCode.DONE)


def _listen(arguments: argparse.Namespace, episodes: Episodes, name: str) -> None:
    import uvicorn

    from houston_daemon.environments.openenv.openenv_server import server_app

    app = server_app(episodes, name, version("houston-agents"), arguments.sessions)
    command_output.print_note(
        f"{name} is served at http://{arguments.host}:{arguments.port} for clients of OpenEnv;"
        " anybody who can reach the port can use it."
    )
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")


def _task_chooser(
    arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> tuple[Callable[[int], LoadedTask], str]:
    """The task of each seed, and what all of them are called."""
    place = Path(arguments.source)
    if is_suite(arguments.source) or not (place.exists() or place.suffix):
        suite, folder = find_suite(arguments.source), suites_folder(loaded.home) / "tasks"

        def of_suite(seed: int) -> LoadedTask:
            index = seed % SUITE_TASKS
            return load_task(write_suite_task(suite.name, arguments.split, index, folder))

        return of_suite, f"{suite.name} ({arguments.split})"
    task = load_task(place)
    return lambda seed: task, task.task.name


def _check_task(task: LoadedTask) -> None:
    """Raise HoustonError for a task whose episodes could not run here."""
    rollout_start_checks.check_task_names(task)
    rollout_start_checks.check_machine(task)
    definition = task.task
    if definition.gpus or definition.hosts != (LOCAL_HOST,):
        raise HoustonError(
            f"{task.file} asks for GPUs or other machines, which only the daemon leases.",
            "Nothing is served.",
            code=ExitCode.CONFIGURATION,
        )
