"""The log: rotated by size without a lost line, followed over rotations, opened again on demand."""

import itertools
import logging
import threading
from pathlib import Path

import pytest

from houston_daemon.service.daemon_log import (
    LogFile,
    LogPosition,
    follow_log,
    read_last_line,
    read_log_tail,
)
from houston_daemon.service.log_rotation import rotate_log, rotated_logs


def writer(path: Path, kilobytes: float, files: int) -> logging.Logger:
    logger = logging.Logger(path.name)
    logger.addHandler(LogFile(path, kilobytes / 1000, files, capture=False))
    return logger


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split()[-1]) for line in lines]


def test_every_line_is_in_one_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 2, 50)

    def write(first: int) -> None:
        for number in range(first, first + 200):
            logger.info("line %s", number)

    threads = [threading.Thread(target=write, args=(200 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.with_name("daemon.log.3").exists(), "it was rotated"
    lines, _ = read_log_tail(path, 10_000)
    assert sorted(numbers(lines)) == list(range(800))


def test_as_many_rotated_files_as_wanted_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 1, 3)
    for i in range(200):
        logger.info("line %s", i)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "daemon.log",
        "daemon.log.1",
        "daemon.log.2",
        "daemon.log.3",
    ]


def test_following_misses_nothing_while_it_rotates(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 1, 100)
    logger.info("line 0")
    _, place = read_log_tail(path, 1)

    def write() -> None:
        for i in range(1, 1001):
            logger.info("line %s", i)

    thread = threading.Thread(target=write)
    thread.start()
    lines = list(itertools.islice(follow_log(path, place), 1000))
    thread.join()
    assert numbers(lines) == list(range(1, 1001))


def test_following_begins_at_its_place_though_the_log_rotates_as_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "daemon.log"
    path.write_text("line 0\nline 1\n")
    _, place = read_log_tail(path, 0)
    with path.open("a") as file:
        file.write("line 2\n")

    def rotated_at_once(log: Path) -> list[Path]:
        files = rotated_logs(log)
        if not files:
            rotate_log(log, 3)
            log.write_text("line 3\n")
        return files

    monkeypatch.setattr("houston_daemon.service.daemon_log.rotated_logs", rotated_at_once)
    assert list(itertools.islice(follow_log(path, place), 2)) == ["line 2", "line 3"]


def test_following_begins_though_the_next_log_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "daemon.log"
    path.write_text("line 0\n")
    _, place = read_log_tail(path, 0)
    with path.open("a") as file:
        file.write("line 1\n")
    listings = 0

    def rotated_after_the_second(log: Path) -> list[Path]:
        nonlocal listings
        listings += 1
        files = rotated_logs(log)
        if listings == 2:  # between the listing of what to open and the opening
            rotate_log(log, 3)
        return files

    monkeypatch.setattr("houston_daemon.service.daemon_log.rotated_logs", rotated_after_the_second)
    assert next(follow_log(path, place)) == "line 1"


def test_following_a_log_whose_place_was_rotated_away_starts_at_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 1, 2)
    for i in range(100):
        logger.info("line %s", i)
    got = numbers(list(itertools.islice(follow_log(path, LogPosition(inode=0, offset=5)), 30)))
    assert got == list(range(got[0], got[0] + 30))


@pytest.mark.parametrize(("count", "expected"), [(0, []), (2, [8, 9]), (99, list(range(10)))])
def test_the_last_lines(tmp_path: Path, count: int, expected: list[int]) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 100, 2)
    for i in range(10):
        logger.info("line %s", i)
    assert numbers(read_log_tail(path, count)[0]) == expected


def test_a_log_moved_away_goes_on_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    logger = writer(path, 100, 2)
    logger.info("line 1")
    path.rename(tmp_path / "moved")
    logger.info("line 2")
    (file,) = logger.handlers
    assert isinstance(file, LogFile)
    file.reopen()
    logger.info("line 3")
    assert numbers((tmp_path / "moved").read_text().splitlines()) == [1, 2]
    assert numbers(path.read_text().splitlines()) == [3]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ""),
        (b"one\ntwo\n\n  \n", "two"),
        (b"x" * 50_000 + b"\nend", "end"),
        (b"\xff\n", "\ufffd"),
    ],
)
def test_the_last_line(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "log").write_bytes(content)
    assert read_last_line(tmp_path / "log") == expected
    assert read_last_line(tmp_path / "missing") == ""


def test_following_a_log_that_was_removed_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "daemon.log"
    path.write_text("line 0\n")
    _, place = read_log_tail(path, 0)
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            path.unlink()
        elif waits == 3:
            path.write_text("line 1\n")

    monkeypatch.setattr("houston_daemon.service.daemon_log.time.sleep", wait)
    assert next(follow_log(path, place)) == "line 1"
    assert waits == 3, "it slept between looks"
