"""A run of the daemon's own with which a person goes on while no daemon runs: that trainer is at
work when the daemon is back, and how it ends is what became of the run.

The trainer of the person is who holds the run's folder; the journal is a recorder's, and what the
daemon starts is the real trainer.
"""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.trainers import (
    TRAINED_ELSEWHERE,
    TRAINER_CRASH_LIMIT,
    TrainerEnded,
    Trainers,
)
from houston_daemon.training.runs import run_folder, run_progress
from houston_daemon.training.sft import sft_launch
from houston_daemon.training.sft.sft_recipe import SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec
from houston_shared import policy_and_run_files, wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered, RunState
from tests.support.recorder_client import Station

RUN = "sft-1"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def folder(station: Station) -> Path:
    """Of a run that the daemon had begun when it was stopped."""
    made = policy_and_run_files.training_run_folder(station.home, RUN)
    RunFolder(made).write_spec(RunSpec(run=RUN, recipe=SftRecipe(base="/no/model")))
    station.person().ask(wire.StartTraining(request="r", run=RUN))
    station.recorder.report_training_state(RUN, "running", start=True)
    return made


@pytest.fixture
def inbox() -> SupervisorInbox:
    return SupervisorInbox()


@pytest.fixture
def trainers(station: Station, folder: Path, inbox: SupervisorInbox) -> Iterator[Trainers]:
    """Of the daemon that is back."""
    loaded = LoadedConfiguration(Configuration(), station.home, "defaults")
    ledger = GpuLedger(station.home.path / "gpus.json", {})
    made = Trainers(loaded, station.recorder, inbox, ledger, tuple)
    yield made
    made.kill()
    take_ends(made, inbox)


def take_ends(trainers: Trainers, inbox: SupervisorInbox) -> None:
    """Wait for the ends of what was started."""
    while len(trainers):
        for event in inbox.wait(60.0):
            assert isinstance(event, TrainerEnded)
            trainers.on_ended(event, time.monotonic())


def look(trainers: Trainers) -> None:
    """More often than a trainer may crash."""
    for _ in range(TRAINER_CRASH_LIMIT + 1):
        trainers.update(time.monotonic())


def known(station: Station) -> TrainingRunRow:
    with Reader(station.home) as reader:
        found = reader.run(policy_queries.find_training_run(RUN))
    assert found is not None
    return found


def say(folder: Path, state: RunState, alone: bool = True) -> None:
    """What a trainer writes: a person's, or the daemon's own."""
    writer = run_progress.ProgressWriter(folder)
    writer.started(alone)
    writer.set_state(state, "what it said")


def test_while_it_is_at_work_none_is_started_beside_it(
    station: Station, folder: Path, trainers: Trainers
) -> None:
    held = run_folder.take_folder(folder)
    look(trainers)
    assert len(trainers) == 0
    assert (known(station).state, known(station).reason) == ("running", TRAINED_ELSEWHERE)
    look(trainers)
    assert TRAINED_ELSEWHERE in trainers.describe()[RUN], "the status says what it waits for"
    os.close(held)


UNREADABLE = {"of another user": errno.EACCES, "a disk that went away": errno.EIO}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_folder_that_cannot_be_looked_at_is_left_alone(
    station: Station, folder: Path, trainers: Trainers, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    exists = Path.exists

    def fail(path: Path) -> bool:
        if path == folder / run_folder.LOCK_NAME:
            raise OSError(UNREADABLE[case], "cannot be read", str(path))
        return exists(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", fail)
        look(trainers)
        assert len(trainers) == 0
        now = known(station)
        assert now.state == "running"
        assert "is unknown whether" in now.reason and "trainer.lock" in now.reason
    trainers.update(time.monotonic())
    assert len(trainers) == 1, "it goes on once it can be"


def test_one_that_came_first_is_no_crash(
    station: Station, folder: Path, trainers: Trainers, inbox: SupervisorInbox
) -> None:
    """The folder was free as the daemon looked; its trainer leaves again and again."""
    for _ in range(TRAINER_CRASH_LIMIT):
        trainers.update(time.monotonic())
        assert len(trainers) == 1
        held = run_folder.take_folder(folder)
        take_ends(trainers, inbox)
        os.close(held)
    assert known(station).state == "running"
    assert trainers.troubles(time.monotonic()) == {}


ENDS: dict[RunState, str] = {
    "finished": f"no daemon registered its policy: houston train sft --resume {RUN}",
    "failed": "what it said",
    "cancelled": "",
}


@pytest.mark.parametrize("state", ENDS)
def test_how_it_ended_is_what_became_of_the_run(
    station: Station, folder: Path, trainers: Trainers, state: RunState
) -> None:
    held = run_folder.take_folder(folder)
    look(trainers)
    say(folder, state)
    os.close(held)
    look(trainers)
    assert len(trainers) == 0
    assert (known(station).state, known(station).reason) == (state, ENDS[state])


def test_one_that_became_a_policy_has_finished(
    station: Station, folder: Path, trainers: Trainers
) -> None:
    held = run_folder.take_folder(folder)
    look(trainers)
    (station.home.path / "policies" / "policy@2").mkdir(parents=True)
    (station.home.path / "policies" / "policy@2" / "lineage.json").touch()
    policy = PolicyRegistered(
        by="", name="policy@2", kind="lora", base="/b", base_hash="b", hash="h",
        folder="policy@2", run=RUN,
    )  # fmt: skip
    station.person().ask(wire.RegisterPolicy(request="p", policy=policy))
    say(folder, "finished")
    os.close(held)
    look(trainers)
    now = known(station)
    assert (now.state, now.reason, now.policy) == ("finished", "", "policy@2")


GOES_ON: dict[str, tuple[RunState, bool]] = {
    "the person's was killed": ("running", True),
    "the daemon's own was asked to end as the daemon was": ("cancelled", False),
}


@pytest.mark.parametrize("case", GOES_ON)
def test_the_daemon_goes_on_with_what_nobody_ended(
    station: Station, folder: Path, trainers: Trainers, case: str
) -> None:
    held = run_folder.take_folder(folder)
    look(trainers)
    say(folder, *GOES_ON[case])
    os.close(held)
    trainers.update(time.monotonic())
    assert len(trainers) == 1
    now = known(station)
    assert (now.state, now.reason, now.starts) == ("running", "", 2)


@pytest.mark.slow
def test_a_trainer_says_who_started_it(
    station: Station, folder: Path, trainers: Trainers, inbox: SupervisorInbox
) -> None:
    """Both fail for want of a model."""
    trainers.update(time.monotonic())
    take_ends(trainers, inbox)
    said = run_progress.read_progress(folder)
    assert said is not None and (said.state, said.alone) == ("failed", False)
    assert sft_launch.start_trainer(folder, 0, {}).wait(120) == 1
    said = run_progress.read_progress(folder)
    assert said is not None and (said.state, said.alone) == ("failed", True)


def test_one_that_is_at_work_is_not_called_cancelled(
    station: Station, folder: Path, trainers: Trainers
) -> None:
    """It may still become a policy: it has ended when it has."""
    held = run_folder.take_folder(folder)
    station.person().ask(wire.CancelTraining(run=RUN))
    look(trainers)
    assert known(station).state == "running"
    say(folder, "running")
    os.close(held)
    look(trainers)
    assert known(station).state == "cancelled"
