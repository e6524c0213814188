"""The policy-gradient loss: TRL's own on the same batch, and the same however rows are cut."""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from houston_daemon.training.credit.group_advantages import group_advantages
from houston_daemon.training.credit.policy_gradient_rows import sampled_answer_row
from houston_daemon.training.rl.policy_gradient_batches import (
    LossNormalization,
    PolicyGradientRow,
    collate_pass,
    pack_passes,
    rollout_weights,
    split_by_rollout,
)
from houston_daemon.training.rl.policy_gradient_trainer import PolicyGradientTrainer
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run import load_policy_model
from tests.training.sft import tiny

GROUP, GROUPS = 4, 2
REWARDS = (1.0, -1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0)
EPSILON_HIGH = 0.28


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("model"), tie_word_embeddings=False)


def arguments(folder: Path, **more: Any) -> GRPOConfig:
    return GRPOConfig(
        **{
            "output_dir": str(folder / "out"),
            "max_steps": 1,
            "per_device_train_batch_size": GROUP * GROUPS,
            "num_generations": GROUP,
            "loss_type": "dapo",
            "epsilon": 0.2,
            "epsilon_high": EPSILON_HIGH,
            "beta": 0.0,
            "temperature": 1.0,
            "bf16": False,
            "use_cpu": True,
            "gradient_checkpointing": False,
            "report_to": "none",
            "max_completion_length": 16,
            "mask_truncated_completions": False,
        }
        | more
    )


