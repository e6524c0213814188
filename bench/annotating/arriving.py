"""A recorder in a process of its own, and a worker that stores steps: `arriving.py HOME ROLLOUT N`.

N: the newest step there is. Says `ready` when every event is in the search index. Then each line on
stdin is answered with one: `steps SECONDS RATE` when so many steps were stored, `one` when one was
acked. Ends when stdin does. Nothing else writes to the home.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench.annotating.stored import output, thought

from houston_shared import wire
from houston_shared.home_lock import HomeLock, HomeOwner
from tests.support.recorder_client import Station, Worker

LINES = 20


class Steps:
    """One worker's steps, as they come."""

    def __init__(self, worker: Worker, newest: int) -> None:
        self._worker = worker
        self._step = newest

    def one(self) -> None:
        """Store the next step, and wait until it is durable."""
        self._step += 1
        step, worker = self._step, self._worker
        replies = (
            worker.sample(step, thought=thought(step)),
            worker.intent(step),
            worker.result(step, text=output(step, LINES)),
            worker.observation(step),
        )
        for reply in replies:
            assert isinstance(reply, wire.Ack), reply

    def for_seconds(self, seconds: float, rate: float) -> None:
        """Store `rate` steps a second for a while."""
        began = time.perf_counter()
        for number in range(round(seconds * rate)):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            self.one()


def main() -> None:
    """Hold the home until stdin ends."""
    path, rollout, newest = sys.argv[1:]
    station = Station(Path(path)).start()
    lock = HomeLock(station.home)
    assert lock.take(HomeOwner(pid=0, since="")) is None
    person, steps = station.person(), Steps(station.worker(rollout), int(newest))
    while person.ask(wire.AskStatus()).search_lag:
        time.sleep(0.1)
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["one"]:
                steps.one()
            case ["steps", seconds, rate]:
                steps.for_seconds(float(seconds), float(rate))
        print("done", flush=True)
    station.stop()
    lock.release()


if __name__ == "__main__":
    main()
