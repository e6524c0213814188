"""What a step's terminals printed, whole: read from their logs, a block at a time; logs on another
machine are fetched first, by a command that can.

An observation holds a cut of it, and says so; here is the rest. The layout is the host's
(`terminal_folder`). Nothing is interpreted but line ends: what moved a cursor is shown as glyphs,
and the marks that the terminal's shell writes for the daemon are left out; secrets that this
process knows are too.
"""

import codecs
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from houston_console.headless.page import Page, span
from houston_shared import terminal_folder
from houston_shared.records import TerminalSpan
from houston_shared.safe_text import safe
from houston_shared.secret_values import redact

_BLOCK = 1 << 20
_MARK = re.compile("\x1b\\]7771;[^\x07\x1b]{0,90}\x07")


def show(page: Page, home: Path, host_root: str, rollout: str, printed: TerminalSpan) -> None:
    """All that one terminal printed during a step, under a line that says what it is.

    home: where the rollout's machines are known, for logs that are on another one.
    """
    size = printed.end - printed.start
    title = f"{size:,} bytes of terminal {printed.terminal} on {printed.host}"
    page.line("  ", span(title, "name"))
    folder = terminal_folder.terminals_folder(Path(host_root), rollout) / printed.terminal
    inside = terminal_folder.is_name(printed.terminal)
    if printed.host != "local":
        _from_there(page, home, rollout, printed)
        return
    if not host_root or not inside or not folder.is_dir():
        page.line("    ", span("its log is not on this machine", "dim"))
        return
    _print(page, blocks(folder, printed.start, printed.end))
    page.line("    ", span(f"byte for byte in {folder}", "dim"))


def _from_there(page: Page, home: Path, rollout: str, printed: TerminalSpan) -> None:
    """The same from another machine; where it cannot be reached, that is said."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        words = ["rollout", "printed", rollout, f"--host={printed.host}", f"--into={file}"]
        words += [f"--from={printed.start}", f"--to={printed.end}", "--", printed.terminal]
        done = subprocess.run(
            [sys.executable, "-m", "houston_shared.command", "--home", str(home), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            why = done.stderr.decode(errors="replace").removeprefix("houston: ").splitlines()
            page.line("    ", span(f"its log is on the host {printed.host}, not here", "dim"))
            page.line("    ", span(why[0] if why else "it could not be read", "dim"))
            return
        _print(page, _whole(file))


def _whole(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while data := opened.read(_BLOCK):
            yield data


def _print(page: Page, parts: Iterator[bytes]) -> None:
    for text in _lines(parts):
        page.line("    │ ", safe(redact(_MARK.sub("", text))))


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
