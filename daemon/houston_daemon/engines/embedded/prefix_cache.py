"""Keeps the key-value caches of recent prompts: an append-only context costs only its new tokens.

A request takes the cache with the longest common prefix of ids: it cuts and continues that cache,
or copies the common part if the cache is in use or worth keeping. Caches of different adapters or
salts are never mixed (`scope`). It does not know what a prompt means.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import DynamicCache, PretrainedConfig

_ORPHANED = ("", "\0")
"""Scope that no request can name."""


@dataclass(slots=True, eq=False)
class PrefixCacheEntry:
    """One cache and the ids whose keys it holds."""

    scope: tuple[str, str]
    """Adapter and salt."""
    kv: DynamicCache
    ids: list[int] = field(default_factory=list)
    busy: bool = True
    used: int = 0
    """When it was last taken, as a count of takings."""


class PrefixCache:
    """A bounded pool of caches; used from the sampling thread only.

    max_tokens: ids over all idle caches; the least recently used go first. max_entries: idle
    caches, one for each rollout that takes turns: with 16 instead of 128, a batch of 128 short ones
    found half as many of its tokens.
    """

    def __init__(self, config: PretrainedConfig, max_tokens: int, max_entries: int = 128) -> None:
        self._config = config
        self._max_tokens = max_tokens
        self._max_entries = max_entries
        self._entries: list[PrefixCacheEntry] = []
        self._takings = 0
        layers = DynamicCache(config=config).layers
        # A sliding window or a recurrent state cannot be cut back to an earlier token.
        self._reusable = all(type(layer).__name__ == "DynamicLayer" for layer in layers)

    def take(self, scope: tuple[str, str], prompt: Sequence[int]) -> PrefixCacheEntry:
        """Return a busy entry whose ids are a proper prefix of `prompt`, the longest known."""
        self._takings += 1
        best, common = self._find_longest_prefix(scope, prompt)
        if best is None or common == 0:
            entry = PrefixCacheEntry(scope, DynamicCache(config=self._config))
        elif best.busy or common * 2 < len(best.ids):
            entry = PrefixCacheEntry(scope, self._copy(best.kv, common), best.ids[:common])
        else:
            entry = best
            _truncate_cache(entry, common)
        entry.busy, entry.used = True, self._takings
        if entry is not best:
            self._entries.append(entry)
        return entry

    def release_entry(self, entry: PrefixCacheEntry) -> None:
        """Let others use the entry; forget the oldest ones over the limits."""
        entry.busy = False
        if not self._reusable:
            self._entries.remove(entry)
            return
        idle = sorted((e for e in self._entries if not e.busy), key=lambda e: e.used)
        while len(idle) > 1 and self._exceeds_limits(idle):
            self._entries.remove(idle.pop(0))

    def drop(self, entry: PrefixCacheEntry) -> None:
        """Forget a busy entry whose keys may be wrong."""
        self._entries.remove(entry)

    def forget(self, adapter: str) -> None:
        """Never use a cache of this adapter again: its weights are about to change."""
        self._entries = [e for e in self._entries if e.busy or e.scope[0] != adapter]
        for entry in self._entries:
            if entry.scope[0] == adapter:
                entry.scope = _ORPHANED

    def _exceeds_limits(self, idle: list[PrefixCacheEntry]) -> bool:
        return len(idle) > self._max_entries or sum(len(e.ids) for e in idle) > self._max_tokens

    def _find_longest_prefix(
        self, scope: tuple[str, str], prompt: Sequence[int]
    ) -> tuple[PrefixCacheEntry | None, int]:
        best, length = None, 0
        for entry in self._entries:
            if entry.scope == scope and self._reusable:
                # The last id is always computed: its logits are what a sample starts from.
                common = min(count_common_ids(entry.ids, prompt), len(prompt) - 1)
                if common > length or (common == length > 0 and best and best.busy):
                    best, length = entry, common
        return best, length

    def _copy(self, kv: DynamicCache, length: int) -> DynamicCache:
        copy = DynamicCache(config=self._config)
        for index, layer in enumerate(kv.layers):
            copy.update(
                layer.keys[..., :length, :].clone(), layer.values[..., :length, :].clone(), index
            )
        return copy


def _truncate_cache(entry: PrefixCacheEntry, length: int) -> None:
    for layer in entry.kv.layers:
        layer.keys = layer.keys[..., :length, :]
        layer.values = layer.values[..., :length, :]
    del entry.ids[length:]


def count_common_ids(first_ids: Sequence[int], second_ids: Sequence[int]) -> int:
    """Return how many leading ids two sequences share."""
    for place, (first_id, second_id) in enumerate(zip(first_ids, second_ids, strict=False)):
        if first_id != second_id:
            return place
    return min(len(first_ids), len(second_ids))
