"""Everything that was said of a step, oldest first, as lines and as a page to read."""

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.dialogs import Dialog, TextLines
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, block, line, span
from houston_console.app.transcript.margin import VERDICTS
from houston_shared.clock import local
from houston_shared.store.queries import verdicts
from houston_shared.store.queries.verdicts import Given


def history_lines(said: Sequence[verdicts.Said], stands: Sequence[Given], width: int) -> list[Line]:
    """One paragraph a word that was said; what counts now comes last."""
    found: list[Line] = []
    for one in said:
        glyph, tone = VERDICTS.get(one.verdict, ("–", "dim"))
        ends = f"step {one.first}" if one.first == one.last else f"steps {one.first}–{one.last}"
        who = one.by if one.verified else f"{one.by} (unverified)"
        when = span(f"  {who}, {local(one.at)}  ", "dim")
        head = line(span(f" {glyph} {one.verdict}", tone), when, span(ends, "number"))
        found += [head, *(block(one.reason, width, "text", span("   ")) if one.reason else [])]
    if not found:
        found.append(line(span(" Nobody has said anything of it.", "dim")))
    told = [f"{one.source}: {one.verdict}" for one in stands]
    now = f"{told[0]} counts" if told else "undecided: no source has said anything that stands"
    outranked = f"; outranked: {', '.join(told[1:])}" if told[1:] else ""
    return [*found, (), *block(f"now  {now}{outranked}", width, "strong", span(" "))]


class Said(Dialog[None]):
    """A page to read."""

    BINDINGS = [("escape,q,enter,H", "close", "close")]

    def __init__(self, heading: str, make: Callable[[int], list[Line]]) -> None:
        """make: the lines for a width."""
        super().__init__()
        self._heading = heading
        self._make = make
        self._text = TextLines([])

    def compose(self) -> ComposeResult:
        """One text."""
        with Vertical(id="said") as box:
            title(box, self._heading)
            subtitle(box, line("esc close"))
            yield self._text

    def on_resize(self) -> None:
        """Wrapped for the width there is."""
        self.call_after_refresh(lambda: self._text.put(self._make(self._text.room), at_end=True))

    def action_close(self) -> None:
        """Done."""
        self.dismiss(None)
