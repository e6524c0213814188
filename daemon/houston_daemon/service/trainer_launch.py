"""How a trainer is started: its command, its environment, where its output goes, its mark.

The mark is an environment variable that identifies processes left by a killed trainer. The trainer
itself imports this module, so it imports little. `trainers` decides when a run starts.
"""

import os
import subprocess
import sys
from pathlib import Path

from houston_daemon.training.sft import sft_launch
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared import policy_and_run_files
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder

TRAINER_CHILD_MODULE = "houston_daemon.service.trainer_child"
RL_TRAINER_PACKAGE = "houston_daemon.training.rl"
PRM_TRAINER_PACKAGE = "houston_daemon.training.prm"
CRITIC_TRAINER_PACKAGE = "houston_daemon.training.critic"
TRAINER_VARIABLE = "HOUSTON_TRAINER"
"""Environment variable by which what a trainer left is found."""


def start_trainer_process(
    loaded: LoadedConfiguration,
    run: str,
    kind: str,
    gpus: int,
    visible: dict[str, str],
    seconds: float,
) -> "subprocess.Popen[bytes]":
    """Start it, tied to this thread. Raises HoustonError and OSError.

    gpus, visible: how many it has, and the environment that shows them. seconds: how long it may
    take to leave when asked to.
    """
    home = loaded.home
    folder = policy_and_run_files.training_run_folder(home, run)
    words = [sys.executable, "-m", TRAINER_CHILD_MODULE, str(os.getpid()), str(seconds)]
    fd = os.open(
        trainer_output_file(home, run), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        return subprocess.Popen(
            [*words, *_trainer_command(loaded, kind, folder, gpus)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            cwd=folder,
            env=_trainer_environment(loaded, folder, visible),
            start_new_session=True,
        )
    finally:
        os.close(fd)


def _trainer_environment(
    loaded: LoadedConfiguration, folder: Path, visible: dict[str, str]
) -> dict[str, str]:
    environment = {
        **os.environ,
        **visible,
        # Threads that wait for each other sleep: beside an engine on the same processors those that
        # turn instead cost a small model seconds a step, where it takes milliseconds.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "HOUSTON_HOME": str(loaded.home.path),
        TRAINER_VARIABLE: str(folder),
    }
    if loaded.file:
        environment["HOUSTON_CONFIG"] = loaded.file
    return environment


def trainer_output_file(home: Home, run: str) -> Path:
    """What its processes print; its own log is `log.txt` beside it."""
    return policy_and_run_files.training_run_folder(home, run) / "output.txt"


def trainer_mark(home: Home, run: str) -> bytes:
    """What the environment of its processes has."""
    return f"{TRAINER_VARIABLE}={policy_and_run_files.training_run_folder(home, run)}".encode()


def all_trainer_marks(home: Home) -> list[bytes]:
    """Of every run that has a folder."""
    folders = training_folder(home).glob("*")
    return [trainer_mark(home, folder.name) for folder in folders if folder.is_dir()]


def _trainer_command(loaded: LoadedConfiguration, kind: str, folder: Path, gpus: int) -> list[str]:
    """What trains a run of this kind. Raises HoustonError for a kind that has no trainer."""
    if kind == "sft":
        recipe = RunFolder(folder).spec.recipe
        return sft_launch.launch_command(folder, gpus, sft_launch.ray_address(loaded, recipe, gpus))
    if kind in ("dapo", "grpo"):
        return [sys.executable, "-m", RL_TRAINER_PACKAGE, str(folder)]
    if kind == "prm":
        return [sys.executable, "-m", PRM_TRAINER_PACKAGE, str(folder)]
    if kind == "echo":
        return [sys.executable, "-m", CRITIC_TRAINER_PACKAGE, str(folder)]
    raise HoustonError(f"This Houston has no trainer {kind}.", code=ExitCode.CONFIGURATION)
