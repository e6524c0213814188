"""The engines of a shared worker: rollouts with the same engine settings share one engine.

A separate engine costs a short rollout a connection and two or three requests before its first
sample (is the server there, what is its window, which server has its adapter). An engine keeps no
state of a rollout, so several can use one, and it stays open after they end. If it goes away, each
request waits for it (`sample_requests`), as in a long rollout. Scripts, which are read anew each
time, and engines of other packages, whose state is not known, are not shared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from houston_daemon.engines.engine_protocol import Engine
from houston_shared.records import RolloutSpec
from houston_shared.wire import encode_message

SHARED_KINDS = frozenset({"embedded", "vllm", "token", "chat"})
UNUSED_LIMIT = 4
"""Engines without a rollout that are kept: a policy that was just replaced may have some more."""


@dataclass(slots=True)
class _CachedEngine:
    engine: Engine
    settings: Mapping[str, Any]
    users: int = 0


class EngineCache:
    """Engines by everything that they are made from; used from one event loop."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _CachedEngine] = {}
        """The one that was used last is the last."""

    def has(self, spec: RolloutSpec, url: str) -> bool:
        """Whether another rollout has made this engine."""
        return _key(spec, url) in self._entries

    def take(self, spec: RolloutSpec, url: str) -> tuple[Engine, Mapping[str, Any]] | None:
        """A rollout's engine and its settings, if another made it; to be given to `release`."""
        entry = self._entries.get(_key(spec, url))
        if entry is None:
            return None
        entry.users += 1
        return entry.engine, entry.settings

    async def keep(
        self, spec: RolloutSpec, url: str, engine: Engine, settings: Mapping[str, Any]
    ) -> tuple[Engine, Mapping[str, Any]]:
        """Keep an engine that answers; return the one to use, which may be an earlier one."""
        if spec.engine_settings.get("kind") not in SHARED_KINDS:
            return engine, settings
        if (cached_pair := self.take(spec, url)) is not None:
            await engine.close()
            return cached_pair
        self._entries[_key(spec, url)] = _CachedEngine(engine, settings, users=1)
        return engine, settings

    async def release(self, engine: Engine) -> None:
        """A rollout no longer needs the engine; those that were unused for longest are closed."""
        items = self._entries.items()
        key = next((key for key, entry in items if entry.engine is engine), None)
        if key is None:
            return await engine.close()
        entry = self._entries[key] = self._entries.pop(key)
        entry.users -= 1
        unused = [key for key, entry in self._entries.items() if not entry.users]
        for old in unused[: max(0, len(unused) - UNUSED_LIMIT)]:
            await self._entries.pop(old).engine.close()

    async def close(self) -> None:
        """Close all engines, once no rollout runs."""
        while self._entries:
            await self._entries.popitem()[1].engine.close()


def _key(spec: RolloutSpec, url: str) -> bytes:
    return encode_message((spec.engine, spec.engine_settings, url))
