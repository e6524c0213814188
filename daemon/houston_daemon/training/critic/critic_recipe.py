"""The settings of a run that trains a critic on what people said, and the type of one training row.
It imports no torch."""

from typing import Annotated, Literal

import msgspec

from houston_daemon.training.runs.tracker_choice import ReportTo, require_trackers
from houston_daemon.training.sft.sft_recipe import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    apply_settings,
)
from houston_shared.toml_file import Settings, convert_toml


class CriticRecipe(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a run of `houston train echo --human`."""

    base: str = ""
    """Folder of the model; the engine's, filled in."""
    adapter: str = ""
    """Folder of the adapter to go on from; of the policy that `--base` names, filled in."""
    template: str = ""
    """File with the critic's words (`houston critique --print-template`); empty: the packaged."""
    gain_temperature: PositiveFloat = 0.5
    """A message weighs exp((gain - mean gain) / this): the lower, the more only what gained most
    counts (advantage-weighted regression, arXiv 1910.00177). Without a gain it weighs 1."""
    most_weight: PositiveFloat = 5.0
    """Most that a message weighs."""
    preference_weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """What the loss of pairs weighs beside that of messages; 0: drafts that people turned down or
    edited teach nothing."""
    preference_beta: PositiveFloat = 0.1
    """β of the loss of pairs (DPO, arXiv 2305.18290, eq. 7)."""
    epochs: PositiveInt = 4
    """How often everything is seen."""
    batch: PositiveInt = 8
    """Messages and pairs of one optimizer step."""
    learning_rate: PositiveFloat = 2e-4
    """After a tenth of the steps; it then falls to 0 in a straight line."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are scaled down to this norm."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter."""
    lora_alpha: PositiveInt = 32
    """Its scale is lora_alpha / lora_rank."""
    lora_targets: str | tuple[str, ...] = "all-linear"
    """Modules with an adapter: all linear ones except the head, or their names."""
    seed: NonNegativeInt = 0
    """Of the adapter's start and the order."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 multiplies in bfloat16; auto: where the device does that fast."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU where one can be seen."""
    report_to: ReportTo = "auto"
    """Trackers that are told every figure as well: `trackio`, `wandb`, `tensorboard`, or several of
    them as a list. `auto`: trackio where it is installed. `none`: nobody."""
    keep_checkpoints: PositiveInt = 1
    """One is written after each epoch; older ones are removed."""


class CriticRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `rows.jsonl`: a prompt with what is to be said, or with what is preferred."""

    rollout: str
    prompt: list[int]
    answer: list[int]
    """What a person said, or said rather."""
    rejected: list[int] = []
    """What a critic had drafted and nobody said; empty for a message."""
    weight: float = 1.0
    """Of a message."""
    gain: float | None = None
    author: str = ""


def critic_recipe(settings: list[str]) -> CriticRecipe:
    """The defaults with `key=value` settings laid over them. Raises ConfigurationError."""
    tables: dict[str, object] = {}
    apply_settings(tables, settings)
    recipe = convert_toml(tables, CriticRecipe, "--set")
    require_trackers(recipe.report_to)
    return recipe
