"""A question that is answered with words, above everything else."""

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.bars import HintBar
from houston_console.app.dialogs import Dialog, TextLines
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, block, line
from houston_console.app.keys import bindings
from houston_console.app.one_line import OneLine

WIDTH = 58
"""Cells of a line in the box."""


class Question(Dialog[tuple[str, ...] | None]):
    """One box with a line for each thing that is asked; None when it was left."""

    BINDINGS = bindings("words")

    def __init__(self, name: str, text: str, asked: dict[str, str]) -> None:
        """name: on the frame. asked: what stands in each line at first, by what is asked."""
        super().__init__()
        self._title, self._text, self._asked = name, text, asked
        self.fields = [OneLine(value=value) for value in asked.values()]

    def compose(self) -> ComposeResult:
        """The question, then each line under what it is for."""
        with Vertical(id="question") as box:
            title(box, self._title)
            subtitle(box, line("enter do it   esc leave it"))
            yield _lines(block(self._text, WIDTH, "strong"))
            for name, field in zip(self._asked, self.fields, strict=True):
                yield _lines(block(name, WIDTH, "dim"))
                yield field
        keys = HintBar()  # in place of the keys of the area behind it
        keys.area("words")
        keys.styles.dock = "bottom"
        yield keys

    def on_mount(self) -> None:
        """Write in the last line: those before it stand right as a rule."""
        self.fields[-1].focus()

    def on_input_submitted(self) -> None:
        """Done."""
        self.dismiss(tuple(field.value for field in self.fields))

    def action_leave(self) -> None:
        """Nothing is done."""
        self.dismiss(None)


def _lines(lines: list[Line]) -> TextLines:
    text = TextLines(lines)
    text.styles.height, text.can_focus = len(lines), False
    return text
