"""`houston rollout start TASK.toml`: checks task, engine and machine, then queues rollouts."""

import argparse
import uuid
from pathlib import Path

from houston_daemon.service import rollouts
from houston_daemon.service.task_checks import check_names
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.sending import send
from houston_shared.task import load_task
from houston_shared.wire import AskStatus
from houston_shared.wire_operators import StartRollouts
from houston_shared.wire_status import Status

START_LIMIT = 1_000
"""Most rollouts of one start; the recorder holds to it, too."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`TASK.toml`, `--engine`, `--policy`, `-n`, `--seed`, `--json`."""
    parser.add_argument("task", metavar="TASK.toml", help="task file, or the folder that holds it")
    parser.add_argument("--engine", help="engine of the configuration, or script:FILE")
    number = whole(1, START_LIMIT)
    parser.add_argument(
        "--policy",
        default="",
        metavar="POLICY",
        help="policy@2 that was active on the engine before, or `base` for its own model; "
        "default: what is active",
    )
    parser.add_argument("-n", type=number, default=1, metavar="N", help="how many rollouts (1)")
    parser.add_argument("--seed", type=whole(), help="seed of the first; random without")
    parser.add_argument(
        "--share-gpus", action="store_true", help="their GPUs may be shared with others of the kind"
    )
    parser.add_argument(
        "--hints", action="store_true", help="show them the task's hints, which are off by default"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Queue the rollouts and print their ids."""
    task = load_task(Path(arguments.task))
    check_names(task)
    engine = arguments.engine or loaded.config.default_engine
    loaded.engine(engine)  # a wrong name is the first thing to say
    with ControlClient(loaded.home) as client:
        status = client.ask(AskStatus())
        running = status.engines if isinstance(status, Status) else {}
    rollouts.check_engine(loaded, engine, running)
    rollouts.check_policy(loaded, engine, arguments.policy)
    rollouts.check_machine(task)
    if arguments.hints and not task.task.hints.text:
        raise HoustonError(
            f"{task.file} has no hints.", rollouts.NOTHING, "Leave --hints out.", ExitCode.USAGE
        )
    given = (arguments.seed, arguments.share_gpus, arguments.hints)
    specs = rollouts.specs(loaded, task, engine, arguments.n, *given, policy=arguments.policy)
    message = StartRollouts(request=uuid.uuid4().hex, specs=specs)
    done = send(loaded.home, message, "They may have been queued.", "houston rollout list")
    for rollout in done.rollouts:
        if arguments.json:
            out.json_line({"rollout": rollout, "task": task.task.name, "state": "queued"})
        else:
            out.line(rollout)
    if not arguments.json and done.rollouts:
        out.note(f"next: houston tail {done.rollouts[0]} -f")
    return int(ExitCode.DONE)
