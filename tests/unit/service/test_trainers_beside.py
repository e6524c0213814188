"""How a run beside the daemon has ended, where nobody could say so."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from houston_daemon.service.trainers_beside import BEGIN_SECONDS, Beside
from houston_daemon.training.sft import progress, turn
from houston_shared import training_progress
from houston_shared.home import Home
from houston_shared.store.bodies_training import RunState
from houston_shared.store.queries.training_runs import TrainingRun

RUN = TrainingRun(
    id="sft-1", kind="sft", state="running", reason="", alone=1, cancelling="", policy="",
    starts=1, by="person:ann", seq=1, queued_at=0, started_at=0, ended_at=None, last_seq=2,
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    training_progress.folder(made, RUN.id).mkdir(parents=True)
    return made


@pytest.fixture
def says(home: Home) -> Callable[[RunState, str], None]:
    """What its trainer wrote last."""

    def say(state: RunState, message: str) -> None:
        progress.Writer(training_progress.folder(home, RUN.id)).set(state, message)

    return say


def test_a_killed_one_has_failed_and_one_that_is_about_to_begin_has_not(
    home: Home, says: Callable[[RunState, str], None]
) -> None:
    says("running", "")
    beside = Beside(home)
    assert beside.ended(RUN, 0.0) is None, "its trainer may be about to hold the folder"
    held = turn.take(training_progress.folder(home, RUN.id))
    assert beside.ended(RUN, 2 * BEGIN_SECONDS) is None, "it is at work"
    os.close(held)
    assert beside.ended(RUN, 3 * BEGIN_SECONDS) is None
    assert beside.ended(RUN, 4 * BEGIN_SECONDS) == ("failed", "its process was killed")


ENDS: dict[RunState, tuple[TrainingRun, str]] = {
    "finished": (RUN, "no daemon took its policy: houston train sft --resume sft-1"),
    "failed": (RUN, "what it said"),
    "cancelled": (RUN, ""),
}


@pytest.mark.parametrize("state", ENDS)
def test_what_it_said_at_its_end_counts_at_once(
    home: Home, says: Callable[[RunState, str], None], state: RunState
) -> None:
    run, reason = ENDS[state]
    says(state, "what it said")
    assert Beside(home).ended(run, 0.0) == (state, reason)


def test_one_that_became_a_policy_has_nothing_left_to_do(
    home: Home, says: Callable[[RunState, str], None]
) -> None:
    says("finished", "policy@2 lies there")
    run = msgspec.structs.replace(RUN, policy="policy@2")
    assert Beside(home).ended(run, 0.0) == ("finished", "")
