"""The last line that a terminal printed, as its log has it."""

from pathlib import Path

import pytest

from houston_shared.terminal_log_files import read_last_line, segment_file

LINES = {
    "a line": (b"one\r\ntwo\r\n", "two"),
    "a line without its end": (b"one\r\ntwo", "two"),
    "empty lines at the end": (b"one\r\n\r\n  \r\n", "one"),
    "a progress bar": (b"10 %\r50 %\r100 %", "100 %"),
    "colours": (b"\x1b[31mred\x1b[0m \x1b[1mbold\x1b[0m\r\n", "red bold"),
    "a mark of the shell": (b"out\r\n\x1b]7771;e;0123;0\x07", "out"),
    "a title that ends with ST": (b"\x1b]0;title\x1b\\out", "out"),
    "no text": (b"\xff\xfe\r\n", "\ufffd\ufffd"),
    "nothing": (b"", ""),
    "more than is read": (b"x" * 10_000 + b"\r\nlast\r\n", "last"),
}


@pytest.mark.parametrize("case", LINES)
def test_the_last_line_is_what_stands_there(tmp_path: Path, case: str) -> None:
    data, line = LINES[case]
    segment_file(tmp_path, 0).write_bytes(data)
    assert read_last_line(tmp_path, 0) == line


def test_only_the_part_that_is_asked_for_counts(tmp_path: Path) -> None:
    segment_file(tmp_path, 0).write_bytes(b"before\r\n")
    segment_file(tmp_path, 8).write_bytes(b"mine\r\nafter\r\n")
    assert read_last_line(tmp_path, 8, 14) == "mine"
    assert read_last_line(tmp_path, 21) == "", "it has printed nothing yet"
    assert read_last_line(tmp_path / "nowhere", 0) == ""
