"""The recipe of a training run: every setting with its default and explanation, and the packaged
recipes.

A recipe is a TOML file with `key=value` settings laid over it; what makes no sense together is
refused. It knows nothing about data and imports no torch.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from houston_daemon.training.runs.tracker_choice import ReportTo, require_trackers
from houston_shared import toml_file
from houston_shared.errors import ConfigurationError, ExitCode, did_you_mean
from houston_shared.sample_roles import parse_row_roles
from houston_shared.toml_file import Settings

NOTHING_TRAINED_MESSAGE = "Nothing was trained."
"""The effect of whatever is refused before the first step."""
RECIPES_FOLDER = Path(__file__).parent / "recipes"

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]
UnitShare = Annotated[float, msgspec.Meta(ge=0, le=1)]
Recipe = TypeVar("Recipe", bound=Settings)


class Upsample(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a row is seen in one epoch, by its kind."""

    react: PositiveInt = 1
    summary: PositiveInt = 1


class SftRecipe(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a run."""

    base: str = ""
    """Folder of the model to start from, or a policy (`policy@2`) to go on from; empty: the model
    that the manifest of the data names."""
    adapter: str = ""
    """Folder of a LoRA adapter of that model to go on from; a policy that is one fills this in."""
    full: bool = False
    """Train every weight. Otherwise a LoRA adapter, which an engine loads while it runs."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter; vLLM takes up to 16 unless it is told otherwise."""
    lora_alpha: PositiveInt = 32
    """Its scale is lora_alpha / lora_rank."""
    lora_dropout: UnitShare = 0.0
    """Share of the adapter's inputs dropped in training."""
    lora_targets: str | tuple[str, ...] = "all-linear"
    """Modules with an adapter: all linear ones except the head, or their names."""
    roles: tuple[str, ...] = ()
    """Roles whose answers are trained: `policy` (actions), `summary`; empty: all that rows are made
    of, or what the data hold that were exported."""
    epochs: PositiveInt = 1
    """How often the data are seen."""
    steps: NonNegativeInt = 0
    """End after so many optimizer steps at the latest, or when the epochs are over, whichever comes
    first; 0: when the epochs are over."""
    batch: PositiveInt = 16
    """Rows in one optimizer step, over all processes."""
    upsample: Upsample = Upsample()
    """How often rows of a kind come in one epoch."""
    max_length: PositiveInt = 8192
    """Tokens of a row; what is longer is cut at its end. Never more than the model's window."""
    packing: bool = True
    """Compute several rows in one pass, blind to each other. It changes speed, not results."""
    pack_tokens: PositiveInt = 4096
    """Tokens of one pass; a longer row has a pass of its own. What memory allows."""
    learning_rate: PositiveFloat = 2e-4
    """After the warm-up."""
    final_learning_rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Where a cosine ends; at most learning_rate."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the rate falls: to final_learning_rate, to 0, not at all."""
    warmup: UnitShare = 0.0
    """Share of the steps in which the rate rises from 0."""
    weight_decay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Of AdamW."""
    max_grad_norm: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Gradients are scaled down to this norm; 0: never."""
    seed: NonNegativeInt = 0
    """Of the order of the rows, the adapter's start and dropout."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 multiplies in bfloat16 (master weights that are trained stay float32); auto: where the
    device does that fast."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU where one can be seen."""
    gradient_checkpointing: bool = False
    """Keep fewer activations and compute them again: less memory, a third more time."""
    check_memory: bool = True
    """Refuse a run that will need more memory than is free, before its first step."""
    report_to: ReportTo = "auto"
    """Trackers that are told every figure as well: `trackio`, `wandb`, `tensorboard`, or several of
    them as a list. `auto`: trackio where it is installed. `none`: nobody."""
    save_steps: PositiveInt = 50
    """Write a checkpoint every so many steps, and at the end."""
    save_minutes: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """Also when the last one is this old."""
    keep_checkpoints: PositiveInt = 2
    """Older ones are removed."""
    accelerate: str = ""
    """Configuration file of accelerate, for several processes (FSDP, DeepSpeed)."""


_MODEL_SETTINGS = [
    "base",
    "adapter",
    "lora_rank",
    "lora_alpha",
    "lora_targets",
    "precision",
    "device",
]


def model_recipe(recipe: Any, full: bool = False) -> SftRecipe:
    """What loading a model and its adapter takes of another kind's recipe, by the same names.
    full: whether all weights are trained."""
    settings = {name: getattr(recipe, name) for name in _MODEL_SETTINGS}
    return SftRecipe(packing=False, full=full, **settings)


def load_recipe(name: str, settings: list[str]) -> SftRecipe:
    """A named recipe or a file, with `key=value` settings laid over it. Raises ConfigurationError.

    A value is read as TOML (`2e-4`, `true`, `["q_proj"]`), and as text where it is none.
    """
    file = find_recipe_file(name, RECIPES_FOLDER)
    recipe = toml_file.convert_toml(toml_file.read_toml(file), SftRecipe, str(file))
    recipe = changed_recipe(recipe, settings)
    _check_rates(recipe)
    if recipe.roles:
        parse_row_roles(recipe.roles, NOTHING_TRAINED_MESSAGE)
    return recipe


def changed_recipe(recipe: SftRecipe, settings: list[str]) -> SftRecipe:
    """A recipe with `key=value` settings laid over it. Raises ConfigurationError."""
    tables = msgspec.to_builtins(recipe)
    apply_settings(tables, settings)
    changed = toml_file.convert_toml(tables, SftRecipe, "--set")
    if not _rate_rises(recipe):  # an older run whose rate does may go on: it cannot be changed
        _check_rates(changed)
    require_trackers(changed.report_to)
    return changed


def lower_rate_settings(recipe: SftRecipe) -> str:
    """The settings of a new run with a tenth of a recipe's rates."""
    first, last = recipe.learning_rate / 10, recipe.final_learning_rate / 10
    lower = f"--set learning_rate={first:g}"
    return f"{lower} --set final_learning_rate={last:g}" if _ends_at_other_rate(recipe) else lower


def _ends_at_other_rate(recipe: SftRecipe) -> bool:
    return recipe.schedule == "cosine" and recipe.final_learning_rate > 0


def _rate_rises(recipe: SftRecipe) -> bool:
    return _ends_at_other_rate(recipe) and recipe.final_learning_rate > recipe.learning_rate


def _check_rates(recipe: SftRecipe) -> None:
    if _rate_rises(recipe):
        raise ConfigurationError(
            f"final_learning_rate ({recipe.final_learning_rate:g}) is above learning_rate "
            f"({recipe.learning_rate:g}): the rate would rise from step to step.",
            NOTHING_TRAINED_MESSAGE,
            f"Lower it, too: --set final_learning_rate={recipe.learning_rate / 10:g}",
        )


def packaged_recipe_names(folder: Path) -> list[str]:
    """The recipes of a trainer that come with Houston. folder: where it keeps them."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def find_recipe_file(name: str, folder: Path) -> Path:
    """The file of a packaged recipe of a trainer, or the one that `name` is the path of.

    Raises ConfigurationError for a name that is neither.
    """
    names = packaged_recipe_names(folder)
    file = folder / f"{name}.toml" if name in names else Path(name)
    if not file.is_file() and file.suffix != ".toml":
        raise ConfigurationError(
            f"There is no recipe {name}; there are {', '.join(names)}, or a .toml file.",
            next=did_you_mean(name, names),
            code=ExitCode.NOT_FOUND,
        )
    return file


def read_recipe(name: str, folder: Path, settings: list[str], kind: type[Recipe]) -> Recipe:
    """A packaged recipe of a trainer, or a file, with `key=value` settings laid over it; an error
    names the file or `--set`, whichever is wrong. Raises ConfigurationError."""
    file = find_recipe_file(name, folder)
    tables = toml_file.read_toml(file)
    toml_file.convert_toml(tables, kind, str(file))
    apply_settings(tables, settings)
    return toml_file.convert_toml(tables, kind, "--set")


def apply_settings(tables: dict[str, Any], settings: list[str]) -> None:
    """Lay `key=value` settings over the tables of a recipe. Raises ConfigurationError."""
    for setting in settings:
        _lay_setting(tables, setting)


def _lay_setting(tables: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    path = [word.strip() for word in key.split(".")]
    if not equals or not all(path):
        raise ConfigurationError(f"--set {setting} is not key=value.")
    for word in path[:-1]:
        inner = tables.setdefault(word, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(f"--set {setting}: {word} is not a table.")
        tables = inner
    try:
        tables[path[-1]] = toml_file.parse_toml(f"value = {value}", "--set")["value"]
    except ConfigurationError:
        tables[path[-1]] = value.strip()
