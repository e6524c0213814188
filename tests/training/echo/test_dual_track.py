"""Both tracks of ECHO against its equations 4 to 9, written out in plain torch."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from houston_daemon.training.credit.group_advantages import group_advantages
from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.echo.adapter_track import AdapterTrack
from houston_daemon.training.rl.policy_gradient_batches import (
    collate_pass,
    pack_passes,
    rollout_weights,
)
from houston_daemon.training.rl.policy_gradient_trainer import (
    Pass,
    PassSource,
    PolicyGradientTrainer,
)
from houston_shared.critic_gain import critique_gain
from tests.training.rl.test_policy_gradient_loss import arguments, model, tokenizer
from tests.training.sft import tiny

EPSILON, BETA, RATE, NORM = 0.2, 0.05, 0.5, 1.0
BEFORE = (0.25, 0.9)
"""s₀ of two tasks."""
AFTER = ((0.0, 0.25, 0.5, 1.0), (0.9, 1.0, 0.95, 0.2))
"""s_r of the four refinements of each."""
STEPS = 3
"""Optimizer steps on one batch: from the second on ratios are not 1, and some are clipped."""
LORA = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("model"), tie_word_embeddings=False)


def rows(name: str, groups: Sequence[Sequence[float]], seed: int) -> list[PolicyGradientRow]:
    """One answer for each reward, of uneven lengths, behind a prompt of its group."""
    draw = random.Random(seed)
    made = []
    for group, rewards in enumerate(groups):
        for number, advantage in enumerate(group_advantages(rewards)):
            ids = [draw.randrange(2, tiny.WORDS) for _ in range(draw.randrange(1, 9))] + [1]
            made.append(
                PolicyGradientRow(
                    id=f"{name}{group}.{number}",
                    rollout=f"{name}{group}.{number}",
                    prompt=[2 + group, 40, 41 + seed],
                    completion=ids,
                    mask=[1] * len(ids),
                    advantages=[advantage] * len(ids),
                    sampled_logprobs=[math.nan] * len(ids),
                )
            )
    return made


def gains() -> list[list[float]]:
    pairs = zip(BEFORE, AFTER, strict=True)
    return [[critique_gain(before, after) for after in group] for before, group in pairs]


POLICY_ROWS, CRITIC_ROWS = rows("p", AFTER, 1), rows("c", gains(), 2)


def passes(some: list[PolicyGradientRow]) -> list[Pass]:
    weights = rollout_weights(some, "rollout")
    whole = torch.tensor(float(sum(row.trained for row in some)))
    return [
        collate_pass(part, weights, 1) | {"num_items_in_batch": whole}
        for part in pack_passes(some, 60)
    ]


def made(folder: Path, source: PassSource = lambda step: []) -> PolicyGradientTrainer:
    torch.manual_seed(3)
    return PolicyGradientTrainer(
        model=model(folder),
        arguments=arguments(
            folder,
            epsilon=EPSILON,
            epsilon_high=EPSILON,
            beta=BETA,
            use_bias_correction_kl=False,
            learning_rate=RATE,
            optim="sgd",
            lr_scheduler_type="constant",
            max_grad_norm=NORM,
            max_steps=STEPS,
            per_device_train_batch_size=2,
            num_generations=2,
            save_strategy="no",
            disable_tqdm=True,
        ),
        source=source,
        keep=1,
        processing_class=tokenizer(folder),
        peft_config=LORA,
    )


def adapter(of: Any, name: str) -> dict[str, torch.Tensor]:
    """Weights of an adapter of a PEFT model, by module."""
    return {
        key.replace(f".{name}.", "."): value.detach().clone()
        for key, value in of.named_parameters()
        if f".{name}." in key
    }


def by_the_paper(
    folder: Path, start: dict[str, torch.Tensor], some: list[PolicyGradientRow]
) -> dict[str, torch.Tensor]:
    """An adapter after `STEPS` steps down minus eq. 9, row by row."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    net = get_peft_model(base, LORA)
    net.eval()
    own = {key: value for key, value in net.named_parameters() if ".default." in key}
    with torch.no_grad():
        for key, value in own.items():
            value.copy_(start[key.replace(".default.", ".")])

    def logprobs(row: PolicyGradientRow) -> torch.Tensor:
        ids = torch.tensor([row.prompt + row.completion])
        logits = net(ids).logits[0, len(row.prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(1, ids[0, len(row.prompt) :, None])[:, 0]

    with torch.no_grad():
        old = [logprobs(row) for row in some]
        with net.disable_adapter():
            reference = [logprobs(row) for row in some]
    optimizer = torch.optim.SGD(own.values(), lr=RATE)
    for _ in range(STEPS):
        objective = torch.zeros(())
        for row, before, ref in zip(some, old, reference, strict=True):
            now, advantage = logprobs(row), row.advantages[0]
            ratio = (now - before).exp()
            clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
            surrogate = torch.minimum(ratio * advantage, clipped * advantage)
            divergence = (ref - now).exp() - (ref - now) - 1  # Schulman's estimate, as in GRPO
            objective = objective + (surrogate - BETA * divergence).mean() / len(some)
        optimizer.zero_grad()
        (-objective).backward()
        torch.nn.utils.clip_grad_norm_(list(own.values()), NORM)
        optimizer.step()
    return adapter(net, "default")


def close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys() and one
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], rtol=1e-4, atol=2e-5)


