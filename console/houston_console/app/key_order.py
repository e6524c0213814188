"""Handles typed keys one after the other, each where the key before has led.

Textual sends a key to the widget that has the focus when the key is read. The key then rises from
queue to queue until a binding takes it. Letters from the same read overtake it, and are typed where
the focus was. `KeyOrder` therefore holds each key until all effects of the key before are done:
pending messages, the focus, a dialog that opens or closes. Screens are drawn only then, because
Textual draws at most 60 times a second, and a second frame for one key came 16 ms after the first.
Background work (Textual's workers) is waited for only where the next keys depend on its result
(`hold_keys`): a dialog that needs the store, a step that must be found. If the work leads to
nothing, these keys are dropped and that is reported; keys meant for a line of text are dropped up
to the first pause. A reason must not be taken for commands, and no verdict may fall on a step that
was to be left. It does not know what a key does.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.widget import Widget

from houston_console.app.error_boundary import ErrorBoundary

TypedEvent = events.Key | events.Paste
PATIENCE_SECONDS = 1.0
"""How long a key waits at most: a part that hangs must not take the keyboard with it."""
HOLD_SECONDS = 0.1
"""How long frames are held at most for keys that come faster than they are handled."""
WORK_PATIENCE_SECONDS = 3.0
"""How long keys wait at most for work in the background that they are held for."""
PAUSE_SECONDS = 0.5
"""A pause in what is typed, after which somebody has seen what is said."""
BUSY_TURNS, BUSY_SLEEP_SECONDS = 40, 0.005
"""Turns of the loop without a pause, and the pause between later ones, as while something is read.
"""


class KeyOrder:
    """The keys of one app that were read and not handled yet."""

    def __init__(
        self,
        app: App[Any],
        handle: Callable[[TypedEvent], Awaitable[None]],
        report_dropped: Callable[[int], None],
    ) -> None:
        """handle: does what a key is for, or hands it to the widget that has the focus by then.
        report_dropped: says how many keys were meant for what was not reached."""
        self._app = app
        self._handle, self._report_dropped = handle, report_dropped
        self._waiting: deque[TypedEvent] = deque()
        """The first is being handled, or waits for the app."""
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._background: asyncio.Task[None] | None = None
        self._release: asyncio.TimerHandle | None = None
        self._pending_work: set[asyncio.Future[bool]] = set()
        """Work in the background that the next keys wait for."""
        self._asks_for_text = False
        self._dropped, self._dropping_until = 0, 0.0
        """Keys that were meant for what was not reached, and until when more are."""
        self.holds_frames = False
        """Whether screens wait with drawing: what a key does is to be drawn in one frame."""

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    async def take(self, event: TypedEvent) -> None:
        """A key was pressed, or text was pasted: handle it, at once where nothing is on its way."""
        if time.monotonic() < self._dropping_until and _is_of_a_sentence(event):
            self._drop(1)
            return
        self._dropping_until = 0.0
        self._waiting.append(event)
        if len(self._waiting) == 1:
            self._idle_event.clear()
            if self._pending_work or self._busy_parts():
                self._go_on(self._wait_then_handle())
            else:
                await self._handle_first()

    def hold_keys(self, asks_for_text: bool) -> asyncio.Future[bool]:
        """The next keys wait for work that this one has begun in the background.

        asks_for_text: whether they are words, for a line that the work opens. The work sets the
        result: whether they may go where it has led.
        """
        self._asks_for_text = asks_for_text
        work: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending_work.add(work)
        return work

    async def settle(self) -> None:
        """Wait until every key was handled, and what it has begun is done."""
        await self._idle_event.wait()

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait beside the app's own queue: a turn of that costs several of the loop's."""
        self._background = asyncio.get_running_loop().create_task(work)

    async def _wait_then_handle(self) -> None:
        if await self._until_settled():
            self._app.call_later(self._handle_first)
        else:
            self._drop_waiting()

    async def _handle_first(self) -> None:
        """Handle the first key, then wait for what it has begun."""
        if self._release is None:
            self.holds_frames = True
            loop = asyncio.get_running_loop()
            self._release = loop.call_later(HOLD_SECONDS, self._draw)
        try:
            await self._handle(self._waiting[0])
        finally:
            self._go_on(self._finish_first())

    async def _finish_first(self) -> None:
        """Once what the key has begun is done: the next key, or else a frame."""
        is_reached = await self._until_settled()
        self._waiting.popleft()
        if not is_reached:
            self._drop_waiting()
        elif self._waiting:
            self._app.call_later(self._handle_first)
        else:
            self._finish()

    def _drop_waiting(self) -> None:
        """What was typed meanwhile was meant for what was not reached."""
        count, self._dropped = len(self._waiting), 0
        self._waiting.clear()
        self._finish()
        self._drop(count)

    def _drop(self, count: int) -> None:
        self._dropped += count
        if self._asks_for_text:
            self._dropping_until = time.monotonic() + PAUSE_SECONDS
        if self._dropped:
            self._report_dropped(self._dropped)

    def _finish(self) -> None:
        """Nothing waits: draw."""
        if self._release is not None:
            self._release.cancel()
            self._release = None
        self._draw()
        self._idle_event.set()

    def _draw(self) -> None:
        self.holds_frames = False
        for screen in self._app.screen_stack:
            screen.check_idle()

    async def _until_settled(self) -> bool:
        """Wait for what keys are held for, too; False where it has led to nothing."""
        await self._until_idle()
        is_reached = True
        while self._pending_work:
            done, late = await asyncio.wait(self._pending_work, timeout=WORK_PATIENCE_SECONDS)
            is_reached = is_reached and not late and all(work.result() for work in done)
            self._pending_work -= done | late
            await self._until_idle()
        return is_reached

    async def _until_idle(self) -> None:
        """Wait until nothing is on its way, or for `PATIENCE_SECONDS`."""
        since, turns = time.monotonic(), 0
        while busy := self._busy_parts():
            # A message rises: all parts were looked at for each step of it, a fifth of a key.
            on_its_way = {parent for part in busy for parent in part.ancestors_with_self}
            while any(map(_is_busy, on_its_way)):
                if time.monotonic() - since >= PATIENCE_SECONDS:
                    return
                turns += 1
                await asyncio.sleep(0 if turns < BUSY_TURNS else BUSY_SLEEP_SECONDS)

    def _busy_parts(self) -> list[DOMNode]:
        """The app and the widgets to which a message is on its way, or that handle one."""
        widgets: list[Widget] = [*self._app.screen_stack]
        for widget in widgets:  # all of them: each adds its children
            widgets += widget._nodes._nodes
        return [part for part in (self._app, *widgets) if _is_busy(part)]


def _is_of_a_sentence(event: TypedEvent) -> bool:
    """Whether it is text, or ends some; escape, control keys and arrows are none."""
    return isinstance(event, events.Paste) or event.is_printable or event.key == "enter"


def _is_busy(part: DOMNode) -> bool:
    """Whether a message is on its way to a part, or is being handled there."""
    return part.is_running and bool(
        part.message_queue_size
        or (isinstance(part, ErrorBoundary) and part.is_dispatching and not isinstance(part, App))
    )


class FrameAfterKey(ErrorBoundary):
    """Mixed in before a screen: what a key does is drawn in one frame, once all of it is done."""

    async def _on_idle(self, event: events.Idle) -> None:
        """Textual draws when a screen has nothing to do: not while a key is being handled."""
        order: KeyOrder = cast(Any, self.app).keys
        if order.holds_frames:
            event.prevent_default()