def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def rows(folder: Path, seed: int = 1) -> list[PolicyGradientRow]:
    """Single-turn answers of uneven lengths, as one engine sampled them."""
    draw = random.Random(seed)
    advantages = [
        advantage
        for group in range(GROUPS)
        for advantage in group_advantages(REWARDS[group * GROUP : (group + 1) * GROUP])
    ]
    made = []
    for number, advantage in enumerate(advantages):
        prompt = [2 + number // GROUP, 40, 41]
        completion = [draw.randrange(2, tiny.WORDS) for _ in range(draw.randrange(2, 9))] + [1]
        made.append(
            PolicyGradientRow(
                id=f"r{number}/0.0",
                rollout=f"r{number}",
                prompt=prompt,
                completion=completion,
                mask=[1] * len(completion),
                advantages=[advantage] * len(completion),
                sampled_logprobs=[math.nan] * len(completion),
            )
        )
    return made


def trainer(folder: Path, **more: Any) -> PolicyGradientTrainer:
    recipe = RlRecipe(base=str(folder), precision="fp32", device="cpu")
    return PolicyGradientTrainer(
        model=load_policy_model(recipe, torch.device("cpu")).net,
        arguments=arguments(folder, **more),
        source=lambda step: [],
        keep=1,
        processing_class=tokenizer(folder),
    )


def gradients(trained: Any) -> dict[str, torch.Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in trained.model.named_parameters()
        if parameter.grad is not None
    }


def ours(
    folder: Path,
    some: list[PolicyGradientRow],
    tokens: int = 10_000,
    normalization: LossNormalization = "token",
    moved: float = 0.0,
    **more: Any,
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients; moved: how far weights go after scoring, so that ratios are not 1."""
    trained = trainer(folder, **more)
    weights = rollout_weights(some, normalization)
    passes = [collate_pass(part, weights, 1) for part in pack_passes(some, tokens)]
    trained.score(passes, cap=3.0)
    move(trained.model, moved)
    whole = torch.tensor(float(sum(row.trained for row in some)))
    total = 0.0
    for one in passes:
        loss = trained.compute_loss(trained.model, one | {"num_items_in_batch": whole})
        loss.backward()
        total += float(loss)
    return total, gradients(trained)


def move(net: Any, by: float) -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(by * torch.randn_like(parameter))


def trl_alone(
    folder: Path, some: list[PolicyGradientRow], moved: float
) -> tuple[float, dict[str, torch.Tensor]]:
    """Plain GRPOTrainer, which is given the same answers and rewards and does all the rest."""

    def answers(prompts: list[str], asking: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [row.prompt for row in some],
            "completion_ids": [row.completion for row in some],
            "logprobs": [[0.0] * len(row.completion) for row in some],
        }

    def reward(prompts: list[str], **rest: Any) -> list[float]:
        return list(REWARDS)

    from datasets import Dataset

    trained = GRPOTrainer(
        model=model(folder),
        reward_funcs=reward,
        # Two steps for each generation: then TRL keeps old log-probabilities, as we always do.
        args=arguments(folder, num_iterations=2, per_device_train_batch_size=GROUP * GROUPS),
        train_dataset=Dataset.from_dict({"prompt": ["w2 w40 w41", "w3 w40 w41"]}),
        processing_class=tokenizer(folder),
        rollout_func=answers,
    )
    asked = [{"prompt": p} for p in ["w2 w40 w41"] * GROUP + ["w3 w40 w41"] * GROUP]
    batch = trained._generate_and_score_completions(asked)
    move(trained.model, moved)
    loss = trained.compute_loss(trained.model, batch)
    loss.backward()
    return float(loss), gradients(trained)


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    assert some.keys() == others.keys()
    return all(torch.allclose(some[name], others[name], rtol=1e-4, atol=1e-6) for name in some)


@pytest.mark.parametrize("moved", [0.0, 0.05], ids=["first step", "ratios clipped"])
def test_loss_and_gradient_are_those_of_trl_alone(folder: Path, moved: float) -> None:
    some = rows(folder)
    loss, grads = ours(folder, some, moved=moved)
    wanted, theirs = trl_alone(folder, some, moved)
    assert loss == pytest.approx(wanted, abs=1e-5)
    assert same(grads, theirs)
    assert any(grad.abs().max() > 1e-3 for grad in grads.values())


@pytest.mark.parametrize("normalization", ["token", "rollout"])
def test_the_loss_does_not_depend_on_rows_and_passes(
    folder: Path, normalization: LossNormalization
) -> None:
    """A rollout in one row, or cut into two that train a half each; in one pass, or in many."""
    some = rows(folder)
    cut = []
    for row in some:
        middle = len(row.mask) // 2
        cut.append(replace(row, mask=[*row.mask[:middle], *[0] * (len(row.mask) - middle)]))
        cut.append(replace(row, id=f"{row.id}b", mask=[*[0] * middle, *row.mask[middle:]]))
    whole, grads = ours(folder, some, normalization=normalization, moved=0.05)
    for tokens in (10_000, 30, 1):
        loss, others = ours(folder, cut, tokens, normalization=normalization, moved=0.05)
        assert loss == pytest.approx(whole, abs=1e-5)
        assert same(grads, others)


def test_by_rollout_it_is_the_mean_over_rollouts_of_their_means(folder: Path) -> None:
    """GRPO's normalization, which TRL computes where each rollout is one row."""
    some = rows(folder)
    loss, grads = ours(folder, some, normalization="rollout", moved=0.05)
    trained = trainer(folder, loss_type="grpo")
    batch = collate_pass(some, rollout_weights(some, "token"), 1)
    trained.score([batch], cap=3.0)
    move(trained.model, 0.05)
    trained.current_gradient_accumulation_steps = 1
    wanted = trained.compute_loss(trained.model, batch)
    wanted.backward()
    assert loss == pytest.approx(float(wanted), abs=1e-5)
    assert same(grads, gradients(trained))


def test_recomputed_log_probabilities_are_those_of_a_fresh_pass(folder: Path) -> None:
    """Left padding, several rows in a pass and parts that were not sampled change nothing."""
    some = [
        replace(row, prompt=[2 + number, *row.prompt] * (1 + number % 3))
        for number, row in enumerate(rows(folder))
    ]
    trained = trainer(folder)
    passes = [
        collate_pass(part, rollout_weights(some, "token"), 1) for part in pack_passes(some, 60)
    ]
    alone = [trained.logprobs(one) for one in passes]
    trained.score(passes, cap=3.0)
    assert all(
        torch.equal(found, one["old_per_token_logps"])
        for found, one in zip(alone, passes, strict=True)
    )
    fresh = model(folder).eval()
    for part, one in zip(pack_passes(some, 60), passes, strict=True):
        for row, found in zip(part, one["old_per_token_logps"], strict=True):
            ids = torch.tensor([row.prompt + row.completion])
            with torch.no_grad():
                logits = fresh(ids).logits[0, len(row.prompt) - 1 : -1]
            wanted = logits.log_softmax(-1).gather(-1, torch.tensor(row.completion)[:, None])[:, 0]
            assert torch.allclose(found[: len(row.completion)], wanted, atol=1e-4)


def row_of(name: str, prompt: int, completion: int) -> PolicyGradientRow:
    return sampled_answer_row(name, [2] * prompt, [3] * completion, None, 1.0)


def drawn_rows(seed: int) -> list[PolicyGradientRow]:
    draw = random.Random(seed)
    return [row_of(f"r{n}", draw.randrange(1, 60), draw.randrange(1, 60)) for n in range(30)]


PACKED: dict[str, tuple[list[PolicyGradientRow], int]] = {
    "a long prompt, a long completion": ([row_of("a", 80, 340), row_of("b", 400, 20)], 860),
    **{f"drawn {seed}": (drawn_rows(seed), 400) for seed in range(5)},
}


@pytest.mark.parametrize("case", PACKED)
def test_a_pass_of_several_rows_is_bounded_with_its_padding(case: str) -> None:
    some, most = PACKED[case]
    passes = pack_passes(some, most)
    assert sorted(row.id for part in passes for row in part) == sorted(row.id for row in some)
    for part in passes:
        one = collate_pass(part, rollout_weights(some, "token"), 1)
        tokens = one["prompt_ids"].numel() + one["completion_ids"].numel()
        assert len(part) == 1 or tokens <= most
    drawn = case.startswith("drawn")
    assert not drawn or len(passes) < len(some), "rows still share passes"


def test_the_gap_to_the_engine_weighs_tokens_and_is_bounded(folder: Path) -> None:
    """min(p_trainer / p_engine, cap) scales the advantage; what is not known scales nothing."""
    (row, *_) = rows(folder)
    trained = trainer(folder)
    plain = collate_pass([row], {row.rollout: 1.0}, 1)
    trained.score([plain], cap=3.0)
    old = plain["old_per_token_logps"][0, : len(row.completion)].tolist()
    off = [0.5, -0.5, 5.0, *[math.nan] * (len(old) - 3)]
    said = replace(row, sampled_logprobs=[a - b for a, b in zip(old, off, strict=True)])
    batch = collate_pass([said], {row.rollout: 1.0}, 1)
    gap = trained.score([batch], cap=3.0)
    scaled = [value / row.advantages[0] for value in batch["advantages"][0].tolist()]
    assert scaled[:4] == pytest.approx([math.exp(0.5), math.exp(-0.5), 3.0, 1.0], rel=1e-4)
    assert gap.tokens == 3
    assert gap.truncated == 1
    assert gap.largest == pytest.approx(5.0, rel=1e-4)
    assert gap.mean == pytest.approx(2.0, rel=1e-4)


def test_minibatches_keep_rollouts_whole_and_lose_no_row() -> None:
    some = [
        PolicyGradientRow(f"r{n % 5}/{n}", f"r{n % 5}", [1], [2], [1], [0.5], [math.nan])
        for n in range(13)
    ]
    parts = split_by_rollout(some, 3, seed=4)
    assert sorted(row.id for part in parts for row in part) == sorted(row.id for row in some)
    homes = [{row.rollout for row in part} for part in parts]
    assert len(parts) == 3
    assert sum(map(len, homes)) == 5
    assert split_by_rollout(some, 3, seed=4) == parts
    assert len(split_by_rollout(some[:2], 8, seed=4)) == 2
