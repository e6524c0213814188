"""kill -9 at any moment: nothing acked is lost, nothing is doubled, each word is heard once.

Several clients work as fast as they can against a recorder that is killed over and over; each
sends what was not acked again, as a worker does. At the end the database is held against what the
clients saw.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import records, wire
from houston_shared.home import Home
from tests.support.killed_recorder import Killed
from tests.support.recorder_client import Person, Worker, call, result, sample
from tests.support.tiers import sampled

KILLS = [12, 36]
ROLLOUTS = 4
ENOUGH = 500
"""Messages that are acked in all lives together."""


def steps(rollout: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What a worker says, without end; every ninth result lies in a blob."""
    for step in range(1, 1_000_000):
        at = {"step": step, "attempt": 1}
        yield wire.StoreSample, {**at, "sample": sample(step)}
        yield wire.StoreIntent, {**at, "index": 0, "intent": records.CallIntent(call=call(step))}
        text = f"{rollout} {step} " * (8_000 if step % 9 == 0 else 30)
        yield wire.StoreResult, {**at, "index": 0, "result": result(step, text=text)}
        yield wire.StoreObservation, {**at, "observation": records.ObservationBody(tail="t")}


class Client:
    """One rollout's worker: sends the next message until it is acked, whatever happens between."""

    def __init__(self, home: Home, rollout: str) -> None:
        self._home = home
        self.rollout = rollout
        self._words = steps(rollout)
        self._pending = next(self._words)
        self.acked: list[tuple[str, int, int]] = []
        """(kind, step, seq) of every ack."""
        self.heard: dict[str, int] = {}
        """Guidance id → step whose ack carried it."""
        self.repeated = 0

    def live(self, lease: int, over: threading.Event) -> None:
        """Work until the recorder does not answer any more."""
        worker = Worker(self._home, self.rollout, lease, seconds=0.05)
        try:
            welcome = worker.insist(over, wire.Hello, pid=1)
            self._compare(welcome)
            while welcome is not None:
                kind, fields = self._pending
                ack = worker.insist(over, kind, **fields)
                if ack is None:
                    return
                assert isinstance(ack, wire.Ack), ack
                self._note(kind, fields, ack)
        finally:
            worker.close()

    def _note(self, kind: Any, fields: dict[str, Any], ack: wire.Ack) -> None:
        self.repeated += ack.duplicate
        self.acked.append((kind.__name__, fields["step"], ack.seq))
        for one in ack.guidance:
            assert one.id not in self.heard, "heard twice"
            self.heard[one.id] = fields["step"]
        self._pending = next(self._words)

    def _compare(self, welcome: wire.Welcome | None) -> None:
        """The database is exactly where this worker is, or one message further."""
        if welcome is None:
            return
        step = self._pending[1]["step"]
        closing = self._pending[0] is wire.StoreObservation
        assert welcome.next_step in ((step, step + 1) if closing else (step,))


class Annotator:
    """Says one thing after the other, each again until it is acked."""

    def __init__(self, home: Home, rollouts: list[str]) -> None:
        self._home = home
        self._rollouts = rollouts
        self.said: list[tuple[str, str]] = []
        """(id, rollout) of what was acked, in order."""

    def live(self, over: threading.Event) -> None:
        person = Person(self._home, seconds=0.05)
        try:
            while not over.is_set():
                number = len(self.said)
                rollout = self._rollouts[number % len(self._rollouts)]
                try:
                    done = person.guide(rollout, f"word {number}", id=f"g{number}")
                except TimeoutError:
                    continue
                assert isinstance(done, wire.RequestStored), done
                self.said.append((f"g{number}", rollout))
                time.sleep(0.002)
        finally:
            person.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", sampled(KILLS, 1))
def test_nothing_acked_is_lost_or_doubled(tmp_path: Path, kills: int) -> None:
    dice = random.Random(20261)
    home = Home(tmp_path / "home")
    recorder = Killed(home)
    person = Person(home)
    rollouts = person.start(ROLLOUTS)
    person.close()
    recorder.leases = {rollout: recorder.lease(rollout) for rollout in rollouts}
    clients = [Client(home, rollout) for rollout in rollouts]
    annotator = Annotator(home, rollouts)
    failures: list[BaseException] = []
    for life in range(kills + 1):
        over = threading.Event()
        threads = [
            threading.Thread(
                target=_caught, args=(failures, client.live, recorder.leases[client.rollout], over)
            )
            for client in clients
        ]
        threads.append(threading.Thread(target=_caught, args=(failures, annotator.live, over)))
        for thread in threads:
            thread.start()
        time.sleep(dice.uniform(0.0, 0.25) if life < kills else 1.0)
        if life == kills:
            _wait_for_enough(clients, failures)
        recorder.kill()
        over.set()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        if life < kills:
            recorder.begin()
    _hold_against(home, clients, annotator)


def _caught(failures: list[BaseException], act: Any, *arguments: Any) -> None:
    try:
        act(*arguments)
    except BaseException as problem:
        failures.append(problem)
        raise


def _hold_against(home: Home, clients: list[Client], annotator: Annotator) -> None:
    import sqlite3

    report = verify_home(home)
    assert report.findings == ()
    database = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    kinds = {"sample": "StoreSample", "intent": "StoreIntent", "result": "StoreResult"}
    for client in clients:
        stored = database.execute(
            "SELECT kind, step, seq FROM events WHERE rollout = ? AND part IS NOT NULL"
            " ORDER BY seq",
            (client.rollout,),
        ).fetchall()
        seen = [(kinds.get(kind, "StoreObservation"), step, seq) for kind, step, seq in stored]
        # Everything acked is there under the sequence that was acked, once and in order; behind
        # it at most the one message whose ack was lost in the last kill.
        assert seen[: len(client.acked)] == client.acked
        assert len(seen) - len(client.acked) <= 1
        heard = dict(
            database.execute(
                "SELECT id, delivered_step FROM guidance WHERE rollout = ? AND state = 'delivered'"
                " ORDER BY number",
                (client.rollout,),
            ).fetchall()
        )
        late = {id: step for id, step in heard.items() if id not in client.heard}
        assert client.heard.items() <= heard.items()
        assert set(late.values()) <= {client.acked[-1][1], client.acked[-1][1] + 1}
        assert list(heard.values()) == sorted(heard.values())
    queued = database.execute("SELECT id, rollout FROM guidance ORDER BY number").fetchall()
    database.close()
    assert queued[: len(annotator.said)] == annotator.said
    assert len(queued) - len(annotator.said) <= 1
    assert sum(client.repeated for client in clients) > 0  # kills did fall between commit and ack
    assert _acked(clients) > ENOUGH


def _acked(clients: list[Client]) -> int:
    return sum(len(client.acked) for client in clients)


def _wait_for_enough(clients: list[Client], failures: list[BaseException]) -> None:
    """A full machine acks less in the moments between kills: the last life makes up for it."""
    give_up = time.monotonic() + 120
    while _acked(clients) <= ENOUGH and not failures and time.monotonic() < give_up:
        time.sleep(0.05)
