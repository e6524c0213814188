"""Splitting a rollout into rows leaves the gradient as it is, forks and summaries included.

What it is: the loss over every kept answer, each after the very prompt that the engine was sent.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

from houston_daemon.training.rows.training_row import TokenRow
from tests.training.rows.played_rollouts import Family, Played, Stage
from tests.training.rows.row_truncation import truncated
from tests.training.rows.test_trained_answers import turn

TURNS = [turn(n, calls=1 + n % 2, guidance=n % 4 == 0) for n in range(1, 7)]
MASKED = {2, 4}
Loss = Callable[[Any, Any, Any], Any]
Example = tuple[list[int], list[float]]


@pytest.fixture(scope="module")
def model() -> Any:
    """A Llama with random weights, in double precision."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=1_100,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4_096,
    )
    return LlamaForCausalLM(config).double()


def gradient(model: Any, examples: Iterable[Example], loss: Loss) -> Any:
    """Of Σ weight × cross entropy ÷ Σ weight over all examples together (docs/rows.md)."""
    pairs = list(examples)
    whole = sum(sum(weights) for _, weights in pairs)
    model.zero_grad()
    for ids, weights in pairs:
        tokens = torch.tensor([ids])
        logits = model(input_ids=tokens).logits[0, :-1]
        weighed = torch.tensor(weights[1:], dtype=torch.float64)
        (loss(logits, tokens[0, 1:], weighed) / whole).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def plain(logits: Any, targets: Any, weights: Any) -> Any:
    """The formula, spelt out."""
    chosen = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
    return -(chosen * weights).sum()


def of_rows(rows: Iterable[TokenRow]) -> Iterator[Example]:
    for row in rows:
        yield list(row.token_ids), list(row.weights())


def of_requests(played: Played, masked: set[int]) -> Iterator[Example]:
    """One example for each request of the engine that is trained."""
    steps = played.engine.rig.query(
        "SELECT 'policy', step FROM steps WHERE rollout = ?1 UNION ALL"
        " SELECT 'summary', step FROM forks WHERE rollout = ?1 AND mechanical = 0",
        played.id,
    )
    for role, step in steps:
        if role == "summary" or step not in masked:
            answer = played.engine.answers[(role, step)]
            yield (
                [*answer.prompt, *answer.ids],
                [0.0] * len(answer.prompt) + [1.0] * len(answer.ids),
            )


@pytest.mark.parametrize(
    ("name", "context"), [("qwen3", 100_000), ("chatml", 1_100), ("glm45", 1_100)]
)
def test_rows_have_the_gradient_of_the_requests(
    stage: Stage, family: dict[str, Family], model: Any, name: str, context: int
) -> None:
    from houston_daemon.training.sft.weighted_loss import loss_from_logits

    played = stage.play(family[name], TURNS, context=context)
    for step in MASKED:
        stage.judge(played.id, step, "mask")
    rows = stage.rows(played)
    assert len(rows) == 1 if context > 10_000 else len(rows) >= 5
    by_rows = gradient(model, of_rows(rows), loss_from_logits)
    by_request = gradient(model, of_requests(played, MASKED), plain)
    assert by_rows.norm() > 0
    assert (by_rows - by_request).norm() <= 1e-5 * by_request.norm()
    if context > 10_000:
        last = next(span for span in rows[0].spans if span.step == 5)
        cut = gradient(model, of_rows([truncated(rows[0], last.end)]), loss_from_logits)
        early = gradient(model, of_requests(played, {*MASKED, 6, 7}), plain)
        assert (cut - early).norm() <= 1e-5 * early.norm(), "a cut row is a shorter rollout"
