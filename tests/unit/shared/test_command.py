"""Whatever a shell hands to `houston`, it answers with a sentence and an exit code, no trace."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from houston_shared import command
from tests.support.written_home import WrittenHome, sample

HOUSTON = f"{sys.executable} -m houston_shared.command"


def shell(line: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of sh in which `houston` is the command, on the home in `folder`."""
    return subprocess.run(
        ["/bin/bash", "-c", line.replace("houston", HOUSTON)],
        env={**os.environ, "HOUSTON_HOME": str(folder / "home"), **environment},
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one rollout of one step, whose text is in no narrow encoding."""
    path = tmp_path_factory.mktemp("command")
    home = WrittenHome(path / "home")
    home.rollout("words-aaaa")
    home.step("words-aaaa", 1, sample("caf\u00e9 \u5148 \U0001f600"))
    home.close()
    return path


SENTENCES = {
    "bytes that are no text": (r"houston rollout show $'\xff\xfe'", 2, "is not UTF-8 text"),
    "bytes to say": (r"houston guide words $'\xff\xfe x'", 2, "is not UTF-8 text"),
    "bytes on standard input": (r"printf '\xff' | houston guide words -", 2, "not UTF-8 text"),
    "no standard input": ("houston guide words - <&-", 2, "There is no text to say"),
    "a step past 64 bits": ("houston context words 99999999999999999999", 2, "a whole number from"),
    "a count past 64 bits": (f"houston log -n {'9' * 5000}", 2, "is not a whole number from 1 to"),
    "a count below none": ("houston tail -n -1", 2, "is not a whole number from 0 to"),
    "a word for a count": ("houston steps words -n many", 2, "'many' is not a whole number"),
    "too many rollouts": ("houston rollout start x.toml -n 100000", 2, "from 1 to 1,000"),
    "a seed past 64 bits": (f"houston rollout start x.toml --seed {2**64}", 2, "a whole number"),
    "a time that is none": ("houston rollout pause words --wait nan", 2, "number of seconds"),
    "a full disk": ("houston steps words >/dev/full", 1, "Standard output cannot be written: No"),
    "a full disk, JSON": ("houston steps words --json >/dev/full", 1, "output cannot be written"),
    "a full disk, help": ("houston steps --help >/dev/full", 1, "output cannot be written"),
    "a full disk, overview": ("houston --help >/dev/full", 1, "output cannot be written"),
    "a closed output": ("houston steps words >&-", 1, "Standard output cannot be written: Bad"),
    "a home that nobody has": ("houston --home '~nobody-at-all/x' rollout list", 78, "The home"),
    "a daemon there": ("houston --home '~nobody-at-all/x' daemon status", 69, "No daemon runs"),
    "a name too long": (f"houston --home {'x' * 300} rollout list", 1, "File name too long"),
    "a section that is a key": ("HOUSTON__DEFAULT_ENGINE__X=1 houston rollout list", 78, "engine"),
    "a folder that has gone": (
        "mkdir gone; cd gone; rmdir ../gone; houston --home x rollout list", 78, "absolute path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SENTENCES)
def test_a_sentence_and_its_exit_code(case: str, folder: Path) -> None:
    line, code, words = SENTENCES[case]
    process = shell(line, folder)
    errors = process.stderr.decode()
    assert words in " ".join(errors.split()), errors
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_reader_that_has_gone_is_no_error(folder: Path) -> None:
    process = shell("set -o pipefail; houston steps words | true", folder)
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_narrow_encoding_loses_nothing(folder: Path) -> None:
    text = shell("houston steps words", folder, PYTHONIOENCODING="ascii")
    assert text.returncode == 0
    assert rb"caf\xe9 \u5148 \U0001f600" in text.stdout
    data = shell("houston steps words --json", folder, PYTHONIOENCODING="latin-1")
    assert data.stdout.isascii()
    assert json.loads(data.stdout)["thought"] == "caf\u00e9 \u5148 \U0001f600"


def test_without_standard_error_it_does_its_work(folder: Path) -> None:
    for closed in ("2>&-", "2>/dev/full"):
        process = shell(f"houston context words 1 {closed}", folder)
        assert (process.returncode, bool(process.stdout)) == (0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("more", ["", "--config /dev/null"])
def test_a_home_that_this_user_may_not_enter(more: str, folder: Path) -> None:
    (folder / "home").chmod(0o700)
    code = f"""if True:
        import os, tomllib
        from houston_shared import command
        os.chdir("/")
        command.main(["steps", "words"])  # what is imported late may be closed to the other user
        command.main(["guide", "words", "x"])
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for words in (["steps", "words"], ["guide", "words", "x"]):
            assert command.main([*words, *"{more}".split()]) == 1
    """
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOUSTON_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("cannot be read by this user: Permission denied") == 2
    assert "daemon.group" in process.stderr


NOT_FOR_READING = {"asyncio", "dataclasses", "difflib", "hashlib", "rich", "tomllib", "zmq"}
"""Some milliseconds each: people and scripts read often."""


def test_a_list_imports_only_what_it_needs(folder: Path) -> None:
    code = (
        "import sys\nfrom houston_shared.command import main\nmain(['rollout', 'list', '--json'])\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOUSTON_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "words-aaaa" in process.stdout
    assert not NOT_FOR_READING & set(process.stderr.split())


FAULT = "This is a bug in Houston: KeyError: 'lost'."


@pytest.mark.parametrize("debugging", [False, True])
def test_a_fault_is_named_and_shows_its_trace_to_who_wants_it(
    debugging: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path))
    monkeypatch.setenv("HOUSTON_DEBUG", str(int(debugging)))
    failing(monkeypatch, KeyError("lost"))
    assert command.main(["rollout", "list"]) == 1
    errors = capsys.readouterr().err
    assert FAULT in errors
    assert "report it" in errors
    assert ("Traceback" in errors) is debugging


@pytest.mark.parametrize("leaving", [KeyboardInterrupt(), SystemExit(5)])
def test_who_leaves_on_purpose_is_let_go(
    leaving: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path))
    failing(monkeypatch, leaving)
    if isinstance(leaving, KeyboardInterrupt):
        assert command.main(["rollout", "list"]) == 130
    else:
        with pytest.raises(SystemExit, match="5"):
            command.main(["rollout", "list"])


def failing(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    """Let every command fail like this."""

    def run(*_: Any) -> int:
        raise problem

    module = SimpleNamespace(add_rollout_list_arguments=lambda parser: None, run_rollout_list=run)
    monkeypatch.setattr(command.importlib, "import_module", lambda name: module)
