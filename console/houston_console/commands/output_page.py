"""What a reading command prints: lines of spans, coloured on a terminal, plain elsewhere.

Every span goes through `safe`, so nothing an agent or a file says can move the cursor. Tables fit
their columns. rich is imported only when a terminal wants colours. JSON is written by
`houston_shared.command_output`.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from houston_shared import command_output
from houston_shared.safe_text import SafeText, safe, safe_line

RICH_STYLES = {
    "name": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "red",
    "person": "bold yellow",
    "call": "cyan",
    "match": "bold reverse",
}
"""Tone → rich style. A tone never carries meaning alone: the words say it too."""


COLUMN_GAP = 2
"""Characters between the columns of a table."""
MAX_LINE_CHARACTERS = 400
"""Characters of a line in a block that is cut."""


class OutputSpan(NamedTuple):
    """A stretch of text in one tone."""

    text: SafeText
    tone: str = ""


def span(text: object, tone: str = "") -> OutputSpan:
    """Any value as a span that stays on its line."""
    return OutputSpan(safe_line(str(text)), tone)


class OutputPage:
    """Standard output as lines of spans."""

    def __init__(self) -> None:
        """Colours when stdout is a terminal, unless NO_COLOR is set or it is dumb."""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "", "dumb")
        self._console: Any = None
        if sys.stdout.isatty() and not plain:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def line(self, *spans: OutputSpan | str) -> None:
        """One line; a plain string is a span without a tone and may hold line breaks."""
        if self._console is None:
            command_output.print_line(
                "".join(part if isinstance(part, str) else part.text for part in spans)
            )
            return
        from rich.text import Text

        text = Text()
        for part in spans:
            content, tone = (part, "") if isinstance(part, str) else part
            text.append(safe(content), RICH_STYLES.get(tone, ""))
        with command_output.guard_stdout():
            self._console.print(text)

    def block(self, text: str, indent: str, tone: str = "", limit: int = 0) -> None:
        """Text over several lines, indented; with `limit`, what is cut is counted."""
        lines = text.removesuffix("\n").split("\n") if text else []
        shown_lines = lines[:limit] if limit and len(lines) > limit + 1 else lines
        for line in shown_lines:
            self.line(indent, OutputSpan(safe(_cut_long_line(line) if limit else line), tone))
        if len(shown_lines) < len(lines):
            self.line(indent, span(f"… {len(lines) - len(shown_lines)} more lines (--full)", "dim"))

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[OutputSpan]]) -> None:
        """Columns as wide as they need to be; numbers (titles ending in `#`) to the right."""
        body = list(rows)
        right = [title.endswith("#") for title in titles]
        heads = [span(title.rstrip("#"), "dim") for title in titles]
        grid = [heads, *body]
        widths = self.widths(titles, body)
        for row in grid:
            cells = [
                _pad_cell(cell, width, to_right)
                for cell, width, to_right in zip(row, widths, right, strict=True)
            ]
            between = [part for cell in cells[:-1] for part in (cell, " " * COLUMN_GAP)]
            self.line(*between, OutputSpan(safe(cells[-1].text.rstrip()), cells[-1].tone))

    @staticmethod
    def widths(titles: Sequence[str], rows: Iterable[Sequence[OutputSpan]]) -> list[int]:
        """How wide the columns of a table are, without what is between them (`COLUMN_GAP`)."""
        heads = [len(title.rstrip("#")) for title in titles]
        columns = zip(heads, *([len(cell.text) for cell in row] for row in rows), strict=True)
        return [max(column) for column in columns]

    def flush(self) -> None:
        """Let a reader at the pipe's end see it now."""
        command_output.flush_stdout()


def _cut_long_line(line: str) -> str:
    """A line that fits a few rows of a terminal."""
    over = len(line) - MAX_LINE_CHARACTERS
    return line if over <= 0 else f"{line[:MAX_LINE_CHARACTERS]}… {over} more characters (--full)"


def _pad_cell(cell: OutputSpan, width: int, to_right: bool) -> OutputSpan:
    text = cell.text.rjust(width) if to_right else cell.text.ljust(width)
    return OutputSpan(safe(text), cell.tone)
