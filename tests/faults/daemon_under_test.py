"""A daemon under test, its rollouts and the people who speak to them, all in real processes.

The daemon is started as `houston daemon start` does, only without the command around it, so that
a cycle of kill and restart costs a second. Faults are ordered in a folder (see
`houston_shared.faults`); what workers see is written down by a witness.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from houston_daemon.service import daemon_control, rollout_start_checks
from houston_daemon.service.engine_child import end_orphaned_engines
from houston_shared import wire
from houston_shared.config import load_configuration
from houston_shared.control_client import ControlClient
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.task import load_task
from tests.faults import injection
from tests.faults.history import History, Spoken
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import alive, command_line
from tests.support.terminals import end_terminals

ROOT = Path(__file__).parents[2]
ENGINE = "small"
"""Name of the engine that the daemon starts itself (`engine.py`)."""
READY_SECONDS = 60.0
ENDS_WITH_IT = (
    "service.supervisor",
    "service.fork_server",
    "service.ray_cluster",
    "agent.rollout_worker",
    "agent.shared_worker",
    "recorder.search_indexer",
    "review.live_rules_child",
    "training.prm.live_scores_child",
)
"""Processes that never outlive a daemon; engines, their logs and terminals do."""
ORPHAN_SECONDS = 30.0
"""A dead daemon's processes are gone after this time, on a busy machine too: one that was just
being started ends when its interpreter runs. How long it took is kept."""


class Ground:
    """One home and everything around it, in a folder of its own."""

    def __init__(self, folder: Path, configuration: str = "", rollouts_per_worker: int = 1) -> None:
        """configuration: more of `houston.toml`. rollouts_per_worker: with 1, a process that dies
        is one rollout's worker, which most scenarios are about.
        """
        self.folder = folder
        self.home = Home(folder / "home")
        self.orders = folder / "orders"
        self.orders.mkdir(parents=True)
        self.witness = folder / "witness.jsonl"
        self.home.path.mkdir(mode=0o700)
        tokenizer = small_tokenizer(folder)
        program = str(Path(__file__).with_name("engine.py"))
        self.home.configuration.write_text(
            f"[hosts]\nroot = '{folder}/host'\n[daemon]\ndrain_seconds = 3\n"
            f"rollouts_per_worker = {rollouts_per_worker}\n"
            f"[engines.{ENGINE}]\nkind = 'vllm'\ntokenizer = '{tokenizer}'\n"
            f"command = ['{sys.executable}', '{program}', '{{port}}', '{tokenizer}']\n"
            + configuration
        )
        self.loaded = load_configuration(str(self.home.path), environment={})
        self.environment = {
            **os.environ,
            **injection.fault_environment(self.orders),
            "HOUSTON_WITNESS": str(self.witness),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_seconds: list[float] = []
        """From the start after a death to ready, each."""
        self.gone_seconds: list[float] = []
        """From the death of a daemon to that of its last process, each."""
        self.orphans: list[str] = []

    # --- the daemon -------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the daemon; whether it became ready (a fault may end it before)."""
        began = time.monotonic()
        reading, writing = os.pipe()
        for place in (self.home.path, self.home.logs):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "houston_daemon.service.daemon_process"]
        command += ["--home", str(self.home.path), "--ready-fd", str(writing)]
        if self.home.configuration.exists():
            command += ["--config", str(self.home.configuration)]
        with (self.home.logs / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
                env=self.environment,
            )
        os.close(writing)
        try:
            report = daemon_control.wait_for_readiness(reading, READY_SECONDS)
        finally:
            os.close(reading)
        if report is None:
            self.process.wait(60)
            return False
        assert report.ready, f"the daemon did not start: {report}\n{self.log()}"
        self.ready_seconds.append(time.monotonic() - began)
        return True

    def started(self) -> None:
        """Start the daemon, again where a fault ends it before it is ready."""
        for _ in range(4):
            if self.start():
                return
        raise AssertionError(f"the daemon never became ready\n{self.log()}")

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def ended(self, seconds: float = 60) -> int:
        """Wait for the end of the daemon; its exit code. What it left running is noted."""
        assert self.process
        code = self.process.wait(seconds)
        began = time.monotonic()
        while left := self.own(*ENDS_WITH_IT):
            if time.monotonic() - began > ORPHAN_SECONDS:
                self.orphans += [command_line(Path(f"/proc/{pid}"))[:200] for pid in left]
                break
            time.sleep(0.02)
        self.gone_seconds.append(time.monotonic() - began)
        return code

    def own(self, *words: str) -> list[int]:
        """Living processes of this home that have one of these words in their command line."""
        mark = f"HOUSTON_WITNESS={self.witness}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            line = command_line(entry) if entry.name.isdigit() else ""
            if any(word in line for word in words) and alive(int(entry.name)):
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def stop(self) -> int:
        """A clean stop; its exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def close(self) -> None:
        """End everything, terminals too, however the run ended."""
        for order in self.orders.iterdir():
            order.unlink()
        if self.lives:
            self.signal(signal.SIGKILL)
            self.ended()
        end_terminals(self.folder / "host")
        end_orphaned_engines(self.home)

    def log(self, lines: int = 30) -> str:
        """Ends of all logs, for a failure."""
        files = sorted(self.home.logs.rglob("*.log"))
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
            for file in files
        )

    # --- faults -----------------------------------------------------------------------------------

    def order(self, point: str, fault: str) -> None:
        """Order a fault; whoever reaches the point first carries it out."""
        injection.order_fault(self.orders, point, fault)

    def fired(self) -> list[tuple[str, str, int]]:
        """(point, action, pid) of every fault that was carried out."""
        file = self.orders / injection.FIRED_FILE
        lines = file.read_text().splitlines() if file.exists() else []
        return [(name, action, int(pid)) for name, action, pid in map(str.split, lines)]

    # --- rollouts and people ----------------------------------------------------------------------

    def task(self, name: str, text: str, script: list[dict[str, Any]]) -> tuple[Path, str]:
        """Write a task and its script; returns the task's folder and the engine's name."""
        folder = self.folder / "tasks" / name
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        (folder / "workspace" / "README.md").write_text("Hello.\n")
        (folder / "task.toml").write_text(f'name = "{name}"\ninstructions = "Go on."\n{text}')
        file = self.folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in script))
        return folder, f"script:{file}"

    def rollouts(self, task: tuple[Path, str], n: int = 1) -> list[str]:
        """Queue rollouts, as `houston rollout start` does; asks again until it is answered."""
        specs = rollout_start_checks.build_rollout_specs(
            self.loaded, load_task(task[0]), task[1], n, None
        )
        request = os.urandom(8).hex()
        done = self.ask(wire.StartRollouts(request=request, specs=specs))
        assert isinstance(done, wire.RequestStored)
        return list(done.rollouts)

    def ask(self, message: Any, seconds: float = 60) -> Any:
        """Say something as a person, under the same id until it is answered."""
        end = time.monotonic() + seconds
        while True:
            try:
                with ControlClient(self.home, 2.0) as client:
                    return client.ask(message)
            except HoustonError as problem:
                assert time.monotonic() < end, f"{problem}\n{self.log()}"
                if not self.lives:
                    self.started()
                time.sleep(0.02)

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True)) as database:
            return database.execute(sql, parameters).fetchall()

    def states(self) -> dict[str, str]:
        """Every rollout's state."""
        return dict(self.query("SELECT id, state FROM rollouts"))

    def until(self, what: Callable[[], Any], seconds: float, why: str) -> Any:
        """Wait until `what()` is true; the limit only bounds a run that hangs."""
        end = time.monotonic() + seconds
        while not (value := what()):
            assert time.monotonic() < end, f"it did not happen: {why}\n{self.log()}"
            time.sleep(0.02)
        return value

    def remove(self) -> None:
        """Remove the folder; only where nothing was found."""
        shutil.rmtree(self.folder)


