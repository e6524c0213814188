"""The recipe of an experiment: a TOML file that names every choice, read and checked here only.

A run keeps a copy. The same recipe, models and versions make the same worlds, orders and scripted
steps again; what vLLM samples at a temperature above 0 has no seed and differs.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.errors import ConfigurationError, ExitCode, did_you_mean
from houston_shared.toml_file import Settings, convert_toml, parse_toml, read_text_file

EXPERIMENTS_FOLDER = Path(__file__).parents[1] / "demo" / "experiments"
Arm = Literal["base", "without-interaction", "without-masking", "full"]
ARMS: tuple[Arm, ...] = ("base", "without-interaction", "without-masking", "full")
RecipeName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")]
UnitShare = Annotated[float, msgspec.Meta(ge=0, le=1)]
SmallCount = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
MAX_WAIT_SECONDS = 60
"""Longest sleep of an agent that waits for orders, some of which are to sleep."""


class WorldsRecipe(Settings, frozen=True):
    """One kind of world: some to learn from, others to measure with."""

    name: RecipeName
    domain: str
    """Row of the table; several kinds may share one."""
    environment: Literal["scienceworld", "textworld"]
    instructions: str
    world: dict[str, Any] = {}
    """Keys of `[scienceworld]` or `[textworld]` of the task file, but `split`."""
    train: SmallCount = 8
    """Worlds of the split `train`, a rollout each."""
    held_out: SmallCount = 6
    """Worlds of the split `test`, a rollout each for every arm and seed. They are the tasks of the
    task-weighted mean."""
    steps: PositiveCount = 16
    """Budget of a rollout."""


class OrdersRecipe(Settings, frozen=True):
    """Plain orders of a person, to learn from and to measure obedience with."""

    train: SmallCount = 0
    """Rollouts to learn from."""
    each: PositiveCount = 5
    """Orders said in each of them."""
    held_out: SmallCount = 0
    """Orders measured for every arm and seed; a rollout each."""
    vocabulary: str = ""
    """TOML file of orders beside the recipe; empty for the packaged one."""
    agent: Literal["explores", "waits"] = "explores"
    """What the scripted agent does while nobody speaks: `explores` looks at this and that and ends
    with `finish`, `waits` sleeps and never ends by itself."""
    instructions: str = ""
    """Of every task with orders; empty for some about an overview of the project."""
    tools: tuple[str, ...] = ()
    """Actions of the agent; empty for `experiment_tasks.ORDER_TOOLS`."""


class ExpertRecipe(Settings, frozen=True):
    """The scripted sampler: it knows a solution, and has bad habits that it seldom leaves alone."""

    drift: UnitShare = 0.4
    """Chance that it drifts before an action of the solution."""
    habits: tuple[Literal["guess", "dither", "quit"], ...] = ("guess", "dither", "quit")
    """`guess` tries commands that the world does not know, `dither` looks again and again, `quit`
    is soon content with what there is."""
    steps: PositiveCount = 4
    """Steps of a drift, unless somebody speaks."""
    gives_up: UnitShare = 0.5
    """Chance that an unheard drift ends with `finish`, not with a return to the solution."""


class AnnotatorRecipe(Settings, frozen=True):
    """The simulated annotator: it knows the solution, and speaks only when the agent drifts."""

    patience: PositiveCount = 2
    """It speaks after so many steps in a row that brought the solution no further."""
    failing: tuple[str, ...] = ()
    """What it says when the last command was not understood; the next of them each time."""
    idle: tuple[str, ...] = ()
    """What it says otherwise."""


class MasksRecipe(Settings, frozen=True):
    """Who judges steps. All of it is left out in the arm `without-masking`."""

    rules: bool = True
    """Rules, which `houston judge --rules-only` stores and the export runs; else `--rules off`."""
    solution: bool = True
    """A scripted judge that knows the solution masks what is not on it, as a person would by
    `houston verdict`; in all arms with masks alike."""


class SftStageRecipe(Settings, frozen=True):
    """What `houston train sft` is called with."""

    recipe: str = "small"
    """A preset, or a recipe file (`.toml`) beside this one."""
    options: tuple[str, ...] = ()
    """Further words of the command, such as `--set`, `epochs=2`."""


class ModelRecipe(Settings, frozen=True):
    """The engine that is trained and measured."""

    engine: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "vllm"})
    """Its `[engines.NAME]` table."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.7
    answer_tokens: PositiveCount = 256


