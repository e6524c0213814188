"""How a run beside the daemon has ended, where nobody could say so."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from houston_daemon.service.trainers import TRAINER_BEGIN_SECONDS, ExternalTrainers
from houston_daemon.training.runs import run_folder, run_progress
from houston_shared import policy_and_run_files
from houston_shared.home import Home
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.store.training_event_bodies import RunState

RUN = TrainingRunRow(
    id="sft-1", kind="sft", state="running", reason="", alone=1, cancelling="", policy="",
    starts=1, by="person:ann", seq=1, queued_at=0, started_at=0, ended_at=None, last_seq=2,
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    policy_and_run_files.training_run_folder(made, RUN.id).mkdir(parents=True)
    return made


@pytest.fixture
def says(home: Home) -> Callable[[RunState, str], None]:
    """What its trainer wrote last."""

    def say(state: RunState, message: str) -> None:
        run_progress.ProgressWriter(
            policy_and_run_files.training_run_folder(home, RUN.id)
        ).set_state(state, message)

    return say


def test_a_killed_one_has_failed_and_one_that_is_about_to_begin_has_not(
    home: Home, says: Callable[[RunState, str], None]
) -> None:
    says("running", "")
    beside = ExternalTrainers(home)
    assert beside.ended(RUN, 0.0) is None, "its trainer may be about to hold the folder"
    held = run_folder.take_folder(policy_and_run_files.training_run_folder(home, RUN.id))
    assert beside.ended(RUN, 2 * TRAINER_BEGIN_SECONDS) is None, "it is at work"
    os.close(held)
    assert beside.ended(RUN, 3 * TRAINER_BEGIN_SECONDS) is None
    assert beside.ended(RUN, 4 * TRAINER_BEGIN_SECONDS) == ("failed", "its process was killed")


ENDS: dict[RunState, tuple[TrainingRunRow, str]] = {
    "finished": (RUN, "no daemon registered its policy: houston train sft --resume sft-1"),
    "failed": (RUN, "what it said"),
    "cancelled": (RUN, ""),
}


@pytest.mark.parametrize("state", ENDS)
def test_what_it_said_at_its_end_counts_at_once(
    home: Home, says: Callable[[RunState, str], None], state: RunState
) -> None:
    run, reason = ENDS[state]
    says(state, "what it said")
    assert ExternalTrainers(home).ended(run, 0.0) == (state, reason)


def test_one_that_became_a_policy_has_nothing_left_to_do(
    home: Home, says: Callable[[RunState, str], None]
) -> None:
    says("finished", "policy@2 lies there")
    run = msgspec.structs.replace(RUN, policy="policy@2")
    assert ExternalTrainers(home).ended(run, 0.0) == ("finished", "")
