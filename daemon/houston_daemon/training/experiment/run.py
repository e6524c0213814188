"""A run of an experiment: its folder, its home, its recipe; what every stage is given.

DIR/recipe.toml     what was asked; beside it the orders, and how it is trained
DIR/run.json        commands, machine, versions
DIR/ground/         the home with all rollouts, policies and journals, and its part of this host
DIR/tasks/          task files
DIR/stages/         results, one JSON file a stage
DIR/report/         report.md, results.json, pictures
"""

import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from houston_daemon.engines.model import model_path
from houston_daemon.training.experiment import orders, recipe
from houston_daemon.training.experiment.own_home import OwnHome
from houston_daemon.training.experiment.stages import Stages
from houston_shared import synced_file
from houston_shared.errors import ExitCode, HoustonError

MODEL = "model"
"""Name of the engine that is trained and measured."""
GUIDED, ALONE = "guided", "alone"
"""Names of the scripted sampler's engines: with a person beside it, and without."""
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "textworld", "scienceworld")


@dataclass(frozen=True, slots=True)
class Run:
    """See the module."""

    folder: Path
    recipe: recipe.Recipe
    ground: OwnHome
    stages: Stages
    orders: orders.Orders
    say: Callable[[str], None]

    @property
    def tasks(self) -> Path:
        """Where task files are written."""
        return self.folder / "tasks"

    @property
    def seconds(self) -> float:
        """Longest time of one stage."""
        return 60.0 * self.recipe.minutes


def model_folder(made: recipe.Recipe) -> Path:
    """The base model. Raises HoustonError where it is not there."""
    named = str(made.model.engine.get("model", ""))
    folder = Path(named) if named else model_path()
    if folder is None or not folder.is_dir():
        raise HoustonError(
            "The model of the experiment is not there.",
            "Nothing was started.",
            "houston doctor --fetch-model",
        )
    return folder


def prepare(file: Path, folder: Path, resume: bool, command: Sequence[str]) -> None:
    """Make the folder of a run, or note a command that goes on with it. Raises HoustonError.

    file: the recipe; of a run that goes on, the kept copy counts.
    """
    kept = folder / "recipe.toml"
    if kept.is_file():
        if not resume:
            raise HoustonError(
                f"{folder} holds a run of an experiment.",
                "Nothing was started.",
                "Go on with --resume, or name another folder with --out.",
                ExitCode.USAGE,
            )
        _note(folder / "run.json", command)
        return
    folder.mkdir(parents=True, exist_ok=True)
    made = recipe.read(file)
    named = made.orders.vocabulary
    vocabulary = file.parent / named if named else orders.PACKAGED
    synced_file.write(folder / "orders.toml", vocabulary.read_bytes())
    if made.sft.recipe.endswith(".toml"):
        synced_file.write(folder / "sft.toml", (file.parent / made.sft.recipe).read_bytes())
    _write(folder / "run.json", _about(command))
    synced_file.write(kept, file.read_bytes())


def require(folder: Path) -> None:
    """Raises HoustonError where no run lies in `folder`."""
    if not (folder / "recipe.toml").is_file():
        raise HoustonError(
            f"There is no run of an experiment in {folder}.",
            "No report was written.",
            "Name its folder with --out.",
            ExitCode.USAGE,
        )


def other_recipe(file: Path, folder: Path) -> bool:
    """Whether `file` asks for something else than the recipe that a run keeps."""
    return recipe.read(file) != recipe.read(folder / "recipe.toml")


def vocabulary(folder: Path) -> orders.Orders:
    """The orders of a run; the packaged ones where it is from before they were kept."""
    own = folder / "orders.toml"
    return orders.read(own if own.is_file() else orders.PACKAGED)


def _note(file: Path, command: Sequence[str]) -> None:
    """One more command worked on the run; `command` stays the first."""
    about = json.loads(file.read_text(encoding="utf-8"))
    about["commands"] = [*about.get("commands", [about["command"]]), _line(command)]
    _write(file, about)


def _write(file: Path, about: Mapping[str, Any]) -> None:
    synced_file.write(file, (json.dumps(about, indent=1) + "\n").encode())


def _line(command: Sequence[str]) -> str:
    return shlex.join(["houston", *command])


def _about(command: Sequence[str]) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name in ("houston-agents", *_PACKAGES):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "command": _line(command),
        "commands": [_line(command)],
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        },
        "versions": versions,
        "executable": sys.version.split("\n")[0],
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
