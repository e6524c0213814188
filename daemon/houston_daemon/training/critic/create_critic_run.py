"""Makes the folder of a run that trains a critic on what people said.

It reads the journal, makes the rows with the same prompt that a critic gets, and checks what can be
checked before a trainer starts. A new folder is complete or absent. It imports no torch.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.engines.hub_downloads import fetched_engine
from houston_daemon.engines.local_model import configured_window
from houston_daemon.prompts.dialect_protocol import Dialect
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.review.critic.critique_prompt import (
    Attempt,
    CritiqueTemplate,
    critique_prompt,
    load_critique_template,
)
from houston_daemon.review.judge.judge_engine import DEFAULT_CHAT_WINDOW
from houston_daemon.training.critic.critic_recipe import CriticRecipe, CriticRow, critic_recipe
from houston_daemon.training.critic.people_examples import (
    PeopleExample,
    PeopleExamples,
    read_people_examples,
    require_examples,
    rollouts_with_words,
)
from houston_daemon.training.policies import policy_constraints, policy_files
from houston_daemon.training.rl.create_rl_run import require_trained_engine, trained_base
from houston_daemon.training.runs.run_folder import TrainingRunFolder, TrainingRunSpec, new_run_name
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.policy_and_run_files import check_family_name, training_folder
from houston_shared.store import policy_queries, rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import RunKind

RUN_KIND: RunKind = "echo"
DEFAULT_FAMILY = "critic"
UNKNOWN_REASON = "A person who watched the agent said so."
"""In the critic's form where nobody gave one."""


class CriticRunSpec(TrainingRunSpec[CriticRecipe], frozen=True, kw_only=True):
    """`recipe.json`."""

    parent: str
    """The policy that it begins from; empty for the engine's own model."""
    rows_hash: str
    """SHA-256 of the rows."""


class CriticResult(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json` of a finished run."""

    messages: int
    pairs: int
    steps: int
    seconds: float
    loss_first: float
    loss_last: float
    preferred_before: float | None
    """Share of the pairs of which the model found the person's words the likelier ones, per token;
    None without pairs."""
    preferred_after: float | None


class CriticRunFolder(TrainingRunFolder):
    """Paths and small files of a run."""

    train_command = "houston train echo"

    @property
    def rows(self) -> Path:
        """What it is trained on."""
        return self.path / "rows.jsonl"

    def read_rows(self) -> list[CriticRow]:
        """In their order."""
        lines = self.rows.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=CriticRow) for line in lines]

    @property
    def spec(self) -> CriticRunSpec:
        """What was asked. Raises HoustonError where this is no folder of such a run."""
        return self._read_spec(CriticRunSpec, "a critic's training")

    @property
    def result(self) -> CriticResult:
        """Of a finished run. Raises OSError where there is none."""
        return msgspec.json.decode((self.path / "result.json").read_bytes(), type=CriticResult)


class CriticRequest(NamedTuple):
    """What the command line said."""

    rollouts: Sequence[str]
    """Ids or starts of them; none: every rollout to which somebody spoke."""
    settings: Sequence[str]
    engine: str
    """Empty for the default one."""
    base: str
    """Policy to go on from; empty for the engine's own model."""
    name: str
    """Family of the policy; empty for `critic`."""


def create_critic_run(
    loaded: LoadedConfiguration, request: CriticRequest
) -> tuple[CriticRunFolder, PeopleExamples]:
    """Make the folder of a new run; also what people taught. Raises HoustonError."""
    recipe = critic_recipe(list(request.settings))
    engine = request.engine or loaded.config.default_engine
    settings = fetched_engine(loaded, engine, command_output.print_note)
    require_trained_engine(engine, settings)
    base, adapter = trained_base(loaded, settings, request.base)
    recipe = msgspec.structs.replace(recipe, base=str(base), adapter=adapter)
    family = request.name or DEFAULT_FAMILY
    check_family_name(family)
    base_hash = policy_files.model_hash(base, loaded.home)
    with Reader(loaded.home) as reader:
        policies = reader.run(policy_queries.list_policies())
        policy_constraints.check_family_lineage(
            policies, family, recipe.base, base_hash, request.base, NOTHING_TRAINED_MESSAGE
        )
        named = [reader.run(rollout_queries.resolve_rollout_id(name)) for name in request.rollouts]
        examples = read_people_examples(reader, named or rollouts_with_words(reader))
    require_examples(examples)
    rows = make_rows(examples, recipe, RowMaker(recipe, settings))
    run = new_run_name("critic")
    folder = CriticRunFolder(training_folder(loaded.home) / run)
    folder.path.mkdir(mode=0o700, parents=True)
    folder.rows.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    folder.write_spec(
        CriticRunSpec(
            run=run,
            name=family,
            parent=request.base,
            home=str(loaded.home.path),
            recipe=recipe,
            base_hash=base_hash,
            rows_hash=policy_files.hash_file(folder.rows),
        )
    )
    return folder, examples


class RowMaker:
    """Prompts and answers of a critic as ids of one model."""

    def __init__(self, recipe: CriticRecipe, settings: EngineSettings) -> None:
        """settings: of the engine, which has the critic's window and dialect."""
        base = Path(recipe.base)
        self._tokens = PromptTokenizer(str(base / "tokenizer.json"))
        self._dialect: Dialect = choose_dialect(settings.dialect or "chatml-json")
        own = Path(recipe.template) if recipe.template else None
        self._template: CritiqueTemplate = load_critique_template(own, self._dialect.name)
        self.window = settings.window or configured_window(base) or DEFAULT_CHAT_WINDOW
        """Tokens of a prompt and its answer, as the engine will have them."""

    def prompt(self, attempt: Attempt) -> list[int]:
        """What a critic is given."""
        critique = critique_prompt(attempt, self._template, self._tokens, self.window)
        return list(self._tokens.encode(self._dialect.question(critique.system, critique.message)))

    def answer(self, text: str, reason: str = "") -> list[int]:
        """Words as a critic says them, with the token that ends an answer."""
        if self._template.answer == "tags":
            why = reason or UNKNOWN_REASON
            text = f"<reason>{why}</reason>\n<critic>{text}</critic>"
        return list(self._tokens.encode(self._dialect.assistant(text, ())))


def make_rows(examples: PeopleExamples, recipe: CriticRecipe, maker: RowMaker) -> list[CriticRow]:
    """A row for each message with its weight, and for each pair."""
    weights = message_weights(examples.said, recipe)
    rows = [
        CriticRow(
            rollout=example.rollout,
            prompt=maker.prompt(example.attempt),
            answer=maker.answer(example.said, example.reason),
            weight=weight,
            gain=example.gain,
            author=example.author,
        )
        for example, weight in zip(examples.said, weights, strict=True)
    ]
    pairs = examples.pairs if recipe.preference_weight else []
    return rows + [
        CriticRow(
            rollout=pair.rollout,
            prompt=maker.prompt(pair.attempt),
            answer=maker.answer(pair.preferred),
            rejected=maker.answer(pair.drafted),
        )
        for pair in pairs
    ]


def message_weights(examples: Sequence[PeopleExample], recipe: CriticRecipe) -> list[float]:
    """What each message weighs by its gain, at most `most_weight`."""
    gains = [example.gain for example in examples if example.gain is not None]
    mean = statistics.fmean(gains) if gains else 0.0
    most = math.log(recipe.most_weight)  # before it is a power: that could be no number
    return [
        1.0
        if example.gain is None
        else math.exp(min(most, (example.gain - mean) / recipe.gain_temperature))
        for example in examples
    ]
