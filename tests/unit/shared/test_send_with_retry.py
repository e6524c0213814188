"""What must be heard once: sent again when the daemon is back, and doubt is said where there is."""

import os
import threading
from pathlib import Path

import pytest

from houston_shared import wire
from houston_shared.control_client import send_with_retry
from houston_shared.errors import AnswerLost, DaemonNotRunning, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeOwner
from tests.unit.shared.test_control_client import Answer, daemon

GUIDE = wire.Guide(id="g-1", rollout="r", text="hello")
DOUBT = ("It may have been queued.", "houston guidance r")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.run.mkdir()
    return made


def test_without_a_daemon_nothing_may_have_been_done(home: Home) -> None:
    with pytest.raises(DaemonNotRunning) as problem:
        send_with_retry(home, GUIDE, *DOUBT)
    assert not isinstance(problem.value, AnswerLost)
    assert "houston daemon start" in str(problem.value)


def test_a_daemon_that_ends_for_good_leaves_a_doubt(home: Home) -> None:
    with daemon(home, lambda _: None) as lock:
        threading.Timer(0.3, lock.release).start()
        with pytest.raises(AnswerLost) as problem:
            send_with_retry(home, GUIDE, *DOUBT)
    assert problem.value.code == ExitCode.DAEMON_NOT_RUNNING
    assert (problem.value.effect, problem.value.next) == DOUBT


def test_a_daemon_that_is_back_hears_it_under_the_same_id(home: Home) -> None:
    heard: list[wire.ControlRequest] = []

    def answer(message: wire.ControlRequest) -> wire.ControlReply | None:
        heard.append(message)
        return wire.RequestStored(seq=7) if back.is_set() else None

    back = threading.Event()
    with daemon(home, answer) as lock:

        def restart() -> None:
            lock.release()
            threading.Timer(0.6, again).start()

        def again() -> None:
            back.set()
            assert lock.take(HomeOwner(os.getpid(), "later")) is None

        threading.Timer(0.3, restart).start()
        assert send_with_retry(home, GUIDE, *DOUBT) == wire.RequestStored(seq=7)
    assert heard == [GUIDE, GUIDE]


REFUSALS: dict[str, Answer] = {
    "denied": lambda _: wire.Denied(cause="No.", code=1),
    "busy": lambda _: wire.Denied(cause="No.", code=75),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_denial_keeps_its_words(case: str, home: Home) -> None:
    with daemon(home, REFUSALS[case]), pytest.raises(HoustonError, match=r"^No\.$") as problem:
        send_with_retry(home, GUIDE, *DOUBT)
    assert not isinstance(problem.value, AnswerLost)
