"""Logs of programs that cannot rotate theirs: no line lost, none torn, whoever dies meanwhile."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.service.engine_child import LOG_PUMP_MODULE, EngineLogPipe
from houston_daemon.service.log_rotation import LogPump, numbered_log, rotate_log, rotated_logs
from tests.support.station import alive, command_line

COUNTS = r"""
import os, sys
first, last, who = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for number in range(first, last):
    os.write(1, f"{who} {number} {'x' * (number % 70)}\n".encode())
"""


def until(done: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def lines(log: Path) -> list[str]:
    """Every line of the log and of its older files, the oldest first."""
    files = [*reversed(rotated_logs(log)), log]
    return "".join(file.read_text() for file in files if file.exists()).splitlines()


def numbers(log: Path, who: str) -> list[int]:
    return [int(line.split()[1]) for line in lines(log) if line.startswith(f"{who} ")]


@pytest.mark.parametrize(
    ("there", "after"),
    [
        ([], [1]),
        ([1, 2], [1, 2, 3]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ([2, 3], [1, 2, 3]),  # a kill between two renames left a gap: it is filled
        ([1, 3, 4], [1, 2, 3, 4]),
    ],
)
def test_files_move_up_and_only_the_oldest_goes(
    tmp_path: Path, there: list[int], after: list[int]
) -> None:
    log = tmp_path / "a[b].log"
    log.write_text("newest")
    for number in there:
        numbered_log(log, number).write_text(f"was {number}")
    rotate_log(log, 4)
    assert rotated_logs(log) == [numbered_log(log, number) for number in after]
    assert numbered_log(log, 1).read_text() == "newest"
    kept = {file.read_text() for file in rotated_logs(log)} - {"newest"}
    gone = {f"was {number}" for number in there} - kept
    assert gone == ({"was 4"} if there == [1, 2, 3, 4] else set())


@pytest.mark.parametrize("chunk", [1, 7, 100, 65_536])
def test_no_line_is_torn_however_the_bytes_come(tmp_path: Path, chunk: int) -> None:
    log = tmp_path / "log"
    pump = LogPump(log, 500, 1_000)
    data = "".join(f"line {number} {'y' * (number % 90)}\n" for number in range(300)).encode()
    data += b"z" * 2_000 + b"\nend without a line's end"
    for start in range(0, len(data), chunk):
        pump.write(data[start : start + chunk])
    assert len(rotated_logs(log)) > 10
    assert b"".join(file.read_bytes() for file in [*reversed(rotated_logs(log)), log]) == data
    assert all(file.read_bytes().endswith(b"\n") for file in rotated_logs(log))


def start(pipe: EngineLogPipe, first: int, last: int, who: str) -> "subprocess.Popen[bytes]":
    """A program that writes numbered lines into the pipe, as an engine does."""
    output = pipe.open()
    try:
        return subprocess.Popen(
            [sys.executable, "-c", COUNTS, str(first), str(last), who],
            stdout=output,
            stderr=output,
        )
    finally:
        os.close(output)


def pump_of(log: Path) -> int | None:
    for entry in Path("/proc").glob("[0-9]*"):
        words = command_line(entry)
        if LOG_PUMP_MODULE in words and f" {log} " in words and alive(int(entry.name)):
            return int(entry.name)
    return None


def test_two_programs_and_a_pump_that_is_frozen_for_a_while_lose_no_line(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    pipe = EngineLogPipe(tmp_path / "engine.pipe", log, 20_000, 10_000)
    running = [start(pipe, 0, 8_000, "a"), start(pipe, 0, 8_000, "b")]
    stopped = 0
    while any(program.poll() is None for program in running):
        if stopped < 3 and len(rotated_logs(log)) > 2 * stopped and (pid := pump_of(log)):
            os.kill(pid, signal.SIGSTOP)
            until(lambda pid=pid: state(pid) == "T")
            os.kill(pid, signal.SIGCONT)
            stopped += 1
        pipe.ensure_pump()
        time.sleep(0.01)
    pipe.wait_until_written(30)
    assert numbers(log, "a") == list(range(8_000))
    assert numbers(log, "b") == list(range(8_000))
    assert len(rotated_logs(log)) > 10
    until(lambda: pump_of(log) is None)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_what_is_written_without_a_pump_waits_for_the_next(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    pipe = EngineLogPipe(tmp_path / "engine.pipe", log, 5_000, 1_000)
    output = pipe.open()
    try:
        until(lambda: pump_of(log) is not None)
        pump = pump_of(log)
        assert pump
        os.write(output, b"a 0\n")
        until(lambda: numbers(log, "a") == [0])
        os.kill(pump, signal.SIGKILL)
        until(lambda: not alive(pump))
        os.write(output, b"".join(b"a %d\n" % number for number in range(1, 2_000)))
        pipe.ensure_pump()
        until(lambda: numbers(log, "a") == list(range(2_000)))
        pipe.ensure_pump()
        assert sum(pump_of(log) is not None for _ in range(2)) == 2
    finally:
        os.close(output)
    pipe.wait_until_written(30)
    until(lambda: pump_of(log) is None)


def test_a_log_that_logrotate_moved_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    pump = LogPump(log, 1_000_000, 5)
    pump.write(b"one\nhalf of ")
    log.rename(tmp_path / "moved")
    pump.write(b"a line\n")
    pump.write(b"three\n")
    assert (tmp_path / "moved").read_text() == "one\nhalf of a line\n"
    assert log.read_text() == "three\n"


def test_a_disk_that_is_full_holds_nobody_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("houston_daemon.service.log_rotation.FULL_DISK_SECONDS", 0.0)
    log = tmp_path / "engine.log"
    log.symlink_to("/dev/full")
    pump = LogPump(log, 1_000_000, 5)
    pump.write(b"lost\n")
    pump.write(b"lost too\n")
    log.unlink()
    pump.write(b"there is room\n")
    assert log.read_text() == "[14 bytes could not be written here]\nthere is room\n"
