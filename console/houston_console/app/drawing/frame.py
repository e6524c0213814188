"""What every area has: a frame with a title, and text in it that is never read as markup."""

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from houston_console.app.drawing.lines import Line, plain
from houston_shared.safe_text import safe_line


def title(widget: Widget, text: str) -> None:
    """Write the title of a frame, unless it says so already (it would be drawn again)."""
    clean = Content(safe_line(text))
    if widget.border_title != clean.markup:
        _write(widget, "_border_title", clean, -1)


def subtitle(widget: Widget, parts: Line) -> None:
    """Write on the lower edge of a frame."""
    text = plain(parts).strip()
    clean = Content(text)
    if widget.border_subtitle != clean.markup:
        _write(widget, "_border_subtitle", clean, widget.outer_size.height - 2)


def _write(widget: Widget, name: str, text: Content, line: int) -> None:
    """Set a title as Textual 8.2 does, which would draw the whole area again, not only its edge.

    line: of the edge, counted from the first line of what is inside.
    """
    setattr(widget, name, text)
    widget.refresh(Region(-1, line, widget.outer_size.width, 1))
