"""Marks never show, and segments are one log."""

from pathlib import Path

import pytest

from houston_daemon.hosts.terminals import shell_marks
from houston_daemon.hosts.terminals.shell_marks import MarkNonces
from houston_daemon.hosts.terminals.terminal_log import TerminalLog

_N = MarkNonces("a1" * 16, "b2" * 16)
_P = b"\x1b]7771;p;\x07"
_S = shell_marks.start_mark(_N)
_E = shell_marks.end_mark(_N) + b"0\x07"


@pytest.fixture
def log(tmp_path: Path) -> TerminalLog:
    return TerminalLog(tmp_path)


MARKED = {
    "a command": (_P + b"/w $ ls\r\n" + _S + b"x\r\n" + _E, ["/w $ ls", "x"]),
    "a prompt after an unfinished line": (
        b"50%" + _E + _P + b"/w $ ls\r\n" + _S,
        ["50%", "/w $ ls"],
    ),
    "a prompt after a finished line": (b"x\r\n" + _E + _P + b"/w $ ls\r\n", ["x", "/w $ ls"]),
    "a forged mark": (b"a\x1b]7771;e;00;0\x07b\r\n", ["ab"]),
    "a nonce outside its mark": (b"a" + _N.end.encode() + b"b\r\n", ["ab"]),
}


@pytest.mark.parametrize("name", MARKED)
def test_marks_do_not_show(name: str, log: TerminalLog) -> None:
    data, expected = MARKED[name]
    log.secret = _N
    log.begin_segment(data)
    assert log.lines(0) == expected


def test_the_orders_to_the_shell_fit_one_write_whatever_the_command() -> None:
    for command in ("x" * 200_000, "'" * 5000, "🚀" * 5000, "\x1b]7771;e\x07" * 100, "\udce4"):
        lines = shell_marks.command_lines(_N, command, "/" + "p" * 300, "/dev/pts/12345")
        assert len(lines) < 4096
        assert lines.count(b"\n") == 3
        first, second, third = lines.splitlines()
        assert _N.end.encode() not in first + second and _N.end.encode() in third


def test_segments_are_one_log(log: TerminalLog, tmp_path: Path) -> None:
    log.begin_segment(b"one\r\ntw")
    second = log.begin_segment(b"o\r\n")
    with second.open("ab") as file:
        file.write(b"three\r\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "log.0000000000000000",
        "log.0000000000000007",
    ]
    for reader in (log, TerminalLog(tmp_path)):
        assert reader.size() == 17
        assert reader.read(0, 100) == b"one\r\ntwo\r\nthree\r\n"
        assert reader.read(5, 9) == b"two\r"
        assert reader.read(17, 20) == b""
        assert reader.lines(0) == ["one", "two", "three"]
        assert reader.lines(5, 9) == ["two"]


def test_an_empty_log(log: TerminalLog) -> None:
    assert (log.size(), log.lines(0), log.last_output()) == (0, [], 0.0)
