"""The page of bookmarks and notes: choose one and go to its step."""

from collections.abc import Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.dialogs import Dialog
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, line, span
from houston_console.app.marks.listing import Mark, mark_line

NONE = " Nobody has left a bookmark (m) or a note (;) here."


class MarkList(LineView):
    """One line a bookmark or note."""

    def __init__(self, found: Sequence[Mark], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.found = found
        self.empty = line(span(NONE, "dim"))

    def line_count(self) -> int:
        """As many as there are."""
        return len(self.found)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return mark_line(self.found[number], self.room)


class MarksPage(Dialog[int | None]):
    """Answers with the step that was chosen."""

    BINDINGS = [("escape,q,L", "close", "close"), ("enter", "choose", "go there")]

    def __init__(self, found: Sequence[Mark]) -> None:
        super().__init__()
        self.list = MarkList(found)

    def compose(self) -> ComposeResult:
        """One list."""
        with Vertical(id="said") as box:
            title(box, "Bookmarks and notes of everybody")
            subtitle(box, line("enter go there   esc close"))
            yield self.list

    def action_choose(self) -> None:
        """Go to the step."""
        found = self.list.found
        self.dismiss(found[self.list.cursor].step if found else None)

    def action_close(self) -> None:
        """Nowhere."""
        self.dismiss(None)
