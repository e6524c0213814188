"""Logs of real terminals are drawn as tmux showed them, however their pages are cut and grow.

The logs, and what tmux showed of each, were recorded by `record_terminals`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from houston_console.panes import terminal_log_reader as logs
from houston_console.panes.terminal_log_reader import (
    LogIndex,
    count_lines,
    line_at_byte,
    parse_all_lines,
    parse_tail_lines,
    update_log_index,
)
from houston_console.panes.terminals_pane import TerminalView
from houston_console.widgets.styled_text import line_text
from houston_shared import terminal_log_files
from houston_shared.records import TerminalSpan
from houston_shared.store.journal_search import _lines_of_segment
from houston_shared.store.search_matching import SearchMatcher, SearchQuery
from tests.console.conftest import SMALL, Sit
from tests.console.home_builder import HomeBuilder
from tests.console.record_terminals import ON_ONE_LINE, RECORDED, STILL_OPEN

SESSIONS: dict[str, tuple[bytes, dict[str, Any]]] = {
    told["name"]: (path.with_suffix(".log").read_bytes(), told)
    for path in sorted(RECORDED.glob("*.json"))
    for told in [json.loads(path.read_text())]
}


def _as_tmux_joins(lines: list[str], name: str) -> list[str]:
    """A prompt behind an output without line feed has a line of its own here, and none in tmux."""
    if name != ON_ONE_LINE:
        return lines
    joined: list[str] = []
    for line in lines:
        after_text = joined and line.startswith("/workspace $") and joined[-1] in WITHOUT_FEED
        joined[-1:] = [joined[-1] + line] if after_text else [*joined[-1:], line]
    return joined


WITHOUT_FEED = ("no line feed", "again")


@pytest.mark.parametrize("name", SESSIONS)
def test_a_real_terminal_is_drawn_as_tmux_shows_it(name: str) -> None:
    data, session = SESSIONS[name]
    drawn = [line_text(line).rstrip() for line in parse_tail_lines(data)]
    if name == STILL_OPEN:  # behind what stood there before
        assert drawn[0] == "/workspace $ echo before"
        drawn = drawn[-len(session["tmux"]) :]
    assert _as_tmux_joins(drawn, name) == session["tmux"]
    assert count_lines(data) == len(parse_all_lines(data))


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("page", [64, 500, 32 * 1024])
def test_pages_of_a_real_terminal_have_its_lines_as_it_grows(
    name: str, page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PAGE_BYTES", page)
    data, session = SESSIONS[name]
    whole = [line_text(line) for line in parse_all_lines(data)]
    index = LogIndex(tmp_path)
    for end in (*session["starts"], len(data)):
        terminal_log_files.segment_file(tmp_path, 0).write_bytes(data[:end])
        index = update_log_index(index)
        drawn = [line_text(index.line(number)) for number in range(index.lines)]
        assert drawn == [line_text(line) for line in parse_all_lines(data[:end])]
    assert drawn == whole


@pytest.mark.parametrize("name", SESSIONS)
def test_a_step_is_marked_where_its_output_begins(name: str, tmp_path: Path) -> None:
    data, session = SESSIONS[name]
    terminal_log_files.segment_file(tmp_path, 0).write_bytes(data)
    index = update_log_index(LogIndex(tmp_path))
    for command, start in zip(session["commands"], session["starts"], strict=True):
        before = line_text(index.line(index.line_of(start) - 1))
        assert f"$ {command.splitlines()[0]}"[:60] in before


def test_a_hit_is_on_the_line_that_is_drawn(tmp_path: Path) -> None:
    data, _ = SESSIONS[ON_ONE_LINE]
    segment = terminal_log_files.segment_file(tmp_path, 0)
    segment.write_bytes(data)
    index = update_log_index(LogIndex(tmp_path))
    for words in ("no line feed", "echo next", "again", "$ true"):
        hits = [
            hit
            for hit in _lines_of_segment(SearchMatcher(SearchQuery(words)), segment)
            if hit[1] is not None
        ]
        for offset, _ in hits:
            assert words in line_text(index.line(index.line_of(offset)))
        assert hits


PIECES = [
    *(b"\x1b]7771;p;\x07", b"\x1b]7771;e;00;0\x07", b"\x1b]7771;s;00\x07", b"\x1b]0;title\n\x07"),
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\t",
        b"\b",
        b"a",
        b" ",
        b"]",
        b"[",
        b"\x07",
        b"\xff",
        b"\xe4\xb8\xad",
    ),
    *(
        b"\x1b[K",
        b"\x1b[1K",
        b"\x1b[2K",
        b"\x1b[9G",
        b"\x1b[31m",
        b"\x1b",
        b"\x1b]",
        b"\x1bP",
        b"\x1b\\",
    ),
]
printed = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=30).map(b"".join)


@example(b"\xc2\x1b]7771;p;\x07")
@example(b"\n \x1b]7771;p;\x07")
@example(b"a\x1b[1K\x1b]7771;p;\x07\x1b]7771;p;\x07")
@given(printed)
def test_lines_are_counted_as_they_are_drawn(data: bytes) -> None:
    assert count_lines(data) == len(parse_all_lines(data))


@given(printed, printed)
def test_a_byte_is_in_a_line_that_is_drawn(before: bytes, after: bytes) -> None:
    lines = len(parse_all_lines(before + after))
    assert 0 <= line_at_byte(before + after, len(before)) <= lines


async def test_a_terminal_that_is_followed_shows_its_last_command(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    data, session = SESSIONS["many commands"]
    folder = terminal_log_files.terminals_folder(tmp_path / "host", "r") / "main"
    folder.mkdir(parents=True)
    segment = terminal_log_files.segment_file(folder, 0)
    segment.write_bytes(data[: session["starts"][0]])
    with builder.bulk():
        builder.start("r", host_root=str(tmp_path / "host"))
        span = TerminalSpan(host="local", terminal="main", start=0, end=session["starts"][0])
        builder.whole("r", 1, "runs", spans=(span,))
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("3")
        await seat.until(lambda: "output of command 1" in seat.text(TerminalView), "opened")
        for command, end in enumerate((*session["starts"][1:], len(data)), start=1):
            segment.write_bytes(data[:end])
            await seat.until(
                lambda end=end: seat.app.watch_screen.terminals.text._index.end == end, "grown"
            )
            assert f"output of command {command}" in seat.text(TerminalView)
