"""Large and rough output: all of it is kept, and a command gives it back."""

import json
import subprocess
from pathlib import Path

import pytest

from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_shared.home import Home
from houston_shared.records import TerminalSpan
from tests.console.home_builder import HomeBuilder
from tests.security import recogniser
from tests.security.payloads import corpus, marks
from tests.support.houston_command import houston_command

ROLLOUT = "r"
ROUGH = b"\xff\xfe\x00\xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80 \x9b31m \x1b]0;owned\x07\r\n"
LINE = b"m" * 1_000_000 + b"\r\n"
MARK = b"\x1b]7771;s;0123456789abcdef0123456789abcdef\x07"


def _printed() -> bytes:
    """Every payload, a megabyte in one line, bytes that are no text; 5 MB in all."""
    texts = b"\r\n".join(one.text.encode() for one in corpus())
    return MARK + texts + b"\r\n" + (ROUGH * 500 + LINE) * 5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("large")
    data = _printed()
    terminal = folder / "host" / "rollouts" / ROLLOUT / "terminals" / "main"
    terminal.mkdir(parents=True)
    for start in range(0, len(data), 1_700_001):  # segments, cut anywhere
        (terminal / f"log.{start:016d}").write_bytes(data[start : start + 1_700_001])
    with HomeBuilder(folder / "home") as builder:
        builder.start(ROLLOUT, host_root=str(folder / "host"))
        spans = (
            TerminalSpan(host="local", terminal="main", start=0, end=len(data)),
            TerminalSpan(host="local", terminal="../../x", start=0, end=9),
            TerminalSpan(host="far", terminal="main", start=0, end=9),
        )
        builder.whole(ROLLOUT, 1, "look", texts=("[… cut …]",), spans=spans)
        return builder.home


def _run(home: Home, *words: str) -> bytes:
    done = subprocess.run(
        houston_command("--home", str(home.path), *words),
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def test_a_command_gives_back_all_that_was_printed(home: Home) -> None:
    shown = _run(home, "steps", ROLLOUT, "--printed")
    assert recogniser.hostile(shown, recogniser.in_commands) == []
    text = shown.decode()
    assert marks(text) == {one.mark for one in corpus()}
    assert text.count("m" * 1_000_000) == 5
    assert text.count("<U+FFFD>") == 0 and text.count("␛]0;owned␇") >= 2_500
    assert "0123456789abcdef0123456789abcdef" not in text
    assert text.count("its log is not on this machine") == 1
    assert text.count("its log is on the host far, not here") == 1


def test_the_log_itself_is_lossless(home: Home, tmp_path: Path) -> None:
    folder = home.path.parent / "host" / "rollouts" / ROLLOUT / "terminals" / "main"
    log = TerminalLog(folder)
    assert log.read(0, log.size()) == _printed()
    assert all(isinstance(line, str) for line in log.lines(log.size() - 300_000))


def test_json_of_a_step_without_its_output_is_small(home: Home) -> None:
    (line,) = map(json.loads, _run(home, "steps", ROLLOUT, "--json").splitlines())
    assert "[… cut …]" in line["observation"]
