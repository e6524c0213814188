"""One line to type in: keys in the order they came, and text as it will be asked for."""

from typing import Any, ClassVar

from textual import events
from textual.binding import Binding
from textual.widgets import Input

from houston_console.app.error_boundary import PaneBoundary
from houston_shared.safe_text import safe_line

EDITING = {
    key: one.action
    for one in Input.BINDINGS
    if isinstance(one, Binding)
    for key in one.key.split(",")
}
"""What Textual's own line does by a key."""


class OneLine(PaneBoundary, Input):
    """Textual's line, whose keys do not overtake each other: bindings are done before the letters
    that were typed before them."""

    own: ClassVar[dict[str, str]] = {}
    """Actions by key that a kind of line has besides."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(select_on_focus=False, **arguments)
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        """A key that does something waits for the letters before it; a letter is Textual's, which
        takes it by itself after this."""
        if action := self.own.get(event.key) or EDITING.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def validate_value(self, value: str) -> str:
        """Whatever is typed or pasted is one line of safe text."""
        return safe_line(value)
