"""What a step's terminals printed, whole: read from their logs on this machine, a block at a time.

An observation holds a cut of it, and says so; here is the rest. The layout is the host's
(`terminal_folder`). Nothing is interpreted but line ends: what moved a cursor is shown as glyphs,
and the marks that the terminal's shell writes for the daemon are left out; secrets that this
process knows are too.
"""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from houston_console.headless.page import Page, span
from houston_shared import terminal_folder
from houston_shared.records import TerminalSpan
from houston_shared.safe_text import safe
from houston_shared.secret_values import redact

_BLOCK = 1 << 20
_MARK = re.compile("\x1b\\]7771;[^\x07\x1b]{0,90}\x07")


def show(page: Page, host_root: str, rollout: str, printed: TerminalSpan) -> None:
    """All that one terminal printed during a step, under a line that says what it is."""
    size = printed.end - printed.start
    title = f"{size:,} bytes of terminal {printed.terminal} on {printed.host}"
    page.line("  ", span(title, "name"))
    folder = terminal_folder.terminals_folder(Path(host_root), rollout) / printed.terminal
    inside = terminal_folder.is_name(printed.terminal)
    if printed.host != "local":
        page.line("    ", span(f"its log is on the host {printed.host}, not here", "dim"))
        return
    if not host_root or not inside or not folder.is_dir():
        page.line("    ", span("its log is not on this machine", "dim"))
        return
    for text in _lines(blocks(folder, printed.start, printed.end)):
        page.line("    │ ", safe(redact(_MARK.sub("", text))))
    page.line("    ", span(f"byte for byte in {folder}", "dim"))


def blocks(folder: Path, start: int, end: int) -> Iterator[bytes]:
    """The bytes of [start, end) of a log, whatever segments they lie in."""
    for at, path in terminal_folder.segments(folder):
        with path.open("rb") as file:
            file.seek(max(0, start - at))
            left = end - at - file.tell()
            while left > 0 and (data := file.read(min(_BLOCK, left))):
                left -= len(data)
                yield data


def _lines(parts: Iterator[bytes]) -> Iterator[str]:
    """Lines of text; what is not UTF-8 is U+FFFD, and no block's edge shows."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest: list[str] = []
    for part in parts:
        *whole, last = decoder.decode(part).split("\n")
        for line in whole:
            yield "".join([*rest, line]).removesuffix("\r")
            rest = []
        rest.append(last)
    if left := "".join([*rest, decoder.decode(b"", True)]):
        yield left.removesuffix("\r")
