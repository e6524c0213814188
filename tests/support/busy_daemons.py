"""Daemons in the middle of something, by name: what a stop must cut short, or wait for in vain.

Each scenario brings a station's daemon into its state and gives back what is to be let go after.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.injection import fault_environment
from tests.integration.agent.endpoint import Endpoint, Page
from tests.support.station import Station, process_state

SERVES = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""An engine as far as its watch can see."""

Scenario = Callable[[Station, ExitStack], None]


def calls(station: Station, *named: tuple[str, dict[str, Any]]) -> str:
    """Start a rollout that makes these calls, a step each; its id."""
    steps = [
        {"thought": f"line {number}", "calls": [{"name": name, "arguments": arguments}]}
        for number, (name, arguments) in enumerate(named)
    ]
    (rollout,) = station.rollout(station.task(sandbox="none"), station.script(steps))
    return rollout


def doing(station: Station, rollout: str, activity: str) -> None:
    """Wait until the worker says that it does this."""

    def found() -> bool:
        rows = station.query("SELECT activity FROM rollouts WHERE id = ?", rollout)
        return activity in rows[0][0]

    station.until(found, 60, f"{rollout}: {activity}")


def worker(station: Station, rollout: str) -> int:
    return station.process("houston_daemon.agent.rollout_worker", f"--rollout {rollout} ")


def idle(station: Station, later: ExitStack) -> None:
    station.start()


def sleeping(station: Station, later: ExitStack) -> None:
    station.start()
    doing(station, calls(station, ("sleep", {"sleep_time": 600})), "sleep")


def running_a_command(station: Station, later: ExitStack) -> None:
    station.start()
    rollout = calls(station, ("run_command", {"command": "echo begun; sleep 300"}))
    doing(station, rollout, "run_command")


def sampling_from_a_slow_engine(station: Station, later: ExitStack) -> None:
    endpoint = Endpoint(lambda body: Page(silent=True))
    later.callback(endpoint.close)
    station.home.mkdir()
    (station.home / "houston.toml").write_text(
        f'[engines.slow]\nkind = "chat"\nmodel = "m"\nwindow = 8192\nurl = "{endpoint.url}"\n'
    )
    station.start()
    (rollout,) = station.rollout(station.task(sandbox="none"), "slow")
    station.until(lambda: station.query("SELECT 1 FROM rollouts WHERE activity != ''"))
    assert worker(station, rollout)


def with_a_frozen_worker(station: Station, later: ExitStack) -> None:
    sleeping(station, later)
    ((rollout,),) = station.query("SELECT id FROM rollouts")
    os.kill(worker(station, rollout), signal.SIGSTOP)


def with_a_frozen_fork_server(station: Station, later: ExitStack) -> None:
    sleeping(station, later)
    parent = f"houston_daemon.service.fork_server {station.pid} "
    os.kill(station.process(parent), signal.SIGSTOP)


def with_a_frozen_engine(station: Station, later: ExitStack) -> None:
    station.home.mkdir()
    program = station.folder / "serves.py"
    program.write_text(SERVES)
    (station.home / "houston.toml").write_text(
        f'[engines.own]\nkind = "vllm"\ncommand = ["{sys.executable}", "{program}", "{{port}}"]\n'
    )
    station.start()
    station.rollout(station.task(sandbox="none"), "own")
    station.until(lambda: station.json("daemon", "status")[0]["engines"].get("own") == "ready")
    os.kill(station.process(str(program)), signal.SIGSTOP)


def with_a_recorder_that_hangs(station: Station, later: ExitStack) -> None:
    _ordered(station, "recorder.batch.after", "delay=600")


def with_a_supervisor_that_hangs(station: Station, later: ExitStack) -> None:
    _ordered(station, "supervisor.round.before", "delay=600")


def beside_a_console_that_does_not_read(station: Station, later: ExitStack) -> None:
    sleeping(station, later)
    following = subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", "tail", "-f"],
        env=station.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    later.callback(following.wait)
    later.callback(following.kill)
    station.until(lambda: station.json("daemon", "status")[0]["consoles"])
    os.kill(following.pid, signal.SIGSTOP)


def frozen(station: Station, later: ExitStack) -> None:
    sleeping(station, later)
    pid = station.pid
    os.kill(pid, signal.SIGSTOP)
    station.until(lambda: process_state(pid) == "T", why="the daemon is frozen")


def _ordered(station: Station, point: str, fault: str) -> None:
    """A daemon that meets a fault, with a rollout under way."""
    folder = station.folder / "faults"
    folder.mkdir()
    before = dict(station.environment)
    station.environment |= fault_environment(folder)
    station.start()
    rollout = calls(station, ("sleep", {"sleep_time": 600}))
    doing(station, rollout, "sleep")
    beside = folder / "order.new"
    beside.write_text(fault)
    beside.replace(folder / point)
    station.until(lambda: not (folder / point).exists(), 30, f"{point} is met")
    station.environment = before


LEAVING: dict[str, Scenario] = {
    "idle": idle,
    "a sleeping agent": sleeping,
    "a running command": running_a_command,
    "a sample from an engine that does not answer": sampling_from_a_slow_engine,
    "a frozen worker": with_a_frozen_worker,
    "a recorder that hangs": with_a_recorder_that_hangs,
    "a frozen fork server": with_a_frozen_fork_server,
    "a frozen engine": with_a_frozen_engine,
    "a console that does not read": beside_a_console_that_does_not_read,
    "a supervisor that hangs": with_a_supervisor_that_hangs,
}
"""What a daemon is in the middle of when it is told to end."""
HUNG = frozenset({"a recorder that hangs", "a supervisor that hangs"})
"""Scenarios that end by force, with exit code 1; all others by a drain, with 0."""
STUCK = frozenset(
    {
        "a sample from an engine that does not answer",
        "a frozen worker",
        "a frozen fork server",
        "a frozen engine",
    }
)
"""Scenarios in which a part of it is ended by force, when most of the time for leaving is over."""


def left(station: Station) -> list[str]:
    """Processes of this station that outlived its daemon and should not have."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        ours = str(station.folder) in words
        ends_with_it = ("agent.rollout_worker", "service.fork_server", "serves.py")
        if ours and any(word in words for word in ends_with_it):
            found.append(words)
    return found
