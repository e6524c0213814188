"""One forward pass for several rows, each with its own key-value cache: attention and cache.

The new tokens of all rows are concatenated into one sequence, so every linear layer runs once for
all of them, and no row is padded to the length of another. Only attention runs row by row. It makes
its own masks; for a single new token it does not copy the keys of grouped heads, which the
library's attention does at each token.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

ROW_ATTENTION = "cached_rows"


class RowCaches:
    """The caches of several rows, as one cache that a model of transformers can use.

    `update` gives keys and values as one tensor for each row; only `row_attention` can take them.
    """

    def __init__(self, caches: Sequence[DynamicCache], new: Sequence[int]) -> None:
        """new: how many new tokens each row has, in the order in which they stand in the pass."""
        self._caches = caches
        self._new = list(new)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *rest: Any, **more: Any
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Append new keys and values, (1, groups, all new tokens, width), each to its row."""
        pairs = [
            cache.update(key, value, layer)
            for cache, key, value in zip(
                self._caches, keys.split(self._new, 2), values.split(self._new, 2), strict=True
            )
        ]
        return [key for key, _ in pairs], [value for _, value in pairs]

    def get_seq_length(self, layer: int = 0) -> int:
        """Length of the longest row, without its new tokens; the model is also given the
        positions."""
        return max(int(cache.get_seq_length(layer)) for cache in self._caches)


def row_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: Sequence[torch.Tensor],
    value: Sequence[torch.Tensor],
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    new_tokens: Sequence[int] = (),
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Each row's new tokens attend to that row alone.

    query: (1, heads, all new tokens, width). key, value: for each row (1, groups, length, width).
    new_tokens: of each row. Gives (1, all new tokens, heads, width).
    """
    rest.pop("is_causal", None)
    parts = [
        _attend(module, *row, scaling, sliding_window, rest)
        for row in zip(query.split(list(new_tokens), 2), key, value, strict=True)
    ]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)), None


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    window: int | None,
    rest: dict[str, Any],
) -> torch.Tensor:
    """One row; (1, new, heads, width)."""
    _, heads, new, width = query.shape
    groups, length = key.shape[1], key.shape[2]
    within = not window or length <= window
    if new > 1 or not within:
        mask = None if new == length and within else _causal_mask(query, length, window)
        out, _ = sdpa_attention_forward(
            module, query, key, value, mask, scaling=scaling, is_causal=mask is None, **rest
        )
        return out
    by_group = query.view(1, groups, heads // groups, width)
    scores = (by_group @ key.transpose(-1, -2)).float() * (scaling or width**-0.5)
    mixed = torch.softmax(scores, -1).to(value.dtype) @ value
    return mixed.view(1, 1, heads, width)


def _causal_mask(query: torch.Tensor, length: int, window: int | None) -> torch.Tensor:
    """Which keys the newest tokens may see, boolean (1, 1, new, length): the row ends with them."""
    new = query.shape[2]
    keys = torch.arange(length, device=query.device)
    places = keys[length - new :, None]
    visible = keys <= places
    if window:
        visible &= keys > places - window
    return visible[None, None]


def register_row_attention() -> None:
    """Make it known to transformers as `ROW_ATTENTION`; no mask is made for it."""
    AttentionInterface.register(ROW_ATTENTION, row_attention)
