"""What is printed while a run of the daemon is followed."""

import time
from pathlib import Path

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import sft_launch
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.policy_and_run_files import training_run_folder
from houston_shared.store.training_event_bodies import (
    RunState,
    TrainingQueued,
    TrainingStateChanged,
)
from tests.support.written_home import WrittenHome

RUN = "sft-2"
WAITS = "waits for training sft-1 to end"


def test_a_run_that_waits_says_for_what_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a progress file from its first moment, which says nothing yet."""
    written = WrittenHome(tmp_path / "home")
    folder = training_run_folder(written.home, RUN)
    folder.mkdir(parents=True)
    progress = ProgressWriter(folder)

    def moved(state: RunState, reason: str = "") -> None:
        body = TrainingStateChanged(by="daemon", run=RUN, state=state, reason=reason)
        written.event(EventKey(), "training-moved", body)

    def runs() -> None:
        moved("running")
        progress.set_state("running", "sampling for update 1")

    written.event(EventKey(), "training", TrainingQueued(by="person:ann", run=RUN, kind="sft"))
    progress.set_state("queued")
    turns = iter((
        lambda: moved("queued", WAITS), lambda: None, lambda: None, runs, lambda: moved("finished"),
    ))  # fmt: skip
    monkeypatch.setattr(sft_launch, "find_running_daemon", lambda home: True)
    monkeypatch.setattr(time, "sleep", lambda seconds: next(turns)())
    loaded = LoadedConfiguration(Configuration(), written.home, "defaults")
    assert sft_launch.follow_daemon_run(loaded, TrainingRunFolder(folder)) == "finished"
    assert capsys.readouterr().err.splitlines() == [WAITS, "sampling for update 1"]
    written.close()
