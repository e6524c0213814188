"""An engine that is brought up by the first sample: what is all in the cache starts no server."""

import asyncio
from collections.abc import Callable

from houston_daemon.engines.protocol import Engine, Sampled, SampleRequest


class LateEngine:
    """Stands for a child server that does not run yet."""

    token_ids = True
    window: int | None = None

    def __init__(self, name: str, make: Callable[[], Engine]) -> None:
        """make: starts the server and gives its client; blocks for as long as that takes."""
        self.name = name
        self._make = make
        self._turn = asyncio.Lock()
        self._engine: Engine | None = None

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> Sampled:
        """See `Engine.sample`."""
        async with self._turn:
            if self._engine is None:
                made = await asyncio.to_thread(self._make)
                await made.ready()
                self._engine = made
        return await self._engine.sample(request, stop)

    async def ready(self) -> None:
        """At once: whether it comes up shows when it is needed."""

    async def close(self) -> None:
        """Release connections; the server is its starter's."""
        if self._engine is not None:
            await self._engine.close()
