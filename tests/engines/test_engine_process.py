"""An engine outlives whoever started it, is found again, and is ended with all its children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from houston_daemon.engines.engine_process import (
    EngineProcess,
    ServerState,
    find_error_line,
    process_start_time,
)
from houston_shared.errors import HoustonError
from tests.engines.conftest import free_port

SERVER = """
import http.server, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[2], "w").write(str(child.pid))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def engine(folder: Path, port: int, server: str = SERVER) -> EngineProcess:
    command = [sys.executable, "-c", server, str(port), str(folder / "child")]
    url = f"http://127.0.0.1:{port}/v1"
    return EngineProcess("test", command, url, folder / "state.json", folder / "log", {})


def until(true: object) -> None:
    deadline = time.monotonic() + 60
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started(folder: Path) -> tuple[EngineProcess, int]:
    """A server that answers, and the pid of its own child."""
    made = engine(folder, free_port())
    made.start()
    until(made.healthy)
    return made, int((folder / "child").read_text())


def test_another_daemon_finds_it_at_its_address_and_ends_it(tmp_path: Path) -> None:
    first, child = started(tmp_path)
    second = engine(tmp_path, free_port())
    assert second.adopt()
    assert (second.pid, second.url) == (first.pid, first.url)
    assert second.healthy()
    second.stop()
    assert not first.alive()
    assert process_start_time(child) is None
    assert not second.adopt()


def test_it_is_a_session_of_its_own(tmp_path: Path) -> None:
    made, _ = started(tmp_path)
    assert made.pid is not None
    assert os.getsid(made.pid) == made.pid != os.getsid(0)
    made.stop()


def test_what_a_killed_server_leaves_is_ended_before_the_next(tmp_path: Path) -> None:
    made, child = started(tmp_path)
    os.kill(made.pid or 0, signal.SIGKILL)
    until(lambda: not made.alive())
    assert process_start_time(child) is not None
    assert not engine(tmp_path, free_port()).adopt()
    made.start()
    until(made.healthy)
    assert process_start_time(child) is None
    made.stop()


def test_a_child_that_shows_no_environment_is_ended_with_the_rest(tmp_path: Path) -> None:
    """As vLLM's engine core, which outlives a killed server and keeps the GPU's memory."""
    bare = SERVER.replace('time.sleep(600)"])', 'time.sleep(600)"], env={})')
    made = engine(tmp_path, free_port(), bare)
    made.start()
    until(made.healthy)
    child = int((tmp_path / "child").read_text())
    assert made.pid
    os.kill(made.pid, signal.SIGKILL)
    until(lambda: not made.alive())
    assert process_start_time(child) is not None
    engine(tmp_path, free_port(), bare).stop()
    assert process_start_time(child) is None


def test_a_server_that_ignores_the_polite_signal_is_ended(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); time.sleep(600)"
    )
    made = EngineProcess(
        "stubborn",
        [sys.executable, "-c", stubborn],
        "http://127.0.0.1:1",
        tmp_path / "state.json",
        tmp_path / "log",
    )
    made.start()
    pid = made.pid or 0
    until(lambda: "up" in (tmp_path / "log").read_text())
    made.stop(seconds=0.3)
    assert process_start_time(pid) is None


@pytest.mark.parametrize("change", ["started", "boot"])
def test_a_pid_that_was_given_to_another_program_is_not_taken_for_it(
    tmp_path: Path, change: str
) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    made, _ = started(tmp_path)
    state = msgspec.json.decode((tmp_path / "state.json").read_bytes(), type=ServerState)
    wrong = {"started": (process_start_time(other.pid) or 0) - 1, "boot": state.boot}
    if change == "boot":
        wrong = {"started": process_start_time(other.pid), "boot": "an earlier boot"}
    forged = msgspec.structs.replace(state, pid=other.pid, **wrong)
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(forged))
    later = engine(tmp_path, free_port())
    assert not later.adopt()
    later.stop()
    assert other.poll() is None
    other.kill()
    other.wait()
    assert not made.alive()


def test_a_command_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    made = EngineProcess(
        "absent", ["/no/such/program"], "http://127.0.0.1:1", tmp_path / "s", tmp_path / "l"
    )
    with pytest.raises(HoustonError, match="absent cannot be started"):
        made.start()


LOGS = {
    "the last error counts": ("start\nValueError: no memory\nbye\n", "ValueError: no memory"),
    "else the last line": ("start\nbye\n\n", "bye"),
    "nothing was written": ("", ""),
}


@pytest.mark.parametrize("case", LOGS)
def test_the_failing_line_is_named(tmp_path: Path, case: str) -> None:
    text, expected = LOGS[case]
    (tmp_path / "log").write_text(text)
    assert find_error_line(tmp_path / "log") == expected


def test_no_log_has_no_failing_line(tmp_path: Path) -> None:
    assert find_error_line(tmp_path / "none") == ""


NAMED = """
import ctypes
ctypes.CDLL(None).prctl(15, b"\\xff) Z \\xfe")
print("named", flush=True)
input()
"""


def test_a_process_may_have_any_name(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"named\n"
        assert process_start_time(other.pid) is not None
        made, child = started(tmp_path)
        made.stop()
        assert process_start_time(child) is None
    finally:
        other.kill()
        other.communicate()
