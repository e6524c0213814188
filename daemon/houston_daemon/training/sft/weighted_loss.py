"""The weighted cross entropy, at the head of the model, where a weight needs it and nowhere else.

Hidden states without a weight never meet the vocabulary, and the others meet it in slices; a
slice's gradient is computed with its loss. The head does it inside its own `forward`, where FSDP
and DeepSpeed have its weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

SLICE_BYTES = 64 * 2**20
"""Of the logits of one slice, in float32."""


class WeightedCrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """Σ weight × cross entropy of `hidden @ weight.T + bias` against `targets`, a scalar."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        """hidden (tokens, width), weight (vocabulary, width), targets and weights (tokens,)."""
        exact = torch.promote_types(torch.float32, hidden.dtype)
        needs = ctx.needs_input_grad
        to_hidden = torch.empty_like(hidden) if needs[0] else None
        to_weight = torch.zeros_like(weight, dtype=exact) if needs[1] else None
        to_bias = torch.zeros_like(bias, dtype=exact) if bias is not None and needs[2] else None
        total = torch.zeros((), dtype=exact, device=hidden.device)
        matrix = weight.to(hidden.dtype)
        size = max(1, SLICE_BYTES // (4 * weight.shape[0]))
        for start in range(0, len(hidden), size):
            part = slice(start, start + size)
            logits = functional.linear(hidden[part], matrix).to(exact)
            if bias is not None:
                logits += bias
            norm = logits.logsumexp(-1)
            right = logits.gather(1, targets[part, None])[:, 0]
            scale = weights[part].to(exact)
            total += ((norm - right) * scale).sum()
            if not any(needs[:3]):
                continue
            slope = logits.sub_(norm[:, None]).exp_()
            slope.scatter_add_(1, targets[part, None], -torch.ones_like(norm)[:, None])
            slope *= scale[:, None]
            if to_bias is not None:
                to_bias += slope.sum(0)
            low = slope.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[part] = low @ matrix
            if to_weight is not None:
                to_weight += low.T @ hidden[part]
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        ctx.kinds = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *above: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Each gradient, times what comes from above."""
        (grad,) = above
        kinds = (None, *ctx.kinds)
        gradients = [
            None if gradient is None else gradient.mul_(grad).to(kind or gradient.dtype)
            for gradient, kind in zip(ctx.saved_tensors, kinds, strict=True)
        ]
        return (*gradients, None, None)


class WeightedLossHead:
    """Makes a model's head give the weighted loss instead of logits, while it is asked to."""

    def __init__(self, model: Any) -> None:
        """model: a causal language model of transformers (not wrapped)."""
        self._wanted_loss: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self.total: torch.Tensor | None = None
        self._head = model.get_output_embeddings()
        self._plain = self._head.forward
        self._head.forward = self._forward

    @contextmanager
    def computing_loss(
        self, predicts: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
    ) -> Iterator[None]:
        """Within, the head gives a (1, 1, 1) tensor: the loss of those positions of its input."""
        self._wanted_loss = predicts, targets, weights
        try:
            yield
        finally:
            self._wanted_loss = None

    def remove(self) -> None:
        """The head is as it was."""
        self._head.forward = self._plain

    def _forward(self, hidden: torch.Tensor) -> Any:
        if self._wanted_loss is None:
            return self._plain(hidden)
        predicts, targets, weights = self._wanted_loss
        kind = hidden.device.type
        chosen = hidden.reshape(-1, hidden.shape[-1])[predicts.to(hidden.device)]
        if torch.is_autocast_enabled(kind):
            chosen = chosen.to(torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            total = WeightedCrossEntropy.apply(
                chosen,
                self._head.weight,
                self._head.bias,
                targets.to(hidden.device),
                weights.to(hidden.device),
            )
        assert isinstance(total, torch.Tensor)
        self.total = total.detach()
        return total.view(1, 1, 1)


def loss_from_logits(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """The same sum from logits (tokens, vocabulary): what the head's own way must equal."""
    exact = torch.promote_types(torch.float32, logits.dtype)
    losses = functional.cross_entropy(logits.to(exact), targets, reduction="none")
    return (losses * weights.to(exact)).sum()
