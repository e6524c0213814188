"""A run of an experiment: its folder, its home, its recipe, and its stages on disk, each done once.

DIR/recipe.toml is the recipe, run.json has commands, machine and versions, ground/ the home, tasks/
task files, stages/ one JSON result a stage, report/ the report. A stage writes down what it has
started as it goes, so a run continues after a kill. Also sets which policy the model's engine
serves.
"""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from houston_daemon.engines.local_model import model_path
from houston_daemon.experiments import experiment_recipe, order_vocabulary
from houston_daemon.experiments.experiment_home import ExperimentHome, StageInvalid
from houston_shared import atomic_file
from houston_shared.errors import HoustonError, NotFound, UsageError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.store.rollout_queries import RolloutRow

StageResult = dict[str, Any]


class StageStore:
    """The folder `stages/` of a run."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        folder.mkdir(parents=True, exist_ok=True)

    def run_stage(
        self, name: str, work: Callable[["StageProgress"], Mapping[str, Any]]
    ) -> StageResult:
        """The result of a stage: kept, or made now by `work`, which is given its progress."""
        if (result := self.result(name)) is not None:
            return result
        self._say(f"{name} …")
        begun_work = StageProgress(self._folder / f"{name}.begun.json")
        began = time.monotonic()
        try:
            result = dict(work(begun_work))
        except StageInvalid:
            begun_work.forget()
            raise
        result["seconds"] = round(begun_work.seconds() + time.monotonic() - began, 1)
        atomic_file.write_atomically(self._folder / f"{name}.json", _result_json(result))
        self._say(f"{name}: {result['seconds']:.0f} s")
        return result

    def kept_value(self, name: str, make: Callable[[], StageResult]) -> StageResult:
        """Something that the whole run uses: what was kept, or what `make` gives now."""
        file = self._folder / f"{name}.kept.json"
        if not file.is_file():
            atomic_file.write_atomically(file, _result_json(make()))
        value: StageResult = json.loads(file.read_text(encoding="utf-8"))
        return value

    def seconds(self) -> dict[str, float]:
        """How long each stage took, in the order in which they ended."""
        files = [
            file
            for file in self._folder.glob("*.json")
            if not file.name.endswith((".begun.json", ".kept.json"))
        ]
        files.sort(key=lambda file: file.stat().st_mtime_ns)
        return {file.stem: json.loads(file.read_bytes())["seconds"] for file in files}

    def result(self, name: str) -> StageResult | None:
        """The result of a stage; None while it is not over."""
        file = self._folder / f"{name}.json"
        if not file.is_file():
            return None
        result: StageResult = json.loads(file.read_text(encoding="utf-8"))
        return result


class StageProgress:
    """What a stage has begun, by key; safe against kills, not for several threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.is_resumed = file.is_file()
        """Whether an earlier run began something of the stage."""
        earlier = json.loads(file.read_text(encoding="utf-8")) if self.is_resumed else {}
        self._values: dict[str, Any] = earlier.get("known", {})
        self._previous_seconds = float(earlier.get("seconds", 0.0))
        self._started_at = time.monotonic()

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """What `key` stands for; made now, and kept, where it is not known."""
        if key not in self._values:
            self.put(key, make())
        return self._values[key]

    def put(self, key: str, value: Any) -> None:
        """Keep what `key` stands for from now on."""
        self._values[key] = value
        spent = self._previous_seconds + time.monotonic() - self._started_at
        work = {"known": self._values, "seconds": round(spent, 1)}
        atomic_file.write_atomically(self._file, _result_json(work))

    def forget(self) -> None:
        """Begin anew next time."""
        self._file.unlink(missing_ok=True)

    def seconds(self) -> float:
        """What runs before this one have spent on the stage, up to what they last began."""
        return self._previous_seconds


def _result_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


MODEL_ENGINE = "model"
"""Name of the engine that is trained and measured."""
GUIDED_ENGINE, UNGUIDED_ENGINE = "guided", "alone"
"""Names of the scripted sampler's engines: with a person beside it, and without."""
_NOTED_PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "textworld",
    "scienceworld",
)


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """See the module."""

    folder: Path
    recipe: experiment_recipe.ExperimentRecipe
    experiment_home: ExperimentHome
    stages: StageStore
    orders: order_vocabulary.OrderVocabulary
    say: Callable[[str], None]

    @property
    def tasks(self) -> Path:
        """Where task files are written."""
        return self.folder / "tasks"

    @property
    def seconds(self) -> float:
        """Longest time of one stage."""
        return 60.0 * self.recipe.minutes


