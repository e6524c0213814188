"""The eye: exactly what the model was given at a step, as messages, as text and as token ids.

A screen of its own. Requests are read and wrapped aside: no key waits for 100,000 tokens.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from houston_console.app.dialogs import Prompt, TextLines
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, line
from houston_console.app.eye import lines as eye_lines
from houston_console.app.eye import reading
from houston_console.app.eye.facts import facts
from houston_console.app.eye.reading import Seen
from houston_console.app.eye.text import LongText, found_in
from houston_console.app.keys import Area, bindings
from houston_console.app.messages import GoTo, say
from houston_console.app.screen import HoustonScreen
from houston_console.app.source import RolloutSource
from houston_console.app.state import ConsoleState
from houston_shared.errors import HoustonError
from houston_shared.store import messages
from houston_shared.store.context import ContextView

Make = Callable[[Seen, int], tuple[Sequence[Line], int]]
"""Lines for a width, and the line to begin at."""


class Tab(NamedTuple):
    """One way to read a request."""

    name: str
    make: Make


TABS = (
    Tab("messages", eye_lines.messages),
    Tab("rendered", eye_lines.rendered),
    Tab("token ids", eye_lines.token_ids),
    Tab("difference", eye_lines.difference),
)


class Find(Prompt):
    """The line for words to look for."""

    def action_leave(self) -> None:
        """Back to the text."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#eye-text"))


class Eye(HoustonScreen):
    """One request, and from there the next or the one before."""

    BINDINGS = bindings("eye")

    def __init__(
        self, state: ConsoleState, home: str, source: RolloutSource, step: int, back: Widget
    ) -> None:
        """back: what shows a step when it is told to."""
        super().__init__(state, home)
        self._source, self._back = source, back
        self.step, self.tab = step, 0
        self.seen: Seen | None = None
        self.above, self.text = TextLines([], id="eye-facts"), LongText(id="eye-text")
        self.above.can_focus = False
        self.find = Find(id="eye-find")

    def body(self) -> ComposeResult:
        """Facts above, one of four texts below, a line to type in."""
        with Vertical(id="eye"):
            yield self.above
            yield self.text
            yield self.find

    def on_mount(self) -> None:
        """Begin with the messages."""
        self.hints.area("eye")
        self.set_focus(self.text)
        self._dress("loading …")
        self._go_to(self.step)

    @property
    def area(self) -> Area:
        """One place."""
        return "eye"

    @property
    def place(self) -> tuple[str, int]:
        """The step whose request is read."""
        return self._source.rollout, self.step

    async def caught_up(self, changed: bool) -> None:
        """A request never changes."""

    @property
    def view(self) -> ContextView | None:
        """The request, once it was read."""
        return self.seen.view if self.seen else None

    # --- reading -----------------------------------------------------------------------------

    def _go_to(self, step: int) -> None:
        self.later(partial(self._read, step), "eye")

    async def _read(self, step: int) -> None:
        try:
            raw = await self._source.read(reading.raw(self._source.rollout, step))
        except HoustonError as problem:
            self.told(problem)
            return
        self.seen = await asyncio.to_thread(reading.worked_out, raw)
        self.step = step
        await self._show()

    async def _show(self) -> None:
        """Wrap the text that is wanted, from where a reader of it begins."""
        seen, tab = self.seen, TABS[self.tab]
        if seen is None or not self.text.region.width:
            return
        found = facts(seen, self.above.room)
        most = max(3, self.size.height // 3)
        self.above.styles.height = min(len(found), most) + 1
        self.above.put(found)
        width, needle = self.text.room, self.text.needle
        lines, at = await asyncio.to_thread(tab.make, seen, width)
        hits = await asyncio.to_thread(found_in, lines, needle) if needle else []
        self.text.whole = (f"the whole request ({tab.name})", _whole(seen, self.tab))
        self.text.put(lines, hits, max(0, at - 2))
        self._dress()

    def _dress(self, now: str = "") -> None:
        names = "  ".join(
            f"‹{one.name}›" if at == self.tab else one.name for at, one in enumerate(TABS)
        )
        newest = f" of {self.seen.newest}" if self.seen else ""
        box = self.query_one("#eye")
        title(box, f"The eye · step {self.step}{newest}   {names}")
        hits, needle = self.text.hits, self.text.needle
        counted = (
            f"{len(hits)} lines hold “{needle}”" if needle else f"{len(self.text.lines):,} lines"
        )
        subtitle(box, line(now or counted))

    def on_resize(self) -> None:
        """Wrapped again for the new width."""
        self.call_after_refresh(self._again)

    def _again(self) -> None:
        self.later(self._show, "eye-text")

    # --- keys --------------------------------------------------------------------------------

    def action_show(self, tab: int) -> None:
        """Show one of the texts."""
        self.tab = tab
        self._again()

    def action_turn(self, by: int) -> None:
        """The next text or the one before."""
        self.action_show((self.tab + by) % len(TABS))

    def action_other(self, by: int) -> None:
        """The request of the next step, or of the one before."""
        if self.step + by < 1:
            self.tell("Step 1 is the first.", "warning")
        else:
            self._go_to(self.step + by)  # where there is none yet, that is said

    def action_cached(self) -> None:
        """Go to where the engine's cache ended."""
        at = next((n for n, one in enumerate(self.text.lines) if _is_rule(one)), None)
        reach = self.seen.reach if self.seen else None
        if at is not None:
            self.text.jump(max(0, at - self.text.size.height // 2))
        elif reach is None:
            self.tell("The engine said nothing of its cache, or had nothing of this in it.", "dim")
        else:
            words = "in the text cannot be told; the token ids show it."
            self.tell(f"{reach.tokens:,} tokens came from the cache. Where they end {words}", "dim")

    def action_ask(self) -> None:
        """Ask for words to look for."""
        self.find.ask("/", "words to look for in this request; nothing ends the search")

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Look for them."""
        event.stop()
        self.text.needle = " ".join(event.value.split())
        lines, needle = self.text.lines, self.text.needle
        self.text.hits = await asyncio.to_thread(found_in, lines, needle)
        self._dress()
        self.text.refresh()
        if self.text.hits:
            self.action_hit(1)
        elif needle:
            self.tell(f"Nothing here holds {needle!r}.", "warning")

    def action_hit(self, by: int) -> None:
        """The next line that holds what was looked for, or the one before."""
        if self.text.hits:
            at = self.text.next_hit(by)
            subtitle(self.query_one("#eye"), line(f"{at} of {len(self.text.hits)} lines"))

    def action_choose(self) -> None:
        """Show this step in the trajectory."""
        self.leave()
        say(self._back, GoTo(self.step))

    def action_back(self) -> None:
        """Back to where the eye was opened."""
        self.leave()


def _is_rule(one: Line) -> bool:
    return len(one) == 1 and one[0].tone == "hunk" and one[0].text.startswith("── ↑")


def _whole(seen: Seen, tab: int) -> str:
    """A text as it is copied: not wrapped, nothing left out."""
    view = seen.view
    if TABS[tab].make is eye_lines.token_ids and view.token_ids is not None:
        return " ".join(map(str, view.token_ids))
    if TABS[tab].make is eye_lines.difference and seen.change is not None:
        return messages.plain([one.message for one in seen.change.new])
    if TABS[tab].make is eye_lines.messages:
        return messages.plain(view.messages)
    return view.rendered
