"""The loss on what is held out: on which rows, how often, and what a wish to end does to it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.runs import run_checkpoints, run_progress
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import sft_callbacks
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunResult
from houston_daemon.training.sft.training_run import train_run
from houston_shared.store.training_event_bodies import RunState
from tests.training.sft import tiny

TASKS = (90, 8, 32)
"""Rows of each held-out task, one after the other in the file."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A trainer in this process takes SIGTERM for itself."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run_with(
    tmp_path: Path, base: Path, examples: list[dict[str, Any]], name: str = "run"
) -> RunFolder:
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), name, steps=2, learning_rate=2e-2)
    tiny.write(folder.data, examples, "held_out")
    return folder


def finished(folder: RunFolder) -> RunResult:
    assert train_run(folder, ProgressWriter(folder.path))
    assert folder.result is not None
    return folder.result


def logged(folder: RunFolder) -> list[str]:
    """What the log says of it."""
    lines = run_progress.log_file(folder.path).read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if "held-out rows" in line]


def test_every_held_out_task_has_its_part() -> None:
    assert sft_callbacks.spread_rows(7) == list(range(7))
    chosen = sft_callbacks.spread_rows(sum(TASKS))
    assert len(chosen) == sft_callbacks.MAX_HELD_OUT_ROWS == len(set(chosen))
    first = 0
    for many in TASKS:
        part = sum(first <= row < first + many for row in chosen)
        assert abs(part - many * sft_callbacks.MAX_HELD_OUT_ROWS / sum(TASKS)) < 1
        first += many


def test_the_loss_is_that_of_rows_spread_over_the_file_and_says_of_how_many(
    tmp_path: Path, base: Path
) -> None:
    many = tiny.rows((12, 20) * (sum(TASKS) // 2), seed=5)
    some = [many[row] for row in sft_callbacks.spread_rows(len(many))]
    whole, part = (
        finished(run_with(tmp_path, base, examples, name))
        for examples, name in ((many, "many"), (some, "some"))
    )
    assert (whole.held_out_rows, part.held_out_rows) == (100, 100)
    assert whole.held_out_before == pytest.approx(part.held_out_before, rel=1e-5)
    assert whole.held_out_after == pytest.approx(part.held_out_after, rel=1e-5)
    before, after = logged(RunFolder(tmp_path / "many"))
    assert before == f"loss {whole.held_out_before:.4f} on 100 of 130 held-out rows before training"
    assert after == f"loss {whole.held_out_after:.4f} on 100 of 130 held-out rows after training"


class Ending(ProgressWriter):
    """Sends SIGTERM to its trainer as it says a certain thing."""

    def __init__(self, folder: Path, when: str) -> None:
        super().__init__(folder)
        self._when = when

    def set_state(self, state: RunState, message: str = "") -> None:
        super().set_state(state, message)
        if message.endswith(self._when):
            os.kill(os.getpid(), signal.SIGTERM)


def test_asked_to_end_before_the_first_step_it_does_not_begin(tmp_path: Path, base: Path) -> None:
    folder = run_with(tmp_path, base, tiny.rows((20, 30)))
    assert not train_run(folder, Ending(folder.path, "before training"))
    now = run_progress.read_progress(folder.path)
    assert now is not None and now.step == 0
    assert now.message == "measuring the loss on 2 of 2 held-out rows before training"
    assert logged(folder) == [] and run_checkpoints.newest_checkpoint(folder.checkpoints) is None
    assert finished(folder).held_out_before is not None


def test_a_run_that_goes_on_takes_only_what_it_has_not(tmp_path: Path, base: Path) -> None:
    """Asked to end after the last step it ends at once; again, it has the loss that it began
    with, and not the one of what it has learned meanwhile."""
    straight = finished(run_with(tmp_path, base, tiny.rows((20, 30)), "straight"))
    folder = run_with(tmp_path, base, tiny.rows((20, 30)))
    assert not train_run(folder, Ending(folder.path, "after training"))
    assert folder.result is None
    again = finished(folder)
    assert [line.rpartition("rows ")[2] for line in logged(folder)] == [
        "before training",
        "after training",
    ]
    assert again.held_out_before == straight.held_out_before
    assert again.held_out_after == pytest.approx(straight.held_out_after, rel=1e-6)
    assert again.held_out_after != again.held_out_before
