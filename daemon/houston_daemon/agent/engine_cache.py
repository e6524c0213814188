"""The engines of a shared worker: rollouts that ask in the same way have one together.

An engine of its own costs a short rollout a connection and two or three requests before its first
sample (is the server there, what is its window, whose adapter has it). An engine keeps nothing of a
rollout, so several can ask through one, and it stays when they have ended. One that goes away
meanwhile is waited for where it is asked (`sample_requests`), as by a long rollout. A script is
read anew each time, and what an engine of another package keeps is not known: these are not shared.
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
    """By everything that an engine is made from; used from one event loop."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _CachedEngine] = {}
        """The one that was used last is the last."""

    def has(self, spec: RolloutSpec, url: str) -> bool:
        """Whether another rollout has made this engine."""
        return _key(spec, url) in self._entries

    def take(self, spec: RolloutSpec, url: str) -> tuple[Engine, Mapping[str, Any]] | None:
        """The engine of a rollout and its settings, where another has made it; for `release`."""
        entry = self._entries.get(_key(spec, url))
        if entry is None:
            return None
        entry.users += 1
        return entry.engine, entry.settings

    async def keep(
        self, spec: RolloutSpec, url: str, engine: Engine, settings: Mapping[str, Any]
    ) -> tuple[Engine, Mapping[str, Any]]:
        """Keep an engine that answers; the one to use, which another may have kept before."""
        if spec.engine_settings.get("kind") not in SHARED_KINDS:
            return engine, settings
        if (cached_pair := self.take(spec, url)) is not None:
            await engine.close()
            return cached_pair
        self._entries[_key(spec, url)] = _CachedEngine(engine, settings, users=1)
        return engine, settings

    async def release(self, engine: Engine) -> None:
        """A rollout needs it no more; those that were unused for longest are closed."""
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
        """Close all; no rollout runs any more."""
        while self._entries:
            await self._entries.popitem()[1].engine.close()


def _key(spec: RolloutSpec, url: str) -> bytes:
    return encode_message((spec.engine, spec.engine_settings, url))
