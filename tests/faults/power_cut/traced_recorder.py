"""What is traced: a recorder's lives under load, ended by kills and by a clean stop.

The recorder is the real one in a process of its own. Clients work as workers and annotators do and
append each answer to the trace as they get it; what was not answered is sent again in the next
life, so that answers to duplicates are among them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from houston_shared import records, wire
from houston_shared.home import Home
from tests.faults.power_cut.trace import Marks
from tests.support.recorder_client import Person, Worker, call, result, sample

ROOT = Path(__file__).parents[3]
ROLLOUTS = 24
"""So many that some commits run beside the receiving, as they do under load."""
LIVES = (("kill", 150), ("stop", 250), ("kill", 350), ("kill", 250))
"""How each life ends, and after how many acks; about 5 MB of bodies, some checkpoints."""


def lead(disk: Path, trace: Path, tracer: Path, lives: tuple[tuple[str, int], ...] = LIVES) -> None:
    """Run the lives on the home `disk`/home; the trace and the files are left."""
    disk.mkdir()
    home = Home(disk / "home")
    marks = Marks(trace)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "LD_PRELOAD": str(tracer),
        "POWER_CUT_ROOT": str(disk),
        "POWER_CUT_TRACE": str(trace),
        "POWER_CUT_KILL": f"{trace}.kill",
    }
    clients: list[Client] = []
    annotator = Annotator(home, marks)
    for end, acks in lives:
        recorder = Recorder(home, environment)
        try:
            if not clients:
                clients += [Client(home, one, marks) for one in begun(home, marks)]
            leases = {client.rollout: recorder.lease(client.rollout) for client in clients}
            annotator.rollouts = list(leases)
            live(recorder, clients, annotator, leases, acks, end)
        finally:
            recorder.end("kill")
    marks.close()


def begun(home: Home, marks: Marks) -> list[str]:
    """Rollouts that were started."""
    person = Person(home)
    started = person.start(ROLLOUTS)
    person.close()
    for one in started:
        marks(what="rollout", id=one)
    return started


class Recorder:
    """Its process, under the tracer."""

    def __init__(self, home: Home, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/support/recorder_process.py"), str(home.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._order = Path(environment["POWER_CUT_KILL"])
        self._read()

    def lease(self, rollout: str) -> int:
        assert self.process.stdin
        self.process.stdin.write(rollout + "\n")
        self.process.stdin.flush()
        return int(self._read())

    def _read(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def end(self, how: str) -> None:
        """Kill it (the tracer does, between two records), or stop it; its children end too."""
        if how == "stop":
            assert self.process.stdin
            self.process.stdin.close()
        elif how == "kill":
            self._order.touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self._order.unlink(missing_ok=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


class Client:
    """One rollout's worker: says the next thing until it is acked, over all lives."""

    def __init__(self, home: Home, rollout: str, marks: Marks) -> None:
        self.rollout = rollout
        self.acked = 0
        self._home = home
        self._marks = marks
        self._words = words(rollout)
        self._pending = next(self._words)

    def live(self, lease: int, over: threading.Event) -> None:
        """Work until the recorder is gone."""
        worker = Worker(self._home, self.rollout, lease, seconds=0.1)
        try:
            if insist(lambda: worker.say(wire.Hello, pid=1), over) is None:
                return
            while not over.is_set():
                kind, fields = self._pending
                ack = insist(lambda k=kind, f=fields: worker.say(k, **f), over)
                if ack is None:
                    return
                assert isinstance(ack, wire.Ack), ack
                self._note(ack, fields["step"])
        finally:
            worker.close()

    def _note(self, ack: wire.Ack, step: int) -> None:
        self._marks(what="event", seq=ack.seq, rollout=self.rollout, step=step)
        for one in ack.guidance:
            self._marks(what="heard", id=one.id, step=step)
        self.acked += 1
        self._pending = next(self._words)


class Annotator:
    """Says one thing after the other, each until it is acked."""

    def __init__(self, home: Home, marks: Marks) -> None:
        self.rollouts: list[str] = []
        self._home = home
        self._marks = marks
        self._said = 0

    def live(self, over: threading.Event) -> None:
        """Speak until the recorder is gone."""
        person = Person(self._home, seconds=0.1)
        try:
            while not over.wait(0.01):
                id, rollout = f"g{self._said}", self.rollouts[self._said % len(self.rollouts)]
                if insist(lambda i=id, r=rollout: person.guide(r, f"word {i}", id=i), over):
                    self._marks(what="said", id=id, rollout=rollout)
                    self._said += 1
        finally:
            person.close()


def words(
    rollout: str, first: int = 1, last: int = 1_000_000
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What a worker says in some steps: small bodies, some of 50 KB, some that lie in blobs."""
    for step in range(first, last + 1):
        at = {"step": step, "attempt": 1}
        yield wire.StoreSample, {**at, "sample": sample(step, thought="think " * 200)}
        yield wire.StoreIntent, {**at, "index": 0, "intent": records.CallIntent(call=call(step))}
        size = 10_000 if step % 9 == 0 else 3_000 if step % 4 == 0 else 30
        text = f"{rollout} {step} " * size
        yield wire.StoreResult, {**at, "index": 0, "result": result(step, text=text)}
        yield wire.StoreObservation, {**at, "observation": records.ObservationBody(tail="t")}


def insist(ask: Callable[[], Any], over: threading.Event) -> Any:
    """Ask until answered; None when the recorder is gone."""
    while True:
        try:
            return ask()
        except TimeoutError:
            if over.is_set():
                return None


def live(
    recorder: Recorder,
    clients: list[Client],
    annotator: Annotator,
    leases: dict[str, int],
    acks: int,
    end: str,
) -> None:
    """One life: until so many acks have come."""
    over = threading.Event()
    before = sum(client.acked for client in clients)
    failures: list[BaseException] = []

    def caught(act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments, over)
        except BaseException as problem:
            failures.append(problem)
            raise

    threads = [
        threading.Thread(target=caught, args=(client.live, leases[client.rollout]))
        for client in clients
    ]
    threads.append(threading.Thread(target=caught, args=(annotator.live,)))
    for thread in threads:
        thread.start()
    while sum(client.acked for client in clients) < before + acks and not failures:
        over.wait(0.002)
    recorder.end(end)
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
