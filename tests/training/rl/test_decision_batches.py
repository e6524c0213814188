"""Decisions sampled at recorded states and rewarded alone: a real engine, a real journal."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from houston_daemon.engines.engine_protocol import EngineSample
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.suites.suite_run import suites_folder
from houston_daemon.training.rl.decision_batches import (
    DecisionBatches,
    DecisionGroup,
    SampledDecision,
    decision_rows,
)
from houston_daemon.training.rl.engine_sampler import EngineSampler
from houston_daemon.training.rl.policy_gradient_trainer import NO_GAP, EngineGap, Pass
from houston_daemon.training.rl.recorded_states import (
    RecordedState,
    StateKey,
    draw_states,
    list_states,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe, load_rl_recipe
from houston_shared.config import Configuration, LoadedConfiguration, load_configuration
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.records import ContextHead, SampleBody, ToolCall
from houston_shared.store.store_reader import Reader
from tests.support.station import Station
from tests.support.tiny_policies import tiny_policy

RECIPE = RlRecipe(
    groups=6, group_size=4, refill=0, minibatches=1, states=("collect",), process_reward="prm@1"
)


def decision(score: float, ids: Sequence[int] = (5, 3), finished: bool = True) -> SampledDecision:
    return SampledDecision(list(ids), [-0.5] * len(ids), finished, True, score)


def test_a_decision_is_read_with_the_reasoning_that_its_prompt_opened() -> None:
    tool = ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}})
    head = ContextHead(
        system="s",
        task="t",
        tools=(tool.openai(),),
        rendered="",
        token_ids=(1,),
        dialect="glm-5",
        tokenizer="tokenizer.json",
    )
    call = ToolCall(id="1.0", name="read", arguments={"path": "a"})
    said = choose_dialect("glm-5", reasoning=True).assistant("why", [call])[:-1]
    sampled = EngineSample(text="".join(piece.text for piece in said), finish_reason="stop")
    asked = SampleBody(
        role="policy", parent_seq=None, kept=0, new_prompt_ids=(1,), token_ids=(2,), logprobs=None,
        logprob_kind="none", finish_reason="stop", policy="", engine="e", parameters={},
        drift="forked", thought="", calls=(),
    )  # fmt: skip
    state = RecordedState(StateKey("r", 1), [1], asked, head, True, ())
    assert state.decision(sampled).text.endswith("the decision:\nwhy\nread a")


def group(*decisions: SampledDecision) -> DecisionGroup:
    return DecisionGroup("r", 2, [1, 8, 44, 2], decisions)


def test_a_decision_is_compared_with_the_others_at_its_state() -> None:
    """Scores 1 and 0: mean 0.5, std 0.5 ** 0.5."""
    rows = decision_rows(group(decision(1.0), decision(0.0, [6, 7, 3])), RECIPE)
    advantage = 0.5 / (0.5**0.5 + 1e-4)
    assert [row.advantages for row in rows] == [
        [pytest.approx(advantage)] * 2,
        [pytest.approx(-advantage)] * 3,
    ]
    assert {tuple(row.prompt) for row in rows} == {(1, 8, 44, 2)}
    assert [row.mask for row in rows] == [[1, 1], [1, 1, 1]]
    assert len({row.rollout for row in rows}) == 2, "each weighs as one where rollouts do"


def test_a_decision_that_was_cut_counts_in_its_group_and_is_not_trained() -> None:
    kept = group(decision(1.0), decision(0.0, finished=False), decision(0.5))
    assert [row.id for row in decision_rows(kept, RECIPE)] == ["r/2.0", "r/2.2"]
    whole = replace_recipe(overlong_filter=())
    assert len(decision_rows(kept, whole)) == 3


def replace_recipe(**changes: object) -> RlRecipe:
    return msgspec.structs.replace(RECIPE, **changes)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (['states=["a"]'], "states needs process_reward"),
        (['states=["a"]', "process_reward=prm", "purify=0.7"], "nothing to purify"),
        (['states=["a"]', "process_reward=prm", "ahead=1"], "begin ahead"),
        (["process_reward=prm", "purify_gate=0.5"], "purify_gate decides by weights"),
        (["updatez=3"], "^--set has an unknown key `updatez`"),
        (["full=true", "critic=frozen"], "an engine of its own"),
        (["full=true", 'states=["a"]', "process_reward=prm"], "an engine of its own"),
    ],
)
def test_settings_that_are_none_or_clash_are_refused(settings: list[str], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        load_rl_recipe("small", settings)


class WordJudge:
    """Says of a decision whether it opens a box: a process reward model that anyone can check."""

    def score(self, texts: Sequence[str]) -> list[float]:
        self.texts = list(texts)
        return [float(text.splitlines()[-1].startswith("open ")) for text in texts]


class CountingScorer:
    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        self.rows = sum(len(one_pass["prompt_ids"]) for one_pass in passes)
        return NO_GAP

    def logprobs(self, one_pass: Pass) -> torch.Tensor:
        raise AssertionError("nothing was purified")


class NoSampler(EngineSampler):
    def __init__(self) -> None:
        pass

    def sample(self, *asked: object) -> list[EngineSample]:
        raise AssertionError("these decisions were sampled before")


@pytest.mark.parametrize(
    ("filtered", "overlong"), [(("answer",), 1), ((), 0)], ids=["filtered", "trained"]
)
def test_a_cut_decision_counts_as_left_out_only_where_it_is(
    tmp_path: Path, filtered: tuple[str, ...], overlong: int
) -> None:
    recipe = replace_recipe(groups=1, overlong_filter=filtered)
    kept = [group(decision(1.0), decision(0.0, finished=False), decision(0.5))]
    (tmp_path / "0.0.json").write_bytes(msgspec.json.encode(kept))  # sampled before
    loaded = LoadedConfiguration(Configuration(), Home(tmp_path), "defaults")
    states, scorer = [StateKey("r", 2)], CountingScorer()
    batches = DecisionBatches(loaded, recipe, states, NoSampler(), WordJudge(), scorer, 0, tmp_path)
    assert batches.make(0, "base").figures.overlong == overlong
    assert scorer.rows == 3 - overlong


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy("medium", tmp_path_factory)


@pytest.fixture
def loaded(station: Station, model: Path) -> LoadedConfiguration:
    """A home with the rollouts of six worlds, sampled by the model's engine."""
    station.home.mkdir(parents=True, exist_ok=True)
    file = station.home / "houston.toml"
    file.write_text(f'[engines.tiny]\nkind = "embedded"\nmodel = "{model}"\ndialect = "words"\n')
    station.start()
    words = ("suite", "run", "word-worlds", "--engine", "tiny", "--split", "train", "-n", "6")
    station.run(*words, "--name", "collect", timeout=280)
    return load_configuration(str(station.home), str(file))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_decisions_are_sampled_at_recorded_prompts_and_kept(
    loaded: LoadedConfiguration, model: Path, tmp_path: Path
) -> None:
    with Reader(loaded.home) as reader:
        states = list_states(
            reader, ["collect"], suites_folder(loaded.home), model / "tokenizer.json"
        )
    assert len({state.rollout for state in states}) == 6
    assert (
        draw_states(states, 1, 0, 6) == draw_states(states, 1, 0, 6) != draw_states(states, 1, 1, 6)
    )
    judge, scorer = WordJudge(), CountingScorer()
    sampler = EngineSampler(loaded, "tiny", lambda: False, lambda line: None)
    kept = tmp_path / "decisions"
    batch = DecisionBatches(loaded, RECIPE, states, sampler, judge, scorer, 0, kept).make(0, "base")

    assert batch.figures.groups == 6
    assert batch.figures.rollouts == 24
    assert batch.figures.process_reward == pytest.approx(batch.figures.reward)
    assert scorer.rows == 4 * (6 - batch.figures.zero_variance)
    passes = [one_pass for part in batch.parts for one_pass in part]
    assert sum(int(one_pass["tool_mask"].sum()) for one_pass in passes) == batch.trained
    they_are_what_the_model_says(model, passes)

    again = DecisionBatches(loaded, RECIPE, states, NoSampler(), judge, scorer, 0, kept)
    same = again.make(0, "base")
    assert [one_pass["completion_ids"].tolist() for part in same.parts for one_pass in part] == [
        one_pass["completion_ids"].tolist() for one_pass in passes
    ]


def they_are_what_the_model_says(model: Path, passes: Sequence[Pass]) -> None:
    """The engine's log-probabilities are those of a fresh forward pass (1e-4, fp32)."""
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    for one_pass in passes:
        for row in range(len(one_pass["prompt_ids"])):
            prompt = one_pass["prompt_ids"][row][one_pass["prompt_mask"][row] > 0]
            completion = one_pass["completion_ids"][row][one_pass["completion_mask"][row] > 0]
            with torch.no_grad():
                logits = net(torch.cat([prompt, completion])[None]).logits[0].float()
            logps = logits[len(prompt) - 1 : -1].log_softmax(-1)
            fresh = logps.gather(-1, completion[:, None])[:, 0]
            sampled = one_pass["sampling_per_token_logps"][row][: len(completion)]
            assert torch.allclose(fresh, sampled, atol=1e-4)
