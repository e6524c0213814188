"""How the trainer's processes are started, for the daemon and for who trains beside it.

One process, or `accelerate launch` with as many as its configuration or the GPUs say. It imports no
torch.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import ConfigurationError

FOLDER = Path(__file__).parent / "accelerate"
PACKAGE = "houston_daemon.training.sft"


def named() -> list[str]:
    """The configurations of accelerate that come with Houston."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def configuration(name: str) -> str:
    """The file of a packaged configuration, or of a path. Raises ConfigurationError."""
    file = FOLDER / f"{name}.yaml" if name in named() else Path(name).absolute()
    if not file.is_file():
        raise ConfigurationError(
            f"There is no configuration {name} of accelerate; packaged are {', '.join(named())}."
        )
    return str(file)


def command(folder: Path, gpus: int) -> list[str]:
    """The command that trains a run. gpus: how many it sees; 0 for the CPU.

    Several GPUs without a configuration each have the whole model and a share of the rows (DDP).
    """
    words = ["-m", PACKAGE, str(folder)]
    file = RunFolder(folder).asked.recipe.accelerate
    if not file and gpus < 2:
        return [sys.executable, *words]
    start = [sys.executable, "-m", "accelerate.commands.launch"]
    start += ["--config_file", file] if file else ["--multi_gpu"]
    start += ["--num_processes", str(gpus)] if gpus else []
    return [*start, *words]


def start(folder: Path, gpus: int, sees: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start it in a session of its own; what it prints is in `output.txt`. Raises OSError.

    gpus, sees: how many it has, and the environment in which it sees them (`alone_gpus`).
    """
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command(folder, gpus),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **sees},
            start_new_session=True,
        )
