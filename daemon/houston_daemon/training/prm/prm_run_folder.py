"""The folder of one training of a process reward model: what was asked, and what came out.

Lock, checkpoints and progress are those of every run; besides: `labels.jsonl`, a copy of what it
is trained on, `result.json`, and `calibration.svg`. It imports no torch.
"""

from pathlib import Path

import msgspec

from houston_daemon.training.prm.prm_figures import AgreementFigures
from houston_daemon.training.prm.prm_recipe import PrmRecipe
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import atomic_file
from houston_shared.errors import HoustonError


class PrmRunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`recipe.json`: all that the trainer needs to know."""

    run: str
    """Id of the run, the folder's name."""
    name: str
    """Family of the policy that comes out."""
    home: str
    recipe: PrmRecipe
    """With the base model filled in."""
    base_hash: str
    """What the base model is, by content."""
    labels_hash: str
    """SHA-256 of the labels."""
    gpus: int = 0
    share_gpus: bool = False


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
        try:
            return msgspec.json.decode((self.path / "recipe.json").read_bytes(), type=PrmRunSpec)
        except (OSError, msgspec.DecodeError) as problem:
            raise HoustonError(
                f"{self.path} is not the folder of a training of a process reward model:"
                f" {problem}.",
                NOTHING_TRAINED_MESSAGE,
                "houston train list",
            ) from None

    @property
    def result(self) -> PrmResult:
        """Of a finished run. Raises OSError where there is none."""
        return msgspec.json.decode((self.path / "result.json").read_bytes(), type=PrmResult)

    def write_result(self, result: PrmResult) -> None:
        """Keep the figures of a finished run."""
        text = msgspec.json.format(msgspec.json.encode(result), indent=1)
        atomic_file.write_atomically(self.path / "result.json", text)