class Speaker(threading.Thread):
    """A person who speaks to rollouts and says everything again until it is acked."""

    def __init__(self, ground: Ground, name: str, pause: float = 0.05) -> None:
        super().__init__(name=name, daemon=True)
        self._ground = ground
        self._pause = pause
        self._over = threading.Event()
        self.rollouts: list[str] = []
        """Who is spoken to, in turn; set by the owner."""
        self.spoken: list[Spoken] = []
        """What was acked, in order."""
        self.again = 0
        """Words that had to be said more than once."""

    def run(self) -> None:
        number = 0
        while not self._over.wait(self._pause):
            if not self.rollouts:
                continue
            number += 1
            rollout = self.rollouts[number % len(self.rollouts)]
            text = f"{self.name} says {number}: <b>look</b> again, "
            one = Spoken(f"{self.name}-{number}", rollout, text + "ä" * (number % 7), self.name)
            self._say(one)

    def _say(self, one: Spoken) -> None:
        message = wire.Guide(id=one.id, rollout=one.rollout, text=one.text)
        tries = 0
        while not self._over.is_set():
            try:
                with ControlClient(self._ground.home, 1.0) as client:
                    done = client.ask(message)
                assert isinstance(done, wire.RequestStored)
                self.spoken.append(one)
                return
            except HoustonError as problem:
                if "has ended" in problem.cause:
                    return
                tries += 1
                self.again += tries == 1
                self._over.wait(0.02)

    def stop(self) -> None:
        self._over.set()
        self.join(20)


def history(ground: Ground, speakers: list[Speaker]) -> History:
    """Everything that was seen, of workers and of people."""
    from tests.faults.witness import read

    seen = History()
    read(ground.witness, seen)
    for speaker in speakers:
        seen.spoken += speaker.spoken
    return seen
