"""What the preview of a rollout reads: as much as a screen shows, however long the rollout is.

Scores, where on its active time errors and guidance lie (counted by the database into a fixed
number of places), the last steps as folded rows, and the end of the terminal that printed last.
Nothing is drawn here.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_console.app.key_bindings import key_label
from houston_console.panes.terminal_emulator import TerminalEmulator
from houston_console.panes.terminal_log_reader import PAINTS, read_log_bytes
from houston_console.transcript.trajectory_reader import FoldedStepRow, read_step_rows
from houston_console.widgets.styled_text import TextLine
from houston_shared import terminal_log_files
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.store import journal_events, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.rollout_queries import ScorePoint

MARK_PLACES = 240
"""Places on the active time of a rollout into which errors and guidance are counted."""
MAX_CHART_SCORES = 1_000
"""Scores that the curve is made of at most: the newest."""
PREVIEW_STEPS = 30
"""Last steps that are read."""
TAIL_BYTES = 8 * 1024
"""Bytes of a terminal's log that are read, from its end."""
PAINTED_BYTES = 256 * 1024
"""Bytes of it that are read where a program paints its screen: it does not paint all of it anew."""
TAIL_LINES = 50
"""Lines of them that are kept: a screen."""


class TerminalTail(NamedTuple):
    """The end of what a rollout's terminals printed."""

    name: str = ""
    """Of the terminal; empty where none printed anything."""
    lines: tuple[TextLine, ...] = ()
    reason: str = ""
    """Why its lines cannot be seen here."""
    cursor: int = -1
    """The line with the cursor of a program that has the whole screen; −1 while none has it."""


class _HostFolder(msgspec.Struct, frozen=True):
    host_root: str = ""


class RolloutPreview(NamedTuple):
    """What was read of one rollout."""

    rollout: str
    seq: int
    """Its newest event then."""
    active_us: int
    """Active time on which scores and marks lie, microseconds."""
    scores: Sequence[ScorePoint]
    error_places: frozenset[int]
    """Places of `MARK_PLACES` with a step that has errors."""
    guidance_places: frozenset[int]
    """Places with a step that heard guidance."""
    steps: Sequence[FoldedStepRow]
    """The last ones, oldest first."""
    host_root: str
    """Where this machine keeps its terminals; empty where that is not known."""
    other_terminal: str = ""
    """`host:name` of the terminal that printed last, where that is on another machine."""


_MARKS_SQL = """
SELECT active_us * ?4 / ?5, max(errors > 0), max(guided > 0) FROM steps
WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1 AND (errors > 0 OR guided > 0)
GROUP BY 1
"""


def read_preview(rollout: str) -> ReadPlan[RolloutPreview]:
    """All of it but the terminal's lines. Raises HoustonError where there is no such rollout."""
    row = yield from rollout_queries.find_rollout(rollout)
    scores = yield from rollout_queries.score_history((rollout,), MAX_CHART_SCORES)
    last = yield from step_queries.find_last_step(rollout)
    end = max(1, row.active_us, *(point.active_us for point in scores[rollout]))
    errors: set[int] = set()
    guidance: set[int] = set()
    for part in (yield from rollout_queries.step_ranges(rollout)):
        for place, has_error, has_guidance in (yield RunSql(_MARKS_SQL, (*part, MARK_PLACES, end))):
            at = min(MARK_PLACES - 1, int(place))
            errors |= {at} if has_error else set()
            guidance |= {at} if has_guidance else set()
    spec = yield from journal_events.read_record_at(row.spec_seq, _HostFolder, _HostFolder())
    steps = yield from read_step_rows(rollout, max(1, last - PREVIEW_STEPS + 1), last)
    return RolloutPreview(
        rollout=rollout,
        seq=row.last_seq,
        active_us=end,
        scores=scores[rollout],
        error_places=frozenset(errors),
        guidance_places=frozenset(guidance),
        steps=steps,
        host_root=spec.host_root,
        other_terminal=(yield from _read_other_terminal(rollout)),
    )


def _read_other_terminal(rollout: str) -> ReadPlan[str]:
    """The terminal that a step recorded last, where it is on another machine."""
    rows = yield RunSql(
        "SELECT host, name FROM terminals WHERE rollout = ? ORDER BY last_seq DESC LIMIT 1",
        (rollout,),
    )
    return next((f"{host}:{name}" for host, name in rows if host != LOCAL_HOST), "")


def read_terminal_tail(preview: RolloutPreview) -> TerminalTail:
    """The last lines of the terminal that printed last. Files: to be called from a thread."""
    if preview.other_terminal:
        key = key_label("terminals", "fetch")
        return TerminalTail(
            preview.other_terminal,
            (),
            f"Its log is on that machine: enter, 3, then {key} fetches it.",
        )
    if not preview.host_root:
        return TerminalTail()
    try:
        return _read_local_tail(Path(preview.host_root), preview.rollout)
    except OSError as problem:
        return TerminalTail("terminal", (), f"Its log cannot be read ({problem.strerror}).")


def _read_local_tail(host_root: Path, rollout: str) -> TerminalTail:
    terminals = terminal_log_files.terminals_folder(host_root, rollout)
    ends: list[tuple[int, str, int]] = []
    for name in terminal_log_files.terminals_with_log(terminals):
        offset, path = terminal_log_files.list_segments(terminals / name)[-1]
        facts = path.stat()
        ends.append((facts.st_mtime_ns, name, offset + facts.st_size))
    if not ends:
        return TerminalTail()
    written_at, name, end = max(ends)
    return _draw_tail(terminals / name, end, written_at)


@lru_cache(maxsize=8)
def _draw_tail(folder: Path, end: int, written_at: int) -> TerminalTail:
    """The end of a log of `end` bytes as its terminal shows it; written_at: of its last byte."""
    start = max(0, end - TAIL_BYTES)
    data = read_log_bytes(folder, start, end)
    if PAINTS.search(data):
        start = max(0, end - PAINTED_BYTES)
        data = read_log_bytes(folder, start, end)
        if (began := _screen_begin(data)) >= 0:
            data, start = data[began:], 0
    if start:  # from the first whole line on: the cut may lie within a sequence
        data = data[data.find(b"\n") + 1 :]
    screen = TerminalEmulator()
    screen.feed(data)
    lines = [parts for parts, _ in screen.lines()]
    if screen.packed().alternate is not None:  # a program has it: no prompt is below
        return TerminalTail(folder.name, tuple(lines[-TAIL_LINES:]), "", screen.cursor_line())
    while lines and not lines[-1]:
        lines.pop()
    return TerminalTail(folder.name, tuple(lines[-TAIL_LINES:]))


_TAKES_SCREEN = (b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h")
_GIVES_SCREEN_BACK = (b"\x1b[?1049l", b"\x1b[?1047l", b"\x1b[?47l")
_CLEARS_SCREEN = (b"\x1b[2J", b"\x1b[H\x1b[J")


def _screen_begin(data: bytes) -> int:
    """Where the screen begins that is shown at the end of `data`; −1 where that is not in it."""
    taken_at, given_at, cleared_at = (
        max(map(data.rfind, sequences))
        for sequences in (_TAKES_SCREEN, _GIVES_SCREEN_BACK, _CLEARS_SCREEN)
    )
    if taken_at > given_at:
        return taken_at
    if cleared_at > given_at:
        return cleared_at
    return given_at if taken_at < 0 else -1
