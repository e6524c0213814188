"""Bad input: one sentence with cause, effect, next command; the right exit code; nothing lost."""

import contextlib
import os
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.station import Station

ONE_STEP = [{"thought": "look", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}]


def said(station: Station, *words: str, code: int) -> str:
    """What a failing command says: on stderr, without a traceback."""
    done = station.run(*words, code=code)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    sentence, _, after = done.stderr.partition("\n")
    assert sentence.startswith("houston: "), done.stderr
    return sentence + after


@pytest.mark.slow
def test_an_unknown_task(station: Station) -> None:
    station.start()
    text = said(station, "rollout", "start", "nowhere/task.toml", code=66)
    assert "nowhere/task.toml" in text


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ('sandbox = "bubblewrap"', ("sandbox", "jail")),
        ("[budget]", ("budgets", "budget")),
        ('name = "probe"', ("name", "Has Spaces")),
    ],
)
def test_a_task_file_with_a_wrong_key_or_value(
    station: Station, change: str, names: tuple[str, str]
) -> None:
    task = station.task()
    wrong = {
        'sandbox = "bubblewrap"': 'sandbox = "jail"',
        "[budget]": "[budgets]",
        'name = "probe"': 'name = "Has Spaces"',
    }[change]
    task.write_text(task.read_text().replace(change, wrong))
    for words in (("task", "validate", str(task)), ("rollout", "start", str(task))):
        text = said(station, *words, code=78)
        assert str(task) in text
        assert all(name in text for name in names)


def test_a_configuration_with_a_wrong_key(station: Station) -> None:
    station.home.mkdir()
    (station.home / "houston.toml").write_text("[daemon]\nmax_rolouts = 3\n")
    text = said(station, "daemon", "start", code=78)
    assert "houston.toml" in text
    assert "daemon.max_rolouts" in text
    assert "max_rollouts" in text


@pytest.mark.slow
def test_an_engine_that_is_not_configured(station: Station) -> None:
    station.start()
    text = said(station, "rollout", "start", str(station.task()), "--engine", "gpt", code=66)
    assert "gpt" in text
    assert "embedded" in text


def test_an_unreachable_engine(station: Station) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    station.home.mkdir()
    (station.home / "houston.toml").write_text(
        f'[engines.far]\nkind = "chat"\nurl = "http://127.0.0.1:{port}/v1"\nmodel = "m"\n'
    )
    station.start()
    text = said(station, "rollout", "start", str(station.task()), "--engine", "far", code=1)
    assert str(port) in text
    assert station.json("rollout", "list") == [], "nothing was started"


@pytest.mark.slow
@pytest.mark.model
def test_a_busy_port(station: Station) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        station.home.mkdir()
        (station.home / "houston.toml").write_text(
            f'[engines.here]\nkind = "embedded"\nport = {port}\n'
        )
        station.start()
        text = said(station, "rollout", "start", str(station.task()), "--engine", "here", code=1)
    assert str(port) in text


def test_a_rollout_that_does_not_exist(station: Station) -> None:
    station.start()
    for words in (
        ("rollout", "show", "nobody"),
        ("steps", "nobody"),
        ("context", "nobody", "1"),
        ("guide", "nobody", "hello"),
        ("rollout", "pause", "nobody"),
    ):
        text = said(station, *words, code=66)
        assert "nobody" in text
        assert "houston rollout list" in text


@pytest.mark.slow
def test_commands_that_need_a_daemon_without_one(station: Station) -> None:
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(ONE_STEP))
    station.ended(rollout)
    station.stop()
    assert "houston daemon start" in said(station, "guide", rollout, "hello", code=69)
    assert station.steps(rollout), "reading goes on without a daemon"


def test_a_home_of_a_newer_schema(station: Station) -> None:
    station.start()
    station.stop()
    connection = sqlite3.connect(station.home / "houston.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (station.home / "houston.db").read_bytes()
    for words in (("daemon", "start"), ("rollout", "list")):
        assert "99" in said(station, *words, code=78)
    assert (station.home / "houston.db").read_bytes() == before


@pytest.fixture
def small_disk(tmp_path: Path, station: Station) -> Callable[[int], None]:
    """The station's home on a file system of its own, small enough to fill."""
    station.home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "houston-test", str(station.home)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a size-limited tmpfs cannot be mounted here: {mounted.stderr.strip()}")

    def leave(free: int) -> None:
        """Fill the disk until `free` bytes are left; -1 empties it again."""
        filler = station.home / "filler"
        filler.unlink(missing_ok=True)
        if free >= 0:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while os.statvfs(station.home).f_bavail * 4096 > free:
                    file.write(b"\0" * 4096)

    return leave


@pytest.mark.slow
def test_a_full_disk(station: Station, small_disk: Callable[[int], None]) -> None:
    try:
        station.start()
        steps = [
            {"thought": "x" * 4000, "calls": [{"name": "list_files", "arguments": {"path": "."}}]}
        ] * 400
        task = station.task(budget="steps = 500")
        (rollout,) = station.rollout(task, station.script(steps))
        station.until(lambda: station.closed(rollout) >= 3, why="three steps")
        small_disk(0)
        station.until(
            lambda: "full" in station.json("daemon", "status")[0]["last_error"].lower(),
            why="the status says that the disk is full",
        )
        stored = station.steps(rollout)
        assert stored, "reading goes on"
        small_disk(-1)
        assert station.ended(rollout)["state"] == "finished", "goes on by itself"
        assert len(station.steps(rollout)) == 401
        assert station.steps(rollout)[: len(stored)] == stored
        station.run("verify")
    finally:
        station.run("daemon", "stop", code=None)
        subprocess.run(["umount", "-l", str(station.home)], check=False)
