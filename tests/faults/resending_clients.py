"""Clients that outlive the recorder: they send what was not acked again, and keep a history."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from houston_daemon.recorder.handlers.ingest_handlers import find_event_slot
from houston_shared import records, wire
from houston_shared.home import Home
from tests.faults.history import Acked, Heard, History, Key, Spoken
from tests.faults.witness import words
from tests.support.recorder_client import Person, Worker, call, result, sample

SECONDS = 0.05
"""How long an answer may take before the same is sent again."""
LARGE = 90_000
"""Characters of every seventh result: it lies in a blob."""


def steps(rollout: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What a worker says, without end."""
    for step in range(1, 1_000_000):
        at = {"step": step, "attempt": 1}
        yield wire.StoreSample, {**at, "sample": sample(step)}
        yield wire.StoreIntent, {**at, "index": 0, "intent": records.CallIntent(call=call(step))}
        text = f"{rollout} {step} ".ljust(LARGE if step % 7 == 0 else 300, "z")
        yield wire.StoreResult, {**at, "index": 0, "result": result(step, text=text)}
        yield wire.StoreObservation, {**at, "observation": records.ObservationBody(tail="t")}


class Line:
    """One rollout's worker, over many lives of the recorder."""

    def __init__(self, home: Home, rollout: str, history: History) -> None:
        self._home = home
        self.rollout = rollout
        self._history = history
        self._words = steps(rollout)
        self._pending = next(self._words)

    def live(self, lease: int, over: threading.Event) -> None:
        """Work until the recorder does not answer any more."""
        worker = Worker(self._home, self.rollout, lease, seconds=SECONDS)
        try:
            welcome = worker.insist(over, wire.Hello, pid=1)
            while welcome is not None and not over.is_set():
                kind, fields = self._pending
                place = find_event_slot(worker.message(kind, **fields))
                assert place is not None
                key, said = Key(*place.key), words(place.worker_record)  # type: ignore[arg-type]
                self._history.sent.add((key, said))
                ack = worker.insist(over, kind, **fields)
                if ack is None:
                    return
                assert isinstance(ack, wire.Ack), ack
                heard = tuple(Heard(one.id, one.text) for one in ack.guidance)
                self._history.acked.append(Acked(key, said, ack.seq, ack.duplicate, heard))
                self._pending = next(self._words)
        finally:
            worker.close()


class Voice:
    """Somebody who speaks to every rollout in turn."""

    def __init__(self, home: Home, rollouts: list[str], history: History) -> None:
        self._home = home
        self._rollouts = rollouts
        self._history = history
        self._number = 0

    def live(self, over: threading.Event) -> None:
        """Speak until the recorder is gone."""
        person = Person(self._home, seconds=SECONDS)
        try:
            while not over.is_set():
                rollout = self._rollouts[self._number % len(self._rollouts)]
                id, text = f"g{self._number}", f"word {self._number}"
                try:
                    done = person.guide(rollout, text, id=id)
                except TimeoutError:
                    continue
                assert isinstance(done, wire.RequestStored), done
                self._history.spoken.append(Spoken(id, rollout, text))
                self._number += 1
                time.sleep(0.003)
        finally:
            person.close()
