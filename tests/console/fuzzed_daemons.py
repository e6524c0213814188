"""The daemon beside which random keys are pressed: none, one that restarts, one of another version.

Each says what happens in the home meanwhile (`happens`) and becomes another now and then (`turn`),
while keys are handled. `Restarting` is the recorder with its sockets and lock; `OtherVersion` holds
the lock and answers on the same sockets what this version cannot read, and gives the home a schema
that it does not know.
"""

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import zmq

from houston_shared import records
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.store.schema import SCHEMA_VERSION
from houston_shared.wire import StoreIntent, StoreObservation, StoreResult, StoreSample
from tests.console.conftest import LiveStation
from tests.console.home_builder import HomeBuilder
from tests.support import recorder_client
from tests.support.recorder_client import Worker


class FuzzedDaemon(Protocol):
    """What goes on beside the keys."""

    async def happens(self) -> None:
        """One more thing that agents or the daemon do."""

    async def turn(self) -> None:
        """The daemon comes, goes, or becomes another; it may be under way when this returns."""

    async def close(self) -> None:
        """End it."""


class Away:
    """No daemon: what happens is written into the home."""

    def __init__(self, write_news: Callable[[], None]) -> None:
        self._write_news = write_news

    async def happens(self) -> None:
        self._write_news()

    async def turn(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Restarting:
    """A recorder that stops and comes back; agents work with it while it is there."""

    def __init__(self, home: Path) -> None:
        self._station = LiveStation(home).start()
        self._is_up = True
        self._turning: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._steps = self.restarts = 0

    async def happens(self) -> None:
        await self._settle()
        if self._is_up:
            await asyncio.to_thread(self._work)

    def _work(self) -> None:
        """A step of an agent; one whose rollout a key has cancelled or paused is refused."""
        if self._worker is None:
            self._worker, self._steps = self._station.working(), 0
        self._steps += 1
        step, say = self._steps, self._worker.say
        say(StoreSample, step=step, attempt=1, sample=recorder_client.sample(step))
        call = recorder_client.call(step)
        intent = records.CallIntent(call=call, deadline=0)
        say(StoreIntent, step=step, attempt=1, index=0, intent=intent)
        result = recorder_client.result(step)
        say(StoreResult, step=step, attempt=1, index=0, result=result)
        seen = records.ObservationBody(tail=f"[step {step}]")
        say(StoreObservation, step=step, attempt=1, observation=seen)

    async def turn(self) -> None:
        await self._settle()
        self._turning = asyncio.create_task(asyncio.to_thread(self._turn))

    def _turn(self) -> None:
        if self._is_up:
            self._worker = None
            self._station.stop()
        else:
            self._station.again()
            self.restarts += 1
        self._is_up = not self._is_up

    async def _settle(self) -> None:
        if self._turning is not None:
            await self._turning

    async def close(self) -> None:
        await self._settle()
        if self._is_up:
            await asyncio.to_thread(self._station.stop)


UNKNOWN_ANSWERS = (
    msgspec.msgpack.encode({"type": "StoredByVersion9", "seq": 1}),
    msgspec.msgpack.encode({"type": "Status", "pid": "many", "state": "dreaming"}),
    msgspec.msgpack.encode({"type": "Denied", "cause": 7}),
    msgspec.msgpack.encode([1, 2, 3]),
    b"\xc1\xff not msgpack",
    b"",
    b"\x91" * 3_000,
)
UNKNOWN_NOTICES = (
    msgspec.msgpack.encode([1, 2, "r"]),
    msgspec.msgpack.encode(["epoch", {}, 3, None]),
    b"\x94",
    b"",
    b"\x94\x01\x02\xa1r\xd9",
)


class OtherVersion:
    """Holds the home and speaks on its sockets as no version does that the console knows."""

    def __init__(
        self, builder: HomeBuilder, write_news: Callable[[], None], chance: random.Random
    ) -> None:
        self._builder, self._write_news, self._chance = builder, write_news, chance
        self._lock = HomeLock(builder.home)
        assert self._lock.take(HomeOwner(pid=0, since="")) is None
        self._over = threading.Event()
        self._is_newer = False
        self.answered = 0
        self._thread = threading.Thread(target=self._speak, args=(builder.home,))
        self._thread.start()

    def _speak(self, home: Home) -> None:
        context = zmq.Context()
        control, live = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
        chance = random.Random(self._chance.random())
        home.run.mkdir(mode=0o700, exist_ok=True)
        for socket, name in ((control, "control"), (live, "live")):
            socket.bind(home.socket(name))
        while not self._over.is_set():
            live.send(chance.choice(UNKNOWN_NOTICES))
            if not control.poll(100):
                continue
            sender, request, *_ = control.recv_multipart()
            if chance.random() < 0.9:  # else it says nothing
                control.send_multipart([sender, request, chance.choice(UNKNOWN_ANSWERS)])
                self.answered += 1
        context.destroy(linger=0)

    async def happens(self) -> None:
        self._write_news()

    async def turn(self) -> None:
        """The home has the other's schema, or this one's again."""
        self._is_newer = not self._is_newer
        version = SCHEMA_VERSION + self._is_newer
        self._builder.connection.execute(f"PRAGMA user_version = {version}")

    async def close(self) -> None:
        self._over.set()
        await asyncio.to_thread(self._thread.join)
        self._lock.release()
