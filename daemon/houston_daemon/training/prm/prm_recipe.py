"""The recipe of a process reward model: every setting with its default, and the packaged recipes.

A recipe is a TOML file with `key=value` settings laid over it. It imports no torch.
"""

from pathlib import Path
from typing import Literal

from houston_daemon.training.runs.tracker_choice import ReportTo, require_trackers
from houston_daemon.training.sft.sft_recipe import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitShare,
    read_recipe,
)
from houston_shared.toml_file import Settings

RECIPES_FOLDER = Path(__file__).parent / "recipes"


class PrmRecipe(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a run."""

    base: str = ""
    """Folder of the model that is given a regression head; empty: the default engine's model."""
    held_out: UnitShare = 0.2
    """Share of the tasks whose labels are not trained but measured on; no task is in both."""
    epochs: PositiveInt = 3
    """How often the labels are seen."""
    batch: PositiveInt = 16
    """Labels of one optimizer step."""
    learning_rate: PositiveFloat = 1e-5
    """After the warm-up; it then falls to 0 in a straight line."""
    warmup: UnitShare = 0.05
    """Share of the steps in which the rate rises from 0."""
    weight_decay: UnitShare = 0.0
    """Of AdamW."""
    max_tokens: PositiveInt = 2048
    """Tokens of a text; of a longer one the beginning is left out. Never more than the window."""
    seed: NonNegativeInt = 0
    """Of the split, the head's first weights and the order of the labels."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU where one can be seen."""
    report_to: ReportTo = "auto"
    """Trackers that are told every figure as well: `trackio`, `wandb`, `tensorboard`, or several of
    them as a list. `auto`: trackio where it is installed. `none`: nobody."""
    keep_checkpoints: PositiveInt = 1
    """One is written after each epoch; older ones are removed."""


def load_prm_recipe(name: str, settings: list[str]) -> PrmRecipe:
    """A named recipe or a file, with `key=value` settings laid over it. Raises
    ConfigurationError."""
    recipe = read_recipe(name, RECIPES_FOLDER, settings, PrmRecipe)
    require_trackers(recipe.report_to)
    return recipe
