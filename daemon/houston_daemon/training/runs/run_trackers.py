"""Reports the figures of a training to trackers, for every trainer alike, through accelerate.

Every tracker gets the same run: its name, its settings, and the origin of its policy. A tracker
that fails is named once in the log and gets no more figures; the training continues.
`tracker_choice` decides which trackers a recipe means. Figures are always stored in the run's
folder, too.
"""

from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from accelerate import tracking
from transformers import TrainerCallback

from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.tracker_choice import chosen_trackers
from houston_daemon.training.runs.trainer_process import is_first_process
from houston_shared.home import Home
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader

OWN_REPORTS: Mapping[str, Any] = MappingProxyType(
    {
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "log_level": "error",
    }
)
"""Arguments of transformers' trainers: each step is told to the run's own callbacks, as it was, and
nothing to anybody else."""
PROJECT = "houston"
"""In trackio and wandb."""
TENSORBOARD_FOLDER = "tensorboard"
"""In the folder of a run."""
_TRAIN_PREFIX = "train/"


class RunTrackers(TrainerCallback):  # type: ignore[misc]
    """The trackers of a run; in other processes than the first of several it has none."""

    def __init__(self, folder: TrainingRunFolder, spec: Any, writer: ProgressWriter) -> None:
        """spec: the run's, whose recipe has `report_to`."""
        self._folder = folder
        self._spec = spec
        self._writer = writer
        self._waiting = chosen_trackers(spec.recipe.report_to) if is_first_process() else ()
        self._started: dict[str, tracking.GeneralTracker] = {}
        self._step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start them, at the step from which the run goes on."""
        self._step = state.global_step
        names, self._waiting = self._waiting, ()
        before = self._writer.now.message
        for name in names:  # without a network wandb takes a minute and a half to give up
            self._writer.set_state("running", f"starting {name}")
            self._attempt(name, partial(self._start, name))
        if names:
            self._writer.set_state("running", before)
        for name in self._started:
            self._writer.log(f"reporting to {name}{self._how_to_look(name)}")

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **rest: Any
    ) -> None:
        """What the trainer logs; names without a group are of the group `train`."""
        self._step = state.global_step
        self.report(
            {name if "/" in name else _TRAIN_PREFIX + name: value for name, value in logs.items()}
        )

    def report(self, figures: Mapping[str, Any]) -> None:
        """Further figures at the present step; what is no number is left out."""
        numbers = {
            name: float(value)
            for name, value in figures.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, tracker in list(self._started.items()):
            self._attempt(name, partial(tracker.log, numbers, self._step))

    def close(self) -> None:
        """What they were told is stored or sent, however the training ended."""
        for name, tracker in list(self._started.items()):
            self._attempt(name, _finish_trackio if name == "trackio" else tracker.finish)
        self._started.clear()

    def _how_to_look(self, name: str) -> str:
        """The command that shows what a tracker is told; empty where it says so itself."""
        if name == "trackio":
            return f": trackio show --project {PROJECT}"
        return f": tensorboard --logdir {self._folder.path.parent}" if name == "tensorboard" else ""

    def _start(self, name: str) -> None:
        tracker = self._open(name)
        tracker.start()
        if name == "tensorboard":
            json_text = msgspec.json.format(msgspec.json.encode(self._config()), indent=1).decode()
            tracker.log({"houston": f"```json\n{json_text}\n```"}, self._step)
        self._started[name] = tracker

    def _open(self, name: str) -> tracking.GeneralTracker:
        run = self._spec.run
        match name:
            case "trackio":
                return tracking.TrackioTracker(
                    PROJECT, name=run, resume="allow", config=self._config(), embed=False
                )
            case "wandb":
                return tracking.WandBTracker(
                    PROJECT,
                    name=run,
                    id=run,
                    resume="allow",
                    config=self._config(),
                    dir=str(self._folder.path),
                )
            case _:  # steps of before a kill that are trained again take the place of the first
                return tracking.TensorBoardTracker(
                    TENSORBOARD_FOLDER, str(self._folder.path), purge_step=self._step + 1
                )

    def _config(self) -> dict[str, Any]:
        """What a run is, without what only its own machine understands."""
        spec = msgspec.to_builtins(self._spec)
        home = spec.pop("home")
        parent = spec.get("parent", "")
        return {
            "houston": version("houston-agents"),
            "lineage": " < ".join(_ancestors(home, parent)) if parent else "",
            **_flatten(spec),
        }

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            with redirect_stdout(StringIO()):  # trackio tells there how to look; the run said so
                action()
        except Exception as problem:  # noqa: BLE001 whatever a tracker meets, the training goes on
            self._started.pop(name, None)
            what = str(problem).strip().partition("\n")[0]
            self._writer.log(
                f"{name} gets no more figures: {type(problem).__name__}: {what}. The training"
                " continues, and its figures are in its folder."
            )


def _finish_trackio() -> None:
    """As trackio itself does it: its run, finished by accelerate, is finished at exit once more."""
    import trackio

    trackio.finish()  # type: ignore[no-untyped-call]


def _ancestors(home: str, policy: str) -> list[str]:
    """A policy and what it comes from, the newest first, as far as the home knows them."""
    with Reader(Home(Path(home))) as reader:
        parents = {row.name: row.parent for row in reader.run(policy_queries.list_policies())}
    names = [policy]
    while (parent := parents.get(names[-1])) and parent not in names:
        names.append(parent)
    return names


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables in tables as one: `recipe.learning_rate`."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
