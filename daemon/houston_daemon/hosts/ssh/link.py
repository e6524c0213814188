"""The way to one machine: a session when there is one, and another as soon as it can be had.

What is asked when the host has just gone away waits a few seconds for it; else it fails with
HostAway. What was under way when the connection was cut fails at once, or, where asking twice does
no harm, is asked again.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from houston_daemon.hosts.errors import HostAway
from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import troubles
from houston_daemon.hosts.ssh.session import Cut, Session
from houston_daemon.hosts.ssh.turns import turn
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)
T = TypeVar("T")
Begin = Callable[[Session], Awaitable[None]]

PATIENCE_SECONDS = 5.0
"""How long after a host went away calls wait for it; later ones fail at once while it is away."""
ANSWER_SECONDS = 120.0
"""How long an answer is waited for that takes no time by its nature."""
_FIRST_TRIES = 3
"""Tries of a beginning: a machine that is there may refuse one where many knock together."""
_FIRST_PAUSE = 0.3
_LONGEST_PAUSE = 30.0


class Link:
    """Asks one machine; reconnects by itself from `start` until `close`."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        begin: Begin,
        shared: Callable[[], Path],
    ) -> None:
        """command: the words that connect; begin: what to say first in every new session.
        shared: where the connection is, or will be, that all on this node share.
        """
        self._shared = shared
        self.name = name
        self._command = command
        self._begin = begin
        self._session: Session | None = None
        self._why = "it was not tried yet"
        self._away_since = time.monotonic()
        self._tried = asyncio.Condition()
        self._tries = 0
        self._keeping: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether there is a session, as far as is known."""
        return self._session is not None and not self._session.ended.is_set()

    async def start(self) -> str:
        """Begin to connect, and wait for the first tries; why there is no session, or nothing."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name=f"host {self.name}")
        async with self._tried:
            await self._tried.wait_for(lambda: self.up or self._tries >= _FIRST_TRIES)
        return "" if self.up else self._why

    async def back(self) -> None:
        """Return when there is a session; after `start`, however long that takes."""
        async with self._tried:
            await self._tried.wait_for(lambda: self.up)

    async def ask(
        self,
        ask: m.Asks,
        kind: type[T] | Any = None,
        *,
        stop: asyncio.Event | None = None,
        again: bool = False,
    ) -> Any:
        """Ask, and return the answer as `kind`.

        stop: takes the request back. again: may be asked twice.
        Raises HostAway, and whatever the far end met.
        """
        session = await self._there()
        try:
            answer = await self._answer(session, ask, stop)
        except Cut as cut:
            if not again:
                raise HostAway(self.name, str(cut), self.back, cut=True) from cut
            session = await self._there()
            try:
                answer = await self._answer(session, ask, stop)
            except Cut as second:
                raise HostAway(self.name, str(second), self.back, cut=True) from second
        return self.read(answer, kind)

    async def _answer(self, session: Session, ask: m.Asks, stop: asyncio.Event | None) -> m.Answer:
        """What comes of `ask`; a disk that hangs there must not stop the loop here."""
        most = ANSWER_SECONDS if isinstance(ask, m.SHORT) else None
        try:
            async with asyncio.timeout(most):
                return await session.ask(ask, stop)
        except TimeoutError:
            why = f"no answer within {most:g} s; its disk may hang"
            raise HostAway(self.name, why, self.back, cut=True) from None

    async def other(self, service: str, ask: Any, kind: type[T], *, again: bool = False) -> T:
        """Ask a service that the far end was given; `ask` and `kind` are its own."""
        body = msgspec.Raw(msgspec.msgpack.encode(ask))
        found: T = await self.ask(m.Other(service=service, body=body), kind, again=again)
        return found

    def read(self, answer: m.Answer, kind: type[T] | Any) -> Any:
        """The value of an answer; raises the error that it holds.

        Raises HostAway for what is no answer to what was asked: such a far end is of no use.
        """
        try:
            if answer.trouble is None:
                return msgspec.msgpack.decode(answer.value, type=kind)
            problem = troubles.raised(answer.trouble)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as odd:
            why = f"it gave an odd answer ({odd})"[:300]
            raise HostAway(self.name, why, self.back, cut=True) from odd
        raise problem

    async def close(self) -> None:
        """Let go of the machine; what runs there goes on."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _there(self) -> Session:
        """A session that was alive a moment ago. Raises HostAway."""
        session = self._session
        if session is not None and not session.ended.is_set():
            return session
        patience = self._away_since + PATIENCE_SECONDS - time.monotonic()
        if self._keeping is not None and patience > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience), self._tried:
                    await self._tried.wait_for(lambda: self.up)
        if (session := self._session) is None or session.ended.is_set():
            raise HostAway(self.name, self._why, self.back)
        return session

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                session = await self._connected()
            except (Cut, HoustonError, OSError) as problem:
                self._why = _cause(problem)
                await self._tell(None)
                log.info("host %s: %s", self.name, problem)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            await self._tell(session)
            await session.ended.wait()
            self._why = session.why
            self._away_since = time.monotonic()
            self._session = None
            await session.close()
            log.info("host %s went away: %s", self.name, self._why)

    async def _connected(self) -> Session:
        async with turn(self._shared()):
            session = await Session.open(self._command())
        try:
            await self._begin(session)
        except BaseException:
            await session.close()
            raise
        return session

    async def _tell(self, session: Session | None) -> None:
        async with self._tried:
            self._session = session
            self._tries += 1
            self._tried.notify_all()


def _cause(problem: Cut | HoustonError | OSError) -> str:
    """Why there is no session, in words without a full stop."""
    if isinstance(problem, HostAway):
        return problem.why
    return (problem.cause if isinstance(problem, HoustonError) else str(problem)).rstrip(".")
