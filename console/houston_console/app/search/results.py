"""The page of places that a search has found, while it grows: choose one and go there."""

from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.dialogs import Dialog
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, line, span
from houston_console.app.search.asked import NAMES
from houston_console.app.search.found import LISTED, Found, hit_line, place
from houston_shared.store.finding.looking import Hit


class Places(LineView):
    """One line a place."""

    def __init__(self, found: Found, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.found = found
        self._counted, self._cells = 0, 0

    def line_count(self) -> int:
        """As many as are kept."""
        return len(self.found.hits)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return hit_line(self.found.hits[number], self.room, self._longest())

    def _longest(self) -> int:
        """Cells of the longest place, counted as more are found."""
        new = self.found.hits[self._counted :]
        self._counted += len(new)
        self._cells = max([self._cells, *(cell_len(place(hit)) for hit in new)])
        return self._cells


class Results(Dialog[Hit | None]):
    """Answers with the place that was chosen."""

    BINDINGS = [("escape,q,l", "close", "close"), ("enter", "choose", "go there")]

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.places = Places(found)
        self._box = Vertical(self.places, id="results")

    def compose(self) -> ComposeResult:
        """One list."""
        yield self._box

    def on_mount(self) -> None:
        """Stand where somebody went last."""
        self.grew()
        self.call_after_refresh(self.places.put_cursor, max(0, self.places.found.at))

    def grew(self) -> None:
        """More was found."""
        found = self.places.found
        query, box = found.query, self._box
        where = " · ".join(NAMES[one] for one in (query.mode, query.where, query.what))
        more = "" if found.done else "…"
        title(box, f"/{query.text}  {found.count}{more} found · {where}")
        kept = f"the first {LISTED:,} are listed   " if found.count > len(found.hits) else ""
        notes = f"{'  '.join(found.notes)}   " if found.notes else ""
        subtitle(box, line(f"{notes}{kept}enter go there   esc close"))
        words = " Nothing was found." if found.done else " being looked for …"
        self.places.empty = line(span(words, "dim"))
        self.places.show()

    def action_choose(self) -> None:
        """Go there."""
        hits = self.places.found.hits
        if hits:
            self.places.found.at = self.places.cursor
        self.dismiss(hits[self.places.cursor] if hits else None)

    def action_close(self) -> None:
        """Nowhere."""
        self.dismiss(None)
