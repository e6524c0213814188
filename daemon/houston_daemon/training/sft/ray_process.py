"""One of a run's processes, run by a worker of Ray Train on its node.

It starts `accelerate launch` as one machine of several with one process each, so that training is
the same as without Ray, and ends it with the worker. `ray_launch` decides the node, and what the
end of a process means for the run. It imports no torch, and Ray only when it is called.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.service.trainer_launch import TRAINER_CHILD_MODULE
from houston_daemon.training.runs import run_progress

LEAVE_SECONDS = 30.0
"""What a process has to write a checkpoint and leave, once it is asked to."""
LOSS_SECONDS = 20.0
"""What Ray may take to notice that a node is lost: the end of a process that only lost touch with
one there is not told before."""
_LOOK_SECONDS = 0.5
"""Between two looks at whether the run is asked to end."""


@dataclass(frozen=True)
class LaunchOrder:
    """What all processes of a run are started with."""

    folder: str
    """Of the run; at the same path on every node."""
    stop_file: str
    """There once the run is asked to end."""
    options: Sequence[str]
    """Options of `accelerate launch`, without those that say which machine it is."""
    words: Sequence[str]
    """The trainer's module and its arguments."""
    environment: Mapping[str, str]
    """Variables that go before those of the node."""
    cwd: str


class FolderMissing(Exception):
    """A node does not have the run's folder: its host."""


class ProcessEnded(Exception):
    """A process ended with an error: its rank, its host, its exit code."""


def hold_process(config: Mapping[str, LaunchOrder]) -> None:
    """Run one process to its end, in a worker of Ray Train. Raises ProcessEnded, FolderMissing.

    config: `order` is what to run.
    """
    import ray.train
    import ray.util
    from ray.train.collective import broadcast_from_rank_zero

    order, context = config["order"], ray.train.get_context()
    rank, count = context.get_world_rank(), context.get_world_size()
    if not (Path(order.folder) / "recipe.json").is_file():
        raise FolderMissing(socket.gethostname())
    address = ray.util.get_node_ip_address()
    main_address, main_port = broadcast_from_rank_zero((address, _free_port(address)))
    machine = {
        "num_processes": count,
        "num_machines": count,
        "machine_rank": rank,
        "main_process_ip": main_address,
        "main_process_port": main_port,
        "rdzv_backend": "static",
        "deepspeed_multinode_launcher": "standard",  # one that starts nothing elsewhere itself
    }
    command = [sys.executable, "-m", "accelerate.commands.launch", *order.options]
    command += [word for name, value in machine.items() for word in (f"--{name}", str(value))]
    command += ["--same_network", *order.words]
    code = _run_to_end(command, order)
    if not code or Path(order.stop_file).exists():
        return
    progress = run_progress.read_progress(Path(order.folder))
    if progress is None or progress.state not in ("failed", "cancelled"):  # none has said why
        time.sleep(LOSS_SECONDS)
    raise ProcessEnded(rank, socket.gethostname(), code)


def _run_to_end(command: Sequence[str], order: LaunchOrder) -> int:
    """Run it, tied to this thread, and pass on that the run is asked to end; its exit code."""
    child = [sys.executable, "-m", TRAINER_CHILD_MODULE, str(os.getpid()), str(LEAVE_SECONDS)]
    with (Path(order.folder) / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            [*child, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=order.cwd,
            env={**os.environ, **order.environment},
            start_new_session=True,
        )
    stop_file, is_stopping = Path(order.stop_file), False
    while True:
        if not is_stopping and stop_file.exists():
            process.terminate()
            is_stopping = True
        try:
            return process.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _free_port(address: str) -> int:
    """A port of this node that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])
