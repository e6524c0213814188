"""What terminals printed, from their raw logs on this machine, line by line, the newest log first.

Escape sequences are left out before anything is compared; what is in a line is told with the step
that printed it. Logs on other machines are not looked at, and that is said.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from houston_shared import terminal_folder
from houston_shared.secret_values import redact
from houston_shared.store.finding.query import Matcher, TooSlow
from houston_shared.store.queries import rollouts, world
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

BLOCK = 1 << 20
"""Bytes read at once."""
LONGEST = 64 * 1024
"""Bytes of a line that are kept for one that has no end."""
_ESCAPES = re.compile(
    rb"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    rb"|\x1b[()][0-9A-B]|\x1b[@-Z\\^_=>]"
)

_LINES = re.compile(
    rb"(?:\x1b\]7771;p;)?[^\r\n\x1b]*(?:\x1b(?!\]7771;p;)[^\r\n\x1b]*)*(?:\r\n|\r|\n)?"
)
"""Lines as the console draws them: a prompt begins one, whatever stands before it."""


class Line(NamedTuple):
    """A line that may hold it."""

    rollout: str
    step: int
    terminal: str
    text: str
    byte: int
    """Where in the terminal's log it begins."""


def lines(reader: Reader, matcher: Matcher, notes: list[str]) -> Iterator[Line | None]:
    """Lines in which it is, and None after each block that was read.

    notes: takes what could not be looked at.
    """
    for one in _rollouts(reader, matcher):
        root = reader.run(rollouts.spec(one)).host_root
        far = sorted({t.host for t in reader.run(world.terminals(one.id)) if t.host != "local"})
        if far:
            notes.append(f"{one.id}: logs on {', '.join(far)} are not on this machine.")
        if root:
            folder = terminal_folder.terminals_folder(Path(root), one.id)
            for name in terminal_folder.with_log(folder):
                yield from _of_terminal(reader, matcher, one.id, folder / name, notes)


def _rollouts(reader: Reader, matcher: Matcher) -> list[Rollout]:
    query = matcher.query
    found = reader.run(rollouts.all_rollouts(query.task if query.where == "task" else ""))
    if query.where == "rollout":
        found = [one for one in found if one.id == query.rollout]
    return sorted(found, key=lambda one: -one.created_at)


def _of_terminal(
    reader: Reader, matcher: Matcher, rollout: str, folder: Path, notes: list[str]
) -> Iterator[Line | None]:
    spans = reader.run(world.spans(rollout, "local", folder.name))
    starts = [(span.start, span.step) for span in spans]
    try:
        for at, path in reversed(terminal_folder.segments(folder)):
            for offset, raw in _of_segment(matcher, path):
                if raw is None:
                    yield None
                    continue
                text = redact(_plain(raw).decode("utf-8", "replace"))
                yield Line(rollout, _step(starts, at + offset), folder.name, text, at + offset)
    except OSError as problem:
        notes.append(f"{rollout}: the log of {folder.name} could not be read ({problem}).")


def _step(starts: list[tuple[int, int]], offset: int) -> int:
    """The step that printed the byte at `offset` of a log; 0 before the first."""
    found = bisect_right(starts, (offset, 2**62))
    return starts[found - 1][1] if found else 0


def _of_segment(matcher: Matcher, path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Lines that hold it with their offsets in the file; (0, None) after each block."""
    with path.open("rb") as file:
        offset, rest = 0, b""
        while data := file.read(BLOCK):
            whole = rest + data
            cut = whole.rfind(b"\n") + 1 or (len(whole) if len(whole) > LONGEST else 0)
            yield from _of_block(matcher, whole[:cut], offset)
            offset, rest = offset + cut, whole[cut:]
            yield 0, None
        yield from _of_block(matcher, rest, offset)


def _of_block(matcher: Matcher, block: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    if not matcher.possible(_plain(block)):
        return
    for found in _LINES.finditer(block):
        if _holds(matcher, found.group()):
            yield offset + found.start(), found.group().rstrip(b"\r\n")


def _holds(matcher: Matcher, raw: bytes) -> bool:
    plain = _plain(raw)
    if not matcher.possible(plain):
        return False
    try:
        return matcher.first(plain.decode("utf-8", "replace")) is not None
    except TooSlow:
        return True  # counted where it is looked at again


def _plain(raw: bytes) -> bytes:
    return _ESCAPES.sub(b"", raw) if b"\x1b" in raw else raw
