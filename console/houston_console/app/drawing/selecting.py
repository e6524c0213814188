"""A selection made with the mouse, on lines that are drawn already."""

from rich.style import Style
from textual.strip import Strip


def over(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """`strip` with the characters of `span` in `style`; an end of -1 is the end of the line."""
    first = strip.index_to_cell_position(span[0])
    last = strip.cell_length if span[1] < 0 else strip.index_to_cell_position(span[1])
    if last <= first:
        return strip
    before, within, after = strip.divide([first, last, strip.cell_length])
    return Strip.join([before, within.apply_style(style), after])


def cut(text: str, span: tuple[int, int]) -> str:
    """The characters of `span`, without the space that fills the line."""
    return (text[span[0] :] if span[1] < 0 else text[span[0] : span[1]]).rstrip()
