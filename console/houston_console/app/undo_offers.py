"""Undo for single-key actions: offered for some seconds, in a row of its own.

A key acts at once and offers to undo it; what cannot be undone asks first and offers nothing.
Actions are done one after the other, and leaving the console keeps what was done. What an action
is and how it is undone is defined where the action is (rollout actions, verdicts).
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from houston_shared.errors import HoustonError

UNDO_OFFER_SECONDS = 5.0
"""How long an act is offered to be undone, from when the daemon has it."""
PENDING_ACTION_TIMEOUT_SECONDS = 2.0
"""How long leaving waits for an act that is on its way."""


class UndoableAction(NamedTuple):
    """An action that was done, and how to undo it."""

    text: str
    """What is said of it."""
    undo: Callable[[], Awaitable[str]] | None = None
    """Undoes it and returns what to say, which is nothing where that was said; None where it
    changed nothing. May raise HoustonError."""
    undo_command: str = ""
    """What undoes it from outside the console."""


@dataclass(eq=False)
class UndoOffer:
    """An action and until when it can be undone."""

    key: str
    """What it is about: a later act about the same takes its place. Empty for nothing."""
    task: str
    """What is said of it until it is done."""
    action: UndoableAction | None = None
    """None until it is done."""
    expires_at: float = math.inf
    """When the offer ends, by the clock."""


class UndoOffers:
    """The actions of one console that can be undone."""

    def __init__(
        self,
        changed: Callable[[], None],
        tell: Callable[[str], None],
        failed: Callable[[HoustonError], None],
        watch: Callable[[Awaitable[None]], object],
    ) -> None:
        """changed: other offers stand. tell: something was done.

        watch: given each act as it goes on, to say what is wrong with the code of one; what it
        does with that must not end the act.
        """
        self.offers: list[UndoOffer] = []
        """The oldest first."""
        self.clock: Callable[[], float] = time.monotonic
        self._on_change, self._on_done, self._on_failure, self._watch = changed, tell, failed, watch
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    def do(
        self, doing: str, work: Coroutine[Any, Any, UndoableAction | None], about: str = ""
    ) -> None:
        """Do something and offer to undo it; None: nothing was done, which was said already."""
        offer = UndoOffer(about, doing)
        self.offers.append(offer)
        self._start(self._do(offer, work))

    def take_back(self) -> None:
        """Undo the newest that is offered, once it is done."""
        if self.offers:
            self._start(self._undo(self.offers.pop()))

    def lines(self) -> list[tuple[str, str]]:
        """What is offered and how long still, the newest first."""
        now = self.clock()
        return [
            (offer.action.text, f"{math.ceil(offer.expires_at - now)} s")
            if offer.action
            else (offer.task, "")
            for offer in reversed(self.offers)
        ]

    def drop_expired(self) -> None:
        """End offers whose time is up; called once a second."""
        now = self.clock()
        if any(offer.expires_at <= now for offer in self.offers):
            self.offers = [offer for offer in self.offers if offer.expires_at > now]

    async def settle(self) -> None:
        """Wait for what is on its way: whoever leaves has done it."""
        if self._running:
            await asyncio.wait(self._running, timeout=PENDING_ACTION_TIMEOUT_SECONDS)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self._watch(asyncio.shield(task))
        self._on_change()

    async def _do(self, offer: UndoOffer, work: Coroutine[Any, Any, UndoableAction | None]) -> None:
        try:
            async with self._lock:
                offer.action = await work
        except HoustonError as problem:
            self._on_failure(problem)
        finally:  # whatever else it raises: its row goes
            self._finish(offer, offer.action)

    def _finish(self, offer: UndoOffer, act: UndoableAction | None) -> None:
        if act is not None and act.undo is not None:
            self.offers = [
                old for old in self.offers if old is offer or not offer.key or old.key != offer.key
            ]
            offer.expires_at = self.clock() + UNDO_OFFER_SECONDS
        else:
            self.offers = [old for old in self.offers if old is not offer]
            if act is not None:
                self._on_done(act.text)
        self._on_change()

    async def _undo(self, offer: UndoOffer) -> None:
        async with self._lock:
            if offer.action is None or offer.action.undo is None:
                return  # it was not done
            try:
                words = await offer.action.undo()
            except HoustonError as problem:
                self._on_failure(problem)
                return
        if words:
            self._on_done(words)
