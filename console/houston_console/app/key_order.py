"""What is typed is handled one key after the other, each where the key before has led.

Textual hands a key to what has the focus when it is read. The key then rises from queue to queue
until a binding takes it; letters that came in the same read overtake it, and are typed where the
focus was. `KeyOrder` holds what is typed until everything that the key before has begun is done:
messages on their way, the focus, a dialog that opens or closes. Background work (Textual's workers)
is not waited for. What a key does is not known here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import App

from houston_console.app.error_boundary import ErrorBoundary

TypedEvent = events.Key | events.Paste
PATIENCE_SECONDS = 1.0
"""How long a key waits at most: a part that hangs must not take the keyboard with it."""
BUSY_TURNS, BUSY_SLEEP_SECONDS = 40, 0.005
"""Turns of the loop without a pause, and the pause between later ones, as while something is read.
"""


class KeyOrder:
    """The keys of one app that were read and not handled yet."""

    def __init__(self, app: App[Any], handle: Callable[[TypedEvent], Awaitable[None]]) -> None:
        """handle: does what a key is for, or hands it to the widget that has the focus by then."""
        self._app = app
        self._handle = handle
        self._waiting: deque[TypedEvent] = deque()
        self._settled = asyncio.Event()
        self._settled.set()
        self._waits_since = 0.0
        self._turns = 0

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    async def take(self, event: TypedEvent) -> None:
        """A key was pressed, or text was pasted: handle it, at once where nothing is on its way."""
        self._waiting.append(event)
        self._settled.clear()
        if len(self._waiting) == 1:
            self._waits_since, self._turns = time.monotonic(), 0
            await self._next()

    async def settle(self) -> None:
        """Wait until every key was handled."""
        await self._settled.wait()

    async def _next(self) -> None:
        """Handle the first key, or wait behind what the app has to do before it."""
        if self._is_busy() and time.monotonic() - self._waits_since < PATIENCE_SECONDS:
            self._turns += 1
            await asyncio.sleep(0 if self._turns < BUSY_TURNS else BUSY_SLEEP_SECONDS)
            self._app.call_later(self._next)
            return
        try:
            await self._handle(self._waiting[0])
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._waits_since, self._turns = time.monotonic(), 0
                self._app.call_later(self._next)
            else:
                self._settled.set()

    def _is_busy(self) -> bool:
        """Whether a message is on its way in the app or a widget, or is being handled there."""
        return bool(self._app.message_queue_size) or any(
            widget.message_queue_size
            or (isinstance(widget, ErrorBoundary) and widget.is_dispatching)
            for screen in self._app.screen_stack
            for widget in screen.walk_children(with_self=True)
            if widget.is_running
        )