def model_folder(recipe: experiment_recipe.ExperimentRecipe) -> Path:
    """The base model. Raises HoustonError where it is not there."""
    name = str(recipe.model.engine.get("model", ""))
    folder = Path(name) if name else model_path()
    if folder is None or not folder.is_dir():
        raise HoustonError(
            "The model of the experiment is missing.",
            "Nothing was started.",
            "houston doctor --fetch-model",
        )
    return folder


def prepare_run(file: Path, folder: Path, resume: bool, command: Sequence[str]) -> None:
    """Make the folder of a run, or note a command that goes on with it. Raises HoustonError.

    file: the recipe; of a run that goes on, the kept copy counts.
    """
    copy = folder / "recipe.toml"
    if copy.is_file():
        if not resume:
            raise UsageError(
                f"{folder} holds a run of an experiment.",
                "Nothing was started.",
                "Continue with --resume, or name another folder with --out.",
            )
        _note_command(folder / "run.json", command)
        return
    folder.mkdir(parents=True, exist_ok=True)
    recipe = experiment_recipe.read_recipe(file)
    name = recipe.orders.vocabulary
    vocabulary = file.parent / name if name else order_vocabulary.ORDERS_FILE
    atomic_file.write_atomically(folder / "orders.toml", vocabulary.read_bytes())
    if recipe.sft.recipe.endswith(".toml"):
        atomic_file.write_atomically(
            folder / "sft.toml", (file.parent / recipe.sft.recipe).read_bytes()
        )
    _write_about(folder / "run.json", _about_run(command))
    atomic_file.write_atomically(copy, file.read_bytes())


def require_run(folder: Path) -> None:
    """Raises HoustonError where no run lies in `folder`."""
    if not (folder / "recipe.toml").is_file():
        raise NotFound(
            f"There is no run of an experiment in {folder}.",
            "No report was written.",
            "Name its folder with --out.",
        )


def is_other_recipe(file: Path, folder: Path) -> bool:
    """Whether `file` asks for something else than the recipe that a run keeps."""
    return experiment_recipe.read_recipe(file) != experiment_recipe.read_recipe(
        folder / "recipe.toml"
    )


def run_vocabulary(folder: Path) -> order_vocabulary.OrderVocabulary:
    """The orders of a run; the packaged ones where it is from before they were kept."""
    own = folder / "orders.toml"
    return order_vocabulary.read_vocabulary(own if own.is_file() else order_vocabulary.ORDERS_FILE)


def _note_command(file: Path, command: Sequence[str]) -> None:
    """One more command worked on the run; `command` stays the first."""
    about = json.loads(file.read_text(encoding="utf-8"))
    about["commands"] = [*about.get("commands", [about["command"]]), _command_line(command)]
    _write_about(file, about)


def _write_about(file: Path, about: Mapping[str, Any]) -> None:
    atomic_file.write_atomically(file, (json.dumps(about, indent=1) + "\n").encode())


def _command_line(command: Sequence[str]) -> str:
    return shlex.join(["houston", *command])


def _about_run(command: Sequence[str]) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name in ("houston-agents", *_NOTED_PACKAGES):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "command": _command_line(command),
        "commands": [_command_line(command)],
        "machine": {
            "system": platform.platform(),
            "processor": _processor_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        },
        "versions": versions,
        "executable": sys.version.split("\n")[0],
    }


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def activate_policy(run: ExperimentRun, policy: str) -> None:
    """Have new rollouts of the model sample with `policy`. Raises HoustonError where it fails."""
    words = ("policy", "activate", policy, "--engine", MODEL_ENGINE)
    run.experiment_home.run(*words, "--wait", f"{run.seconds:.0f}", seconds=run.seconds + 60)


def check_sampled_policy(ended: Sequence[RolloutRow], policy: str) -> None:
    """Refuse rollouts that sampled with another policy ("" for the base). Raises StageInvalid."""
    if other_rows := [row for row in ended if row.policy != policy]:
        wrong = f"it sampled with {other_rows[0].policy or BASE_MODEL}, not {policy or BASE_MODEL}"
        raise StageInvalid(len(other_rows), len(ended), other_rows[0].id, wrong)
