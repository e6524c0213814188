"""Attention for several rows in one pass: each is blind to the others, and none pays for another.

Every row is one causal call of PyTorch's fused attention, so nothing of the size of tokens squared
is kept and no flash-attention package is needed; TRL's packing without one would let rows see each
other, or build such a mask. The lengths come through the model's own keyword arguments. Whether a
model hands them on is tried (`probe`), not assumed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "rows"


def rows_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    row_lengths: Sequence[int] | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Shapes (1, heads, tokens, width) to (1, tokens, heads, width); lengths sum to tokens."""
    lengths = list(row_lengths or [query.shape[2]])
    rest.pop("is_causal", None)
    parts = []
    for q, k, v in zip(*(one.split(lengths, dim=2) for one in (query, key, value)), strict=True):
        mask = _window(q, sliding_window)
        out, _ = sdpa_attention_forward(module, q, k, v, mask, is_causal=mask is None, **rest)
        parts.append(out)
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), None


def _window(query: torch.Tensor, width: int | None) -> torch.Tensor | None:
    """The mask of a sliding window, for rows longer than it."""
    length = query.shape[2]
    if not width or length <= width:
        return None
    back = torch.arange(length, device=query.device)
    back = back[:, None] - back[None, :]
    return ((back >= 0) & (back < width))[None, None]


def register() -> None:
    """Make it known to transformers under `NAME`. No mask is made for it."""
    AttentionInterface.register(NAME, rows_attention)
