"""The line in which a search is written, with the choices there are under it."""

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from houston_console.app.bars import Bar
from houston_console.app.dialogs import Prompt
from houston_console.app.drawing.lines import Line, spread
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings
from houston_console.app.messages import say
from houston_console.app.screen import HoustonScreen
from houston_console.app.search.asked import Asked, Earlier


class SearchLine(Prompt):
    """What is typed. Leaves at once: the next key is the transcript's already."""

    def __init__(self, done: Callable[[bool], None], **arguments: Any) -> None:
        """done: told whether what stands there is to be searched."""
        super().__init__(**arguments)
        self._done = done

    def action_leave(self) -> None:
        """Nothing is to be searched."""
        self._done(False)

    async def action_submit(self) -> None:
        """Go to what is found."""
        self._done(True)


class SearchPrompt(ErrorBoundary, Vertical):
    """Hidden until it is opened."""

    BINDINGS = bindings("search")

    class Changed(Message):
        """Something else is asked for; it is still being written."""

    class Entered(Message):
        """Go to what is found."""

    class Left(Message):
        """Search nothing."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.line = SearchLine(self._leave, id="search-line")
        self.below = Bar(id="search-toggles")
        self.asked = Asked()
        self.earlier = Earlier()
        self._count: Line = ()

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield self.line
        yield self.below

    def open(self) -> None:
        """Appear, and take what is typed; the choices of last time stay."""
        self.asked = self.asked._replace(text="")
        self._count = ()
        self.earlier.begin()
        self.display = True
        self.line.ask("/", "text, pattern or words to look for")
        self.dress()

    def _leave(self, wanted: bool) -> None:
        """Hide, and give the focus back."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#transcript"))
        if wanted:
            self.asked = self.asked._replace(text=self.line.value)
            self.earlier.add(self.asked)
        say(self, self.Entered() if wanted else self.Left())

    def count(self, said: Line) -> None:
        """Say how much was found so far."""
        self._count = said
        self.dress()

    def dress(self) -> None:
        """Draw the choices and the count."""
        room = self.size.width or 80
        self.below.put(spread(self.asked.toggles(room), self._count, room))

    def on_resize(self) -> None:
        """More or fewer choices fit."""
        self.dress()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys is the prompt's while somebody writes in it."""
        event.stop()
        if isinstance(self.screen, HoustonScreen):
            self.screen.hints.area("search")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Something was typed."""
        event.stop()
        if self.asked.text != event.value:
            self._change(self.asked._replace(text=event.value))

    def action_turn(self, toggle: str) -> None:
        """Another choice of one of the three."""
        self._change(self.asked.turned(toggle))

    def action_earlier(self, by: int) -> None:
        """A search of before."""
        found = self.earlier.walk(by)
        if found is not None:
            self._change(found)
            self.line.value = found.text
            self.line.cursor_position = len(found.text)

    def _change(self, asked: Asked) -> None:
        self.asked = asked
        self.dress()
        say(self, self.Changed())
