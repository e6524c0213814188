"""What the parse actions found, and how it reads."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Parsed(Observation, frozen=True, kw_only=True):
    """A file as text, saved in the workspace, with a window of it."""

    kind: ClassVar[str] = "parsed"
    bulk: ClassVar[tuple[str, ...]] = ("content", "notes")
    file_path: str
    save_path: str
    change: str
    """`created` or `replaced`: what became of the file at `save_path`."""
    blind: bool
    """Whether it replaced a file that was not shown since it last changed."""
    first_line: int
    last_line: int
    total_lines: int | None
    size: int
    """Bytes of what was saved."""
    content: str
    notes: tuple[str, ...] = ()
    """What a reader must know of the conversion."""


@render.register
def _(one: Parsed) -> Text:
    span = "empty" if not one.total_lines else _span(one)
    more = one.total_lines is None or one.last_line < one.total_lines
    goes_on = "file_scroll_down goes on." if more else ""
    head = f"[{one.file_path} parsed into {one.save_path}: {span}, {one.size} bytes] {goes_on}"
    lines = [head.rstrip(), *(f"[{note}]" for note in one.notes)]
    return Text("\n".join(lines), one.content, "file_goto_line shows any line")


def _span(one: Parsed) -> str:
    total = "?" if one.total_lines is None else one.total_lines
    return f"lines {one.first_line}-{one.last_line} of {total}"
