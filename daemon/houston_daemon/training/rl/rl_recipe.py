"""The recipe of reinforcement learning: every setting with its default and explanation, and the
packaged recipes.

A recipe is a TOML file with `key=value` settings laid over it. `dapo` and `grpo` differ in a few
keys only. It knows nothing of rollouts and imports no torch.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from houston_daemon.training.credit.group_advantages import (
    MIN_REWARD_STD,
    AdvantageScale,
    RewardKind,
)
from houston_daemon.training.runs.tracker_choice import ReportTo, require_trackers
from houston_daemon.training.sft.sft_recipe import (
    NOTHING_TRAINED_MESSAGE,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitShare,
    read_recipe,
)
from houston_shared.critic_gain import GAIN_SMOOTHING, GainKind
from houston_shared.errors import ConfigurationError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.sample_roles import ROW_ROLES, parse_row_roles
from houston_shared.store.outcome_queries import Overlong
from houston_shared.toml_file import Settings

RECIPES_FOLDER = Path(__file__).parent / "recipes"
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]


class RlRecipe(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a run."""

    base: str = ""
    """Folder of the model that the engine serves, or a policy (`policy@2`) to go on from; empty:
    the engine's model."""
    adapter: str = ""
    """Folder of a LoRA adapter of that model to go on from; a policy that is one fills this in."""
    engine: str = ""
    """Engine of the configuration that samples; empty: the default one."""
    suite: str = ""
    """Suite whose tasks are trained on (`houston suite list`)."""
    tasks: PositiveInt = 10_000
    """How many tasks of its training split; they are drawn by the seed, and may come again."""

    roles: tuple[str, ...] = ROW_ROLES
    """Roles whose answers are trained: `policy` (actions), `summary`."""
    updates: PositiveInt = 30
    """How often the policy is trained and given to the engine."""
    groups: PositiveInt = 16
    """Tasks of one update; each is tried by a group of rollouts."""
    group_size: Annotated[int, msgspec.Meta(ge=2)] = 8
    """Rollouts of each task."""
    minibatches: PositiveInt = 2
    """Shares of the rollouts of one update; each is an optimizer step."""
    iterations: PositiveInt = 1
    """How often an update trains on its rollouts (GRPO's μ). More where sampling takes longest."""
    refill: NonNegativeInt = 2
    """Dynamic sampling: groups whose rewards are all alike are dropped whole and replaced, in so
    many further batches at most; 0: they are dropped and not replaced."""
    ahead: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    """1: the rollouts of the next update begin before this one is trained, so that sampling goes on
    meanwhile; they are one version behind, which importance weights make up for."""

    reward: RewardKind = "binary"
    """`binary`: +1 for a solved task, else -1. `score`: the final score as a share."""
    solved: PositiveFloat = 100.0
    """Least final score that is solved."""
    process_reward: str = ""
    """Process reward model (`prm@2`, of `houston train prm`) that scores every decision; empty: a
    rollout's outcome alone is rewarded."""
    process_weight: UnitShare = 0.5
    """Share of the process reward in a decision's advantage, where there is one; the outcome has
    the rest. 1: the process reward alone."""
    states: tuple[str, ...] = ()
    """Rollouts, or runs of `houston suite run`, whose recorded steps are trained on in place of new
    rollouts: `group_size` decisions are sampled at each of `groups` steps an update and rewarded by
    `process_reward` alone; nothing is done in an environment (AgentFlow-Pro). Empty: rollouts."""
    least_spread: NonNegativeFloat = MIN_REWARD_STD
    """A group whose rewards, the penalty for length aside, have a smaller standard deviation is
    dropped; of outcomes and process rewards, whichever differ less give no advantage. A process
    reward differs by its model's noise where nothing else does, and advantages divided by that
    noise teach it: set this above it."""
    critic: Literal["none", "trained", "frozen"] = "none"
    """ECHO: each task is attempted once, a critic says `group_size` times what was wrong, and as
    many refinements that are told it are what the policy is trained on. `trained`: the critic is,
    too, on what its critiques gained; `frozen`: it stays as it began."""
    critic_policy: str = ""
    """Adapter of the same base model that the critic begins as; empty: the base model."""
    critic_engine: str = ""
    """Engine that a frozen critic is asked on, also a chat endpoint; empty: the one that is
    trained."""
    critic_template: str = ""
    """File with the critic's words (`houston critique --print-template`); empty: the packaged."""
    gain: GainKind = "saturation"
    """What a critique is worth, by the scores before and after it (`saturation`, `linear`)."""
    gain_smoothing: PositiveFloat = GAIN_SMOOTHING
    """η of the gain `saturation`."""
    scale: AdvantageScale = "group"
    """Divide advantages by the standard deviation of their group, or not at all (`none`)."""
    normalization: Literal["token", "rollout"] = "token"
    """`token`: every trained token weighs alike (DAPO). `rollout`: every rollout does (GRPO)."""
    clip_low: PositiveFloat = 0.2
    """A token's probability ratio is clipped at 1 - clip_low."""
    clip_high: PositiveFloat = 0.28
    """And at 1 + clip_high."""
    kl: NonNegativeFloat = 0.0
    """Weight of the divergence from the policy that the run began from."""
    importance_cap: PositiveFloat = 3.0
    """Most that a token's importance weight, trainer's over engine's probability, may be."""
    overlong_filter: tuple[Overlong, ...] = ("answer",)
    """Rollouts that a limit broke off are not trained, but count in their group: with an `answer`
    cut at its limit of tokens, a tool's `result` cut because it was too long for an observation, or
    its `budget` of steps or time spent. Where tools say much, `result` leaves hardly a rollout;
    where a task is failed by running out of steps, `budget` leaves hardly a failure."""
    overlong_limit: NonNegativeInt = 0
    """Tokens of a rollout's context from which the reward is one less; 0: no such penalty."""
    overlong_margin: PositiveInt = 64
    """Tokens before that over which the penalty grows."""
    purify: UnitShare = 0.0
    """Share of the rollouts that are purified: failed calls are replaced by their corrections
    (CLEANER's SAAR). Validation is never purified."""
    purify_retries: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    """Most corrections that are sampled for one step."""
    purify_similarity: UnitShare = 0.5
    """From this likeness of failed and corrected call on, the first thought is kept."""
    purify_gate: NonNegativeFloat = 0.0
    """Least ratio of a correction's probability in the purified context to that in the context of
    the failure, geometric mean over its tokens, from which the purified step is trained; below,
    what was sampled is. 0: no gate. CLEANER's authors: 0.5."""

    full: bool = False
    """Train all weights; otherwise a LoRA adapter, which the engine loads while it runs. Each
    version is a whole model, for which the daemon starts an engine: seconds for a small one, and
    the size of the model on the disk."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter; vLLM takes up to 16 unless it is told otherwise."""
    lora_alpha: PositiveInt = 32
    """Its scale is lora_alpha / lora_rank."""
    lora_targets: str | tuple[str, ...] = "all-linear"
    """Modules with an adapter: all linear ones except the head, or their names."""
    learning_rate: PositiveFloat = 1e-5
    """After the warm-up."""
    schedule: Literal["constant", "linear"] = "constant"
    """How the rate falls: not at all, or to 0."""
    warmup_steps: NonNegativeInt = 0
    """Optimizer steps in which the rate rises from 0."""
    weight_decay: NonNegativeFloat = 0.0
    """Of AdamW."""
    max_grad_norm: NonNegativeFloat = 1.0
    """Gradients are scaled down to this norm; 0: never."""
    pass_tokens: PositiveInt = 8192
    """Tokens of one forward and backward pass with their padding. What memory allows."""
    seed: NonNegativeInt = 0
    """Of the tasks, the rollouts, the minibatches and the adapter's start."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 multiplies in bfloat16; auto: where the device does that fast."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: a GPU where one can be seen."""
    gradient_checkpointing: bool = False
    """Keep fewer activations and compute them again: less memory, a third more time."""
    report_to: ReportTo = "auto"
    """Trackers that are told every figure as well: `trackio`, `wandb`, `tensorboard`, or several of
    them as a list. `auto`: trackio where it is installed. `none`: nobody."""
    save_updates: PositiveInt = 1
    """Write a checkpoint every so many updates; what comes after the last one is sampled and
    trained again where a run is killed."""
    keep_checkpoints: PositiveInt = 2
    """Older ones are removed."""
    evaluate_updates: NonNegativeInt = 0
    """Measure the policy on validation tasks before every so many updates, and at the end; 0:
    never. The run says which version solved most."""
    evaluate_tasks: PositiveInt = 64
    """Validation tasks, one rollout each, the same every time."""

    @property
    def max_groups(self) -> int:
        """Groups that one update samples at most, with those that replace dropped ones."""
        return self.groups * (self.refill + 1)

    @property
    def update_steps(self) -> int:
        """Optimizer steps of one update."""
        return self.minibatches * self.iterations

    @property
    def asked_critic_engine(self) -> str:
        """The engine that the critic is asked on."""
        return self.critic_engine or self.engine

    @property
    def first_critic(self) -> str:
        """As what the critic begins: a policy, its own engine's model, or `base`."""
        return self.critic_policy or self.critic_engine or BASE_MODEL


