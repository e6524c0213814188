"""Makes the folder of a run of reinforcement learning.

It checks everything that can be checked before a trainer starts: engine, suite, the policy to start
from, and whether the result could be registered and loaded. A new folder is complete or absent. It
imports no torch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.engines.hub_downloads import fetched_engine
from houston_daemon.engines.local_model import model_path
from houston_daemon.suites.suite_catalog import WORDS, Suite, find_suite
from houston_daemon.training.policies import policy_constraints, policy_files
from houston_daemon.training.prm.reward_policy import find_reward_policy
from houston_daemon.training.rl.rl_recipe import RlRecipe, load_rl_recipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec, critic_family
from houston_daemon.training.runs.run_folder import new_run_name
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError, UsageError
from houston_shared.policy_and_run_files import (
    DEFAULT_FAMILY,
    check_family_name,
    is_policy_name,
    parse_policy_name,
    training_folder,
)
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import RunKind

RUN_KIND: RunKind = "dapo"
"""Kind of every run of this trainer, in the journal."""
TRAINED_ENGINES = ("embedded", "vllm")
"""Kinds of engines that return token ids with log-probabilities and load adapters."""


class RlRequest(NamedTuple):
    """What the command line said."""

    algorithm: str
    """`dapo` or `grpo`: begins the name of the run."""
    suite: str
    recipe: str
    settings: Sequence[str]
    engine: str
    """Empty for the default one."""
    base: str
    """Policy to go on from; empty for the engine's own model."""
    name: str
    """Family of the policies; empty for that of the policy that it goes on from."""


def read_asked_recipe(request: RlRequest) -> RlRecipe:
    """The recipe with its suite. Raises HoustonError (2) where none is named; nothing of the home
    is looked at."""
    recipe = load_rl_recipe(request.recipe, list(request.settings))
    named = request.suite or recipe.suite
    if not named:
        raise UsageError(
            "No suite is named to train on.",
            NOTHING_TRAINED_MESSAGE,
            f"houston train {request.algorithm} --suite SUITE; houston suite list says which",
        )
    return msgspec.structs.replace(recipe, suite=find_suite(named).name)


def create_rl_run(
    loaded: LoadedConfiguration, request: RlRequest, requested_recipe: RlRecipe
) -> RlRunFolder:
    """Make the folder of a new run. requested_recipe: as `read_asked_recipe` gives it. Raises
    HoustonError; nothing then stays."""
    recipe, parent = _resolved_recipe(loaded, request, requested_recipe)
    family = request.name or (parse_policy_name(parent).family if parent else DEFAULT_FAMILY)
    families = {family: parent}
    if recipe.critic == "trained":
        families[critic_family(family)] = recipe.critic_policy
    for name in families:
        check_family_name(name)
    base_hash = policy_files.model_hash(Path(recipe.base), loaded.home)
    with Reader(loaded.home) as reader:
        policies = reader.run(policy_queries.list_policies())
        active = reader.run(policy_queries.find_active_policy(recipe.engine))
    for name, origin in families.items():
        policy_constraints.check_family_lineage(
            policies, name, recipe.base, base_hash, origin, NOTHING_TRAINED_MESSAGE
        )
    run = new_run_name(request.algorithm)
    spec = RlRunSpec(
        run=run,
        name=family,
        parent=parent,
        home=str(loaded.home.path),
        recipe=recipe,
        base_hash=base_hash,
        active_before=active,
    )
    folder = RlRunFolder(training_folder(loaded.home) / run)
    folder.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.path.mkdir(mode=0o700)
    folder.write_spec(spec)
    return folder


def _resolved_recipe(
    loaded: LoadedConfiguration, request: RlRequest, recipe: RlRecipe
) -> tuple[RlRecipe, str]:
    """The recipe with what command line and configuration fill in, and the policy that it goes on
    from; empty for none. Raises HoustonError."""
    engine = request.engine or recipe.engine or loaded.config.default_engine
    settings = fetched_engine(loaded, engine, command_output.print_note)
    require_trained_engine(engine, settings, recipe.full)
    _require_suite_dialect(find_suite(recipe.suite), engine, settings.dialect)
    parent = request.base or recipe.base
    base, adapter = trained_base(loaded, settings, parent)
    if recipe.full and recipe.kl and adapter:
        raise UsageError(
            f"kl would measure the divergence from {base}, not from its adapter {parent}, where the"
            " run starts.",
            NOTHING_TRAINED_MESSAGE,
            f"--set kl=0; or houston policy merge {parent} --out DIR, and serve DIR with an engine",
        )
    if recipe.critic_engine:
        fetched_engine(loaded, recipe.critic_engine, command_output.print_note)
    recipe = msgspec.structs.replace(
        recipe,
        base=str(base),
        adapter=adapter,
        engine=engine,
        process_reward=_full_reward_name(loaded, recipe.process_reward),
        critic_policy=_critic_name(loaded, recipe),
    )
    return recipe, parent