def test_rewards_of_both_tracks_by_hand() -> None:
    """Eqs. 4 and 6: from 0.9 to 1 the critic gains ln 2, from 0.9 to 0.2 it loses ln 4.5."""
    assert gains()[1][1] == pytest.approx(math.log(2.0))
    assert gains()[1][3] == pytest.approx(-math.log(4.5))
    for some in (POLICY_ROWS, CRITIC_ROWS):
        assert sum(row.advantages[0] for row in some) == pytest.approx(0.0, abs=1e-6)


def test_both_tracks_end_where_the_equations_say(folder: Path) -> None:
    policy, critic = passes(POLICY_ROWS), passes(CRITIC_ROWS)
    figures: list[dict[str, float]] = []
    trainer = made(folder, lambda step: in_step(figures, policy))
    track = AdapterTrack(trainer, "critic", LORA)

    def in_step(figures: list[dict[str, float]], policy: list[Pass]) -> list[Pass]:
        before = adapter(trainer.model, "default")
        figures.append(track.step(critic))
        close(adapter(trainer.model, "default"), before)
        return policy

    begins = {name: adapter(trainer.model, name) for name in ("default", "critic")}
    trainer.score(policy, cap=3.0)
    track.score(critic, cap=3.0)
    trainer.train()
    ends = {name: adapter(trainer.model, name) for name in begins}
    for name, some in (("default", POLICY_ROWS), ("critic", CRITIC_ROWS)):
        close(ends[name], by_the_paper(folder, begins[name], some))
    clipped = [each["clip_ratio/low_mean"] + each["clip_ratio/high_mean"] for each in figures]
    assert clipped[0] == 0 and max(clipped) > 0, "the test reaches the clipping"
    assert all(each["grad_norm"] > 0 for each in figures) and figures[0]["entropy"] > 0


def test_a_track_goes_on_as_if_nothing_had_been(folder: Path, tmp_path: Path) -> None:
    batch = passes(CRITIC_ROWS)

    def started() -> AdapterTrack:
        return AdapterTrack(made(folder), "critic", LORA)

    whole = started()
    whole.score(batch, cap=3.0)
    whole.step(batch)
    whole.save(tmp_path)
    whole.step(batch)
    again = started()
    again.load(tmp_path)
    again.step(batch)
    ends = [adapter(track._trainer.model, "critic") for track in (whole, again)]
    close(*ends)


def test_an_adapter_to_go_on_from_is_its_own_reference(folder: Path, tmp_path: Path) -> None:
    """The divergence of a critic that goes on is 0 at its beginning, whatever the policy is."""
    first = AdapterTrack(made(folder), "critic", LORA)
    first.save(tmp_path)
    batch = passes(CRITIC_ROWS)
    track = AdapterTrack(made(folder), "critic", tmp_path / "critic")
    track.score(batch, cap=3.0)
    for one in batch:
        torch.testing.assert_close(one["ref_per_token_logps"], one["old_per_token_logps"])
    assert track.step(batch)["kl"] == pytest.approx(0.0, abs=1e-6)


def test_without_passes_nothing_is_changed(folder: Path) -> None:
    trainer = made(folder)
    track = AdapterTrack(trainer, "critic", LORA)
    before = adapter(trainer.model, "critic")
    assert track.step([])["grad_norm"] == 0.0
    close(adapter(trainer.model, "critic"), before)