def load_rl_recipe(name: str, settings: list[str]) -> RlRecipe:
    """A named recipe or a file, with `key=value` settings laid over it. Raises ConfigurationError.

    A value is read as TOML (`2e-4`, `true`), and as text where it is none.
    """
    recipe = read_recipe(name, RECIPES_FOLDER, settings, RlRecipe)
    parse_row_roles(recipe.roles, NOTHING_TRAINED_MESSAGE)
    _check_clashes(recipe)
    require_trackers(recipe.report_to)
    return recipe


def _check_clashes(recipe: RlRecipe) -> None:
    """Raise ConfigurationError for settings that exclude each other."""
    clashes = {
        "states needs process_reward: nothing else rewards a decision": recipe.states
        and not recipe.process_reward,
        "states samples decisions at recorded steps: there is nothing to purify, and nothing to"
        " begin ahead": recipe.states and (recipe.purify or recipe.ahead),
        "purify_gate decides by weights which step is trained, and process_reward scores the one"
        " that counts": recipe.process_reward and recipe.purify_gate,
        "critic rewards rollouts by their scores: there is no process_reward with it, and nothing"
        " to begin ahead": recipe.critic != "none" and (recipe.process_reward or recipe.ahead),
        "full gives each version an engine of its own, and a critic or states are asked on the"
        " run's": recipe.full and (recipe.critic != "none" or recipe.states),
        "critic_policy needs a critic: critic = trained or frozen": recipe.critic_policy
        and recipe.critic == "none",
        "critic_engine is for a critic that is not trained: critic = frozen": recipe.critic_engine
        and recipe.critic != "frozen",
    }
    for clash, applies in clashes.items():
        if applies:
            raise ConfigurationError(
                f"{clash}.", NOTHING_TRAINED_MESSAGE, "houston train dapo --help; docs/rl-recipe.md"
            )
