"""Questions and the help page, above everything else."""

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType

from houston_console.app.bars import HintBar
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, block, fit, line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import TITLES, Area, bindings, chain, of
from houston_console.app.one_line import OneLine


class TextLines(LineView):
    """Fixed lines to read, made for the width there is."""

    has_cursor = False

    def __init__(self, lines: list[Line], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._lines = lines

    def line_count(self) -> int:
        """As many as there are."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self._lines[number]

    def put(self, lines: list[Line], at_end: bool = False) -> None:
        """Show other lines, from their start or their end."""
        self._lines = lines
        self.show()
        self.jump(len(lines) if at_end else 0)


class Dialog(ErrorBoundary, ModalScreen[ScreenResultType]):
    """Above everything else until it is answered, once."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Answer and close. A second key may have come before the first had closed it: that one
        does nothing, where Textual would close what lies below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Confirm(Dialog[bool]):
    """Yes or no; anything but `y` is no."""

    BINDINGS = bindings("question")

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__()
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        """The question and what it is about."""
        with Vertical(id="confirm") as box:
            title(box, "Sure?")
            subtitle(box, line("y yes   n no"))
            lines = block(self._question, 58, "strong")
            if self._text:
                lines += [(), *block(self._text, 58, "guidance_text")[:8]]
            text = TextLines(lines)
            text.styles.height = len(lines)
            yield text
        keys = HintBar()  # in place of the keys of the area behind it
        keys.area("question")
        keys.styles.dock = "bottom"
        yield keys

    def action_answer(self, yes: bool) -> None:
        """Done."""
        self.dismiss(yes)


class Help(Dialog[None]):
    """Every key, those of where one is before the others."""

    BINDINGS = [("escape,q,question_mark,f1", "close", "close")]

    def __init__(self, area: Area) -> None:
        """area: where the focus is."""
        super().__init__()
        self._area: Area = area

    def compose(self) -> ComposeResult:
        """One list."""
        with Vertical(id="help") as box:
            title(box, "Keys")
            subtitle(box, line("esc close"))
            yield TextLines(_help_lines(self._area))

    def action_close(self) -> None:
        """Done."""
        self.dismiss(None)


def _help_lines(here: Area) -> list[Line]:
    found: list[Line] = []
    near = chain(here)
    for area, name in sorted(
        TITLES, key=lambda one: near.index(one[0]) if one[0] in near else len(near)
    ):
        found.append(line(span(f" {name}", "title")))
        found += [
            line(span("   "), span(fit(one.shown, 12), "tool"), span(one.does)) for one in of(area)
        ]
        found.append(())
    return found


class Prompt(OneLine):
    """One line to type in, at the lower edge of the trajectory: a search, or a step's number."""

    own = {"escape": "leave"}
    kind = ""

    def __init__(self, taken: Callable[[str], None] | None = None, **arguments: Any) -> None:
        """taken: told at once what was typed, before any key that follows; else Submitted tells."""
        super().__init__(**arguments)
        self._taken = taken

    def ask(self, kind: str, placeholder: str) -> None:
        """Appear and take the focus. kind: `/` or `:`."""
        self.kind, self.value, self.placeholder = kind, "", placeholder
        self.display = True
        self.screen.set_focus(self)  # at once: the next key is its own

    async def _on_key(self, event: events.Key) -> None:
        """A key in one breath with the enter before it is for what has the focus since."""
        focused = self.screen.focused
        if focused is not None and focused is not self:
            event.stop()
            event.prevent_default()
            focused._forward_event(events.Key(event.key, event.character))

    async def action_submit(self) -> None:
        """Ask, and leave at once: the next key is no letter of this."""
        self.keep()
        if self._taken is None:
            await super().action_submit()
        else:
            self._taken(self.value.strip())

    def keep(self) -> None:
        """What was typed stays what is asked."""
        self.action_leave()

    def action_leave(self) -> None:
        """Nothing was asked."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#transcript"))
