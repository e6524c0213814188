"""The folder of a run that trains a process reward model: its settings and its results.

Lock, checkpoints and progress are those of every run. It also holds `labels.jsonl`, a copy of the
training labels, `result.json`, and `calibration.svg`. It imports no torch.
"""

from pathlib import Path

import msgspec

from houston_daemon.training.prm.prm_figures import AgreementFigures
from houston_daemon.training.prm.prm_recipe import PrmRecipe
from houston_daemon.training.runs.run_folder import TrainingRunFolder, TrainingRunSpec


class PrmRunSpec(TrainingRunSpec[PrmRecipe], frozen=True, kw_only=True):
    """`recipe.json`."""

    labels_hash: str
    """SHA-256 of the labels."""


class PrmResult(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json` of a finished run."""

    trained_labels: int
    by_source: dict[str, int]
    """Of all labels, how many by whom."""
    rubrics: list[str] = []
    """SHA-256 of each rubric by which a judge scored some of them."""
    steps: int
    seconds: float
    loss_first: float
    loss_last: float
    train: AgreementFigures
    held_out: AgreementFigures | None
    """None where no task was held out."""


class PrmRunFolder(TrainingRunFolder):
    """Paths and small files of a run."""

    train_command = "houston train prm"

    @property
    def labels(self) -> Path:
        """The labels."""
        return self.path / "labels.jsonl"

    @property
    def calibration_picture(self) -> Path:
        """What the scores of a finished run are worth."""
        return self.path / "calibration.svg"

    @property
    def spec(self) -> PrmRunSpec:
        """What was asked. Raises HoustonError where this is no folder of such a run."""
        return self._read_spec(PrmRunSpec, "a training of a process reward model")

    @property
    def result(self) -> PrmResult:
        """Of a finished run. Raises OSError where there is none."""
        return msgspec.json.decode((self.path / "result.json").read_bytes(), type=PrmResult)
