"""What every area has: a frame with a title, and text in it that is never read as markup."""

from textual.content import Content
from textual.widget import Widget

from houston_console.app.drawing.lines import Line, plain
from houston_shared.safe_text import safe_line


def title(widget: Widget, text: str) -> None:
    """Write the title of a frame, unless it says so already (it would be drawn again)."""
    clean = Content(safe_line(text))
    if widget.border_title != clean.markup:
        widget.border_title = clean


def subtitle(widget: Widget, parts: Line) -> None:
    """Write on the lower edge of a frame."""
    text = plain(parts).strip()
    clean = Content(text)
    if widget.border_subtitle != clean.markup:
        widget.border_subtitle = clean
