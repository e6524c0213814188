"""F1 for clients that outlive the recorder: what was not acked is sent again, and stored once.

Workers of the daemon end with it; a worker elsewhere, or a person, does not, and says the same
again to the next recorder. It is killed at each point where an answer is owed.
"""

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared.home import Home
from tests.faults import injection
from tests.faults.fault_points import FAULT_POINTS
from tests.faults.history import History, check
from tests.faults.resending_clients import Line, Voice
from tests.faults.stored import stored
from tests.support.killed_recorder import Killed
from tests.support.recorder_client import Person

OWED = ("batch", "transaction", "commit", "append", "deliver", "answer", "push", "publish", "blob")
CROWDED = "recorder.commit.during"
"""Needs more messages at once than three clients say; see `test_daemon_dies`."""
NAMES = [n for n in FAULT_POINTS if n.startswith("recorder.") and n.split(".")[1] in OWED]
NAMES.remove(CROWDED)
EACH = 1
"""Deaths at each point."""
DEATH_SECONDS = 20


def test_what_was_not_acked_is_sent_again_and_stored_once(tmp_path: Path) -> None:
    dice = random.Random(11)
    home, orders = Home(tmp_path / "home"), tmp_path / "orders"
    orders.mkdir()
    recorder = Killed(home, orders)
    person = Person(home)
    rollouts = person.start(3)
    person.close()
    recorder.leases = {rollout: recorder.lease(rollout) for rollout in rollouts}
    history, failures = History(), []
    lines = [Line(home, rollout, history) for rollout in rollouts]
    voice = Voice(home, rollouts, history)

    def caught(act: Any, *given: Any) -> None:
        try:
            act(*given)
        except BaseException as problem:
            failures.append(problem)
            raise

    for point in [*NAMES * EACH, ""]:
        if point:
            injection.order_fault(orders, point, f"kill@{dice.randint(1, 6)}")
        over = threading.Event()
        threads = [
            threading.Thread(target=caught, args=(one.live, recorder.leases[one.rollout], over))
            for one in lines
        ]
        threads.append(threading.Thread(target=caught, args=(voice.live, over)))
        for thread in threads:
            thread.start()
        if point:
            assert recorder.process.wait(DEATH_SECONDS) == -9, point
        over.set()
        for thread in threads:
            thread.join()
        assert failures == []
        if point:
            recorder.begin()
    recorder.process.communicate("")
    fired = (orders / injection.FIRED_FILE).read_text().splitlines()
    assert [line.split()[0] for line in fired] == NAMES * EACH
    assert check(history, stored(home, contexts=False)) == []
    assert verify_home(home).findings == ()
    assert sum(ack.duplicate for ack in history.acked) > 0, "some deaths fell before the answer"


@pytest.mark.parametrize("name", ["recorder.answer.before", "recorder.commit.after"])
def test_the_points_where_an_answer_is_owed_are_among_them(name: str) -> None:
    assert name in NAMES
