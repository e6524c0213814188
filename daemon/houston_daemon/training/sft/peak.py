"""What a run of training will need at most, reckoned before its first step.

What a pass keeps for its way back is measured, not guessed from the names of layers: two short
passes of the very model, adapter and loss, whose saved tensors are counted, give bytes a token
(and, where attention keeps a matrix, bytes a token squared). To these come gradients, the
optimizer's state and what one layer needs while it is gone through. It trains nothing, draws no
random number and refuses nothing; `memory` does.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from houston_daemon.training.sft.loss import SLICE_BYTES

_SIZES = (32, 64, 128)
"""Tokens of the passes that are measured."""
_GRADIENT = 4
_ADAM = 8
"""Bytes for each weight that is trained: its gradient, and AdamW's two means."""
_HEAP = {"cpu": 1.9, "cuda": 1.1}
"""How much more the allocator holds than lives in it: on processors glibc's heap is left with holes
between what is kept and what was given back (1.0 to 1.75 measured, bench/training_memory.py)."""
_TIGHT = 1.15
"""The same where large pieces have maps of their own (`memory.give_back`)."""
_SLICES = 4
"""Slices of logits that stand at once: as computed, in float32, their slope, and a copy."""


@dataclass(frozen=True)
class Peak:
    """Bytes that a process needs, by the tokens of its largest pass."""

    standing: int
    """What it has before the first pass: model, libraries, rows."""
    trained: int
    """Gradients and the optimizer's state."""
    token: float
    """Kept for the way back, a token."""
    squared: float
    """The same, a token squared: of attentions that keep a matrix."""
    kept: float
    """With gradient checkpointing, a token: the input of each layer."""
    layers: int
    once: int
    """Kept however long a pass is, slices of logits, and the gradient of the head's weights."""

    heap: float
    """How much more the allocator holds than lives in it."""

    def bytes(self, tokens: int, checkpointing: bool) -> int:
        """The most at once, for passes of up to so many tokens."""
        whole = self.token * tokens + self.squared * tokens * tokens
        layer = whole / self.layers
        alive = whole + layer
        heap = self.heap
        if checkpointing:
            alive, heap = self.kept * tokens + 3 * layer, min(heap, _TIGHT)
        return round(self.standing + self.trained + self.once + heap * alive)

    def longest(self, free: int, checkpointing: bool) -> int:
        """The most tokens of a pass for which so many bytes beside those standing are enough."""
        low, high = 0, 1 << 20
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.bytes(middle, checkpointing) - self.standing <= free
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def measured(trainer: Any, share: float, bf16: bool) -> Peak:
    """Of a trainer whose model is where it is trained.

    share: of tokens that are trained. bf16: whether it multiplies in bfloat16.
    """
    model = trainer.model
    device = next(model.parameters()).device
    config = model.config.get_text_config()
    training = model.training
    model.train()
    with torch.random.fork_rng(devices=[device.index or 0] if device.type == "cuda" else []):
        seen = [_saved(trainer, size, share, bf16) for size in _SIZES]
    model.train(training)
    token, squared, once = _fitted(seen)
    numbers = sum(one.numel() for one in model.parameters() if one.requires_grad)
    head = model.get_output_embeddings()
    own = 4 * head.weight.numel() if head.weight.requires_grad else 0
    return Peak(
        standing=_standing(device),
        trained=numbers * (_GRADIENT + _ADAM),
        token=token,
        squared=squared,
        kept=4 * config.num_hidden_layers * config.hidden_size,
        layers=config.num_hidden_layers,
        once=once + _SLICES * SLICE_BYTES + own,
        heap=_HEAP.get(device.type, _HEAP["cuda"]),
    )


def _fitted(seen: Sequence[int]) -> tuple[float, float, int]:
    """Bytes a token, a token squared, and once, by three passes of which each is twice as long."""
    (a, b, c), (x, y, z) = _SIZES, seen
    low, high = (y - x) / (b - a), (z - y) / (c - b)
    squared = max(0.0, (high - low) / (c - a))
    token = high - squared * (b + c)
    return token, squared, max(0, round(x - token * a - squared * a * a))


def _standing(device: torch.device) -> int:
    """Bytes that this process has now."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _saved(trainer: Any, tokens: int, share: float, bf16: bool) -> int:
    """Bytes that a pass of so many tokens keeps for its way back, beside the weights."""
    model = trainer.model
    device = next(model.parameters()).device
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    kept: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        storage = one.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return one

    with (
        saved_tensors_hooks(pack, lambda one: one),
        torch.autocast(device.type, torch.bfloat16, enabled=bf16),
    ):
        trainer._passes = 1
        loss = trainer.compute_loss(model, _pass(tokens, share, device))
    del loss  # until here the graph has them, so that no place was given to another
    return sum(kept.values())


def _pass(tokens: int, share: float, device: torch.device) -> dict[str, Any]:
    every = max(1, round(1 / share))
    predicts = torch.arange(0, tokens - 1, every, device=device)
    ids = (torch.arange(tokens, device=device) % 7)[None]
    return {
        "input_ids": ids,
        "position_ids": torch.arange(tokens, device=device)[None],
        "predicts": predicts,
        "targets": ids[0, predicts + 1],
        "weights": torch.ones(len(predicts), device=device),
    }