def _full_reward_name(loaded: LoadedConfiguration, name: str) -> str:
    """The process reward model of that name or family, as `prm@2`; empty for none. Raises
    HoustonError for a policy of another kind."""
    if not name:
        return ""
    with Reader(loaded.home) as reader:
        return find_reward_policy(loaded.home, reader, name, "process_reward").name


def _critic_name(loaded: LoadedConfiguration, recipe: RlRecipe) -> str:
    """The policy that the critic begins as; empty for the base model. Raises HoustonError for one
    that is no adapter of the base model, unless it is asked on an engine of its own."""
    if not recipe.critic_policy:
        return ""
    begun = policy_files.named_policy(loaded.home, recipe.critic_policy)
    if recipe.critic_engine:
        return begun.policy.name
    if begun.policy.kind == "base" and begun.base == Path(recipe.base):
        return ""
    if begun.policy.kind != "lora" or begun.base != Path(recipe.base):
        raise UsageError(
            f"{recipe.critic_policy} is not an adapter of {recipe.base}: policy and critic"
            " share one base model.",
            NOTHING_TRAINED_MESSAGE,
            "houston policy list",
        )
    return begun.policy.name


def require_trained_engine(name: str, settings: EngineSettings, full: bool = False) -> None:
    """Raise HoustonError for an engine whose samples cannot be trained on. full: whether all
    weights are trained, which an engine that somebody else keeps cannot be given."""
    if full and settings.kind in TRAINED_ENGINES:
        if not settings.addressed:
            return
        raise UsageError(
            f"Engine {name} is reached by its URL: the daemon cannot start it with other weights.",
            NOTHING_TRAINED_MESSAGE,
            "Train an adapter (full = false), or name an engine that the daemon starts: --engine",
        )
    if settings.kind not in TRAINED_ENGINES or not settings.lora:
        raise UsageError(
            f"Engine {name} ({settings.kind}) gives no token ids, or loads no adapters: a policy"
            " in training cannot sample with it.",
            NOTHING_TRAINED_MESSAGE,
            f"Name an engine of kind {' or '.join(TRAINED_ENGINES)} with --engine",
        )


def _require_suite_dialect(suite: Suite, engine: str, dialect: str) -> None:
    """Raise HoustonError where a language model would play worlds of words, or a tiny policy tasks
    of another kind: no rollout would solve one, and nothing be learned."""
    if suite.dialect == dialect or WORDS not in (suite.dialect, dialect):
        return
    tiny = suite.dialect == WORDS
    raise UsageError(
        f"The tasks of {suite.name} are for the dialect {suite.dialect}, and engine {engine} writes"
        f" {dialect}: no rollout would solve one.",
        NOTHING_TRAINED_MESSAGE,
        "houston policy tiny --out DIR makes a policy for them and says which engine it needs"
        " (--engine); or name a suite for language models: houston suite list"
        if tiny
        else "Name a suite of word tasks: houston suite list; or another engine: --engine",
    )


def trained_base(
    loaded: LoadedConfiguration, settings: EngineSettings, parent: str
) -> tuple[Path, str]:
    """The folder of the engine's model, and of the adapter to go on from; empty for none.

    parent: policy to go on from; empty for the engine's model. Raises HoustonError.
    """
    if parent and not is_policy_name(parent):
        raise UsageError(
            f"{parent} is not a policy: --base takes one of the engine's policies; without it, the"
            " engine's own model is trained.",
            NOTHING_TRAINED_MESSAGE,
            "houston policy list",
        )
    model = Path(settings.model) if settings.model else model_path()
    if model is None or not (model / "config.json").is_file():
        raise HoustonError(
            f"The model of the engine is not a folder on this machine: {model or 'none'}.",
            NOTHING_TRAINED_MESSAGE,
            "houston doctor --fetch-model, or name its folder in [engines.NAME] model",
        )
    if not parent:
        return model.absolute(), ""
    begun = policy_files.named_policy(loaded.home, parent)
    if begun.policy.kind == "full":
        raise HoustonError(
            f"{parent} has full weights and needs a separate engine.",
            NOTHING_TRAINED_MESSAGE,
            f'Set model = "{begun.folder}" in [engines.NAME] and take --engine NAME without --base',
        )
    if begun.policy.kind == "base":
        return model.absolute(), ""
    return begun.base, str(begun.folder)