class StatisticsRecipe(Settings, frozen=True):
    """How sure the figures are."""

    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95
    draws: PositiveCount = 2_000
    """Bootstrap samples."""
    seed: int = 1


class ExperimentRecipe(Settings, frozen=True):
    """An experiment."""

    name: RecipeName
    sampler: Literal["expert", "policy"] = "expert"
    """Who samples what is learned from: the scripted expert, or the model itself."""
    arms: tuple[Arm, ...] = ARMS
    seeds: tuple[int, ...] = (1,)
    """Of training and of the held-out orders; every arm is trained with each. Held-out worlds are
    the same for all."""
    worlds: tuple[WorldsRecipe, ...] = ()
    orders: OrdersRecipe = OrdersRecipe()
    expert: ExpertRecipe = ExpertRecipe()
    annotator: AnnotatorRecipe = AnnotatorRecipe()
    masks: MasksRecipe = MasksRecipe()
    sft: SftStageRecipe = SftStageRecipe()
    model: ModelRecipe = ModelRecipe()
    statistics: StatisticsRecipe = StatisticsRecipe()
    at_once: PositiveCount = 8
    """Rollouts that run together."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    gpus: SmallCount = 0
    """GPUs of this machine that the experiment's engine and trainer may lease."""
    minutes: PositiveCount = 120
    """Longest time of one stage."""

    @property
    def order_settings(self) -> dict[str, Any]:
        """Settings of every task with orders, but for its steps."""
        chosen = {
            "instructions": self.orders.instructions.strip(),
            "tools": list(self.orders.tools),
            "sleep_seconds": MAX_WAIT_SECONDS if self.orders.agent == "waits" else 0,
        }
        return {
            "answer_tokens": self.model.answer_tokens,
            "temperature": self.model.temperature,
            "sandbox": self.sandbox,
            **{key: value for key, value in chosen.items() if value},
        }


def with_seeds(recipe: ExperimentRecipe, count: int) -> ExperimentRecipe:
    """The recipe with its first `count` seeds; where it has fewer, with the next numbers, too."""
    more = range(max(recipe.seeds) + 1, max(recipe.seeds) + 1 + count)
    return msgspec.structs.replace(recipe, seeds=(*recipe.seeds, *more)[:count])


def packaged_recipes() -> dict[str, Path]:
    """The recipes that come with Houston, by name."""
    return {
        file.stem: file
        for file in sorted(EXPERIMENTS_FOLDER.glob("*.toml"))
        if not file.stem.endswith(("orders", "sft"))
    }


def find_recipe(name: str) -> Path:
    """The file of a recipe, by path or by the name of a packaged one. Raises ConfigurationError."""
    packaged = packaged_recipes()
    if Path(name).is_file():
        return Path(name)
    if name in packaged:
        return packaged[name]
    raise ConfigurationError(
        f"There is no recipe {name}; there are {', '.join(packaged)}, or a file.",
        next=did_you_mean(name, packaged),
        code=ExitCode.NOT_FOUND,
    )


def read_recipe(path: Path) -> ExperimentRecipe:
    """Read and check a recipe. Raises ConfigurationError."""
    recipe = convert_toml(parse_toml(read_text_file(path), str(path)), ExperimentRecipe, str(path))
    names = [worlds.name for worlds in recipe.worlds]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{path}: two of `worlds` have the same name.")
    if not recipe.worlds and not recipe.orders.held_out:
        raise ConfigurationError(f"{path}: nothing is measured: no `worlds`, no `orders`.")
    if not recipe.seeds or len(set(recipe.seeds)) < len(recipe.seeds):
        raise ConfigurationError(f"{path}: `seeds` needs at least one seed, each only once.")
    guided = set(recipe.arms) & {"full", "without-masking"}
    if guided and recipe.worlds and not (recipe.annotator.failing and recipe.annotator.idle):
        raise ConfigurationError(f"{path}: `[annotator]` has no words: `failing` and `idle`.")
    return recipe
