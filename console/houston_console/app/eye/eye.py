"""The eye: exactly what the model was given at one step, as messages, as text and as token ids."""

import asyncio
from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from houston_console.app.dialogs import TextLines
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, line
from houston_console.app.eye import lines as eye_lines
from houston_shared.store.context import ContextView

Make = Callable[[ContextView, int], list[Line]]


TABS: tuple[tuple[str, Make], ...] = (
    ("messages", eye_lines.messages),
    ("rendered", eye_lines.rendered),
    ("token ids", eye_lines.token_ids),
)


class Eye(ModalScreen[None]):
    """One request; `view` was read before."""

    BINDINGS = [
        ("escape,q,v", "close", "close"),
        ("y", "app.copy", "copy"),
        ("right,l,tab", "tab(1)", "next"),
        ("left,h,shift+tab", "tab(-1)", "before"),
        ("1", "show(0)", "messages"),
        ("2", "show(1)", "rendered"),
        ("3", "show(2)", "token ids"),
    ]

    def __init__(self, view: ContextView, step: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.view = view
        self.step = step
        self.tab = 0

    def compose(self) -> ComposeResult:
        """Facts above, one of three texts below."""
        with Vertical(id="eye"):
            found = TextLines([], id="eye-facts")
            found.can_focus = False
            yield found
            yield TextLines([], id="eye-text")

    async def on_mount(self) -> None:
        """Begin with the messages."""
        self.query_one("#eye-text", TextLines).focus()
        self.call_after_refresh(self.action_show, 0)

    async def action_show(self, tab: int) -> None:
        """Show one of the three; wrapped in a thread, a context may have 100,000 tokens."""
        self.tab = tab
        text = self.query_one("#eye-text", TextLines)
        above = self.query_one("#eye-facts", TextLines)
        facts = eye_lines.facts(self.view, self.step, above.room)
        above.styles.height = len(facts) + 1
        above.put(facts)
        lines = await asyncio.to_thread(TABS[tab][1], self.view, text.room)
        text.put(lines, at_end=True)  # what is new stands there
        names = [f"‹{name}›" if i == tab else name for i, (name, _) in enumerate(TABS)]
        box = self.query_one("#eye")
        title(box, f"What the model was given at step {self.step}   {'  '.join(names)}")
        subtitle(box, line("← → text   g G start, end   esc close"))

    async def action_tab(self, by: int) -> None:
        """The next text or the one before."""
        await self.action_show((self.tab + by) % len(TABS))

    async def on_resize(self) -> None:
        """Wrapped again for the new width."""
        self.call_after_refresh(self.action_show, self.tab)

    def action_close(self) -> None:
        """Done."""
        self.dismiss(None)
