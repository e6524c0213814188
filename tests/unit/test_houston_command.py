"""A command that the tests fork says and does what one says that has an interpreter of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.houston_command import houston_command
from tests.support.written_home import WrittenHome, sample


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forked") / "home"
    written = WrittenHome(path)
    written.rollout("words-aaaa")
    written.step("words-aaaa", 1, sample("café 先"))
    written.close()
    return path


def run(
    command: list[str], home: Path, given: bytes = b"", **more: str
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        command, env={**os.environ, "HOUSTON_HOME": str(home), **more}, cwd=home, input=given,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "given", "more"),
    [
        pytest.param(("steps", "words", "--json"), b"", {}, id="data"),
        pytest.param(("steps", "words"), b"", {"COLUMNS": "40"}, id="text"),
        pytest.param(("--version",), b"", {}, id="version"),
        pytest.param(("no", "such"), b"", {}, id="no command"),
        pytest.param(("rollout", "list", "--bogus"), b"", {}, id="no flag"),
        pytest.param(("guide", "words", "-"), b"\xff", {}, id="standard input"),
        pytest.param(("guide", "words", os.fsdecode(b"\xff")), b"", {}, id="no text"),
        pytest.param(("doctor",), b"", {"HOUSTON__ENGINES__X__KIND": "none"}, id="environment"),
        pytest.param(("daemon", "logs"), b"", {"PYTHONIOENCODING": "ascii"}, id="encoding"),
    ],
)
def test_a_forked_command_is_one_that_is_started(
    words: tuple[str, ...], given: bytes, more: dict[str, str], home: Path
) -> None:
    started = run([sys.executable, "-m", "houston_shared.command", *words], home, given, **more)
    assert run(houston_command(*words), home, given, **more) == started


def test_what_an_interpreter_reads_as_it_starts_is_heeded(home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('read', flush=True)")
    more = {"PYTHONPATH": str(tmp_path)}
    assert run(houston_command("--version"), home, **more)[1].startswith(b"read\nhouston ")


def test_it_ends_when_whoever_runs_it_is_killed(home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs/daemon.log").write_text("the first line\n")
    following = subprocess.Popen(
        houston_command("daemon", "logs", "-f"), env={**os.environ, "HOUSTON_HOME": str(home)},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert following.stdout
    assert following.stdout.readline() == b"the first line\n"
    following.kill()
    assert following.stdout.read() == b"", "nobody writes there any more"
    following.wait()
