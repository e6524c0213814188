"""What the end of a trainer's process means, and when the supervisor looks again."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.service import trainer_launch
from houston_daemon.service import trainers as trainers_module
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.trainers import TrainerEnded, Trainers, _TrainerProcess
from houston_shared import atomic_file, policy_and_run_files
from houston_shared.config import load_configuration
from houston_shared.store.policy_queries import TrainingRunRow
from tests.support.station import alive

RUN = "sft-1"


class Told:
    """Takes what the recorder would write down."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str]] = []
        self.reasons: list[str] = []

    def report_training_state(
        self, run: str, state: str, reason: str = "", start: bool = False
    ) -> None:
        self.moves.append((run, state))
        self.reasons.append(reason)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def trainers(tmp_path: Path, told: Told) -> Trainers:
    loaded = load_configuration(str(tmp_path / "home"), None)
    (policy_and_run_files.training_run_folder(loaded.home, RUN)).mkdir(parents=True)
    ledger = GpuLedger(tmp_path / "gpus.json", {})
    recorder: Any = told
    return Trainers(loaded, recorder, SupervisorInbox(), ledger, tuple)


@pytest.fixture
def ends(trainers: Trainers) -> Callable[[int, float, str], None]:
    """A process of the run ends with a code, at a time; who asked it to, if anybody."""

    def end(code: int, now: float, ending: str = "") -> None:
        how = f"os._exit({code})" if code >= 0 else f"os.kill(os.getpid(), {-code})"
        process = subprocess.Popen([sys.executable, "-c", f"import os; {how}"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        trainers._children[RUN] = _TrainerProcess(process, ending)
        trainers.on_ended(TrainerEnded(RUN, process.pid), now)

    return end


def test_a_crash_is_waited_for_once(trainers: Trainers, told: Told, ends: Any) -> None:
    """A time that is over would have the supervisor look again at once, for ever."""
    ends(137, 100.0)
    assert told.moves == []
    due = trainers.next_due(100.0)
    assert due is not None and due > 100.0
    assert trainers.next_due(due + 1.0) is None
    ends(0, 200.0)
    assert told.moves == [(RUN, "finished")]
    assert trainers.next_due(100.0) is None
    assert trainers.troubles(200.0) == {}, "what has finished is no trouble"


@pytest.mark.parametrize(
    ("code", "words"), [(3, "exit code 3"), (137, "signal SIGKILL"), (-9, "signal SIGKILL")]
)
def test_crashes_are_told_in_words(told: Told, ends: Any, code: int, words: str) -> None:
    """Where the kernel kills for memory, it may be the trainer or its first process."""
    for crash in range(3):
        ends(code, 1_000.0 * crash)
    assert told.reasons == [f"it ended 3 times ({words}): it wrote nothing"]


@pytest.mark.parametrize(
    ("code", "ending", "state"),
    [(0, "", "finished"), (0, "ann", "finished"), (143, "ann", "cancelled")],
)
def test_what_an_end_means(told: Told, ends: Any, code: int, ending: str, state: str) -> None:
    """A run that was cancelled as it ended has its policy: it is finished."""
    ends(code, 100.0, ending)
    assert told.moves == [(RUN, state)]


def test_a_run_that_said_why_it_failed_is_not_tried_again(
    trainers: Trainers, told: Told, ends: Any
) -> None:
    ends(1, 100.0)
    folder = policy_and_run_files.training_run_folder(trainers._home, RUN)
    atomic_file.write_atomically(
        folder / "progress.json", b'{"state": "failed", "message": "No GPU."}'
    )
    ends(1, 200.0)
    assert told.moves == [(RUN, "failed")]
    assert trainers.troubles(200.0) == {}


ROW = TrainingRunRow(
    id=RUN, kind="sft", state="queued", reason="", alone=0, cancelling="", policy="",
    starts=0, by="person:ann", seq=1, queued_at=0, started_at=0, ended_at=None, last_seq=1,
)  # fmt: skip


def test_a_run_is_announced_before_its_process_is_started(
    trainers: Trainers, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is cancelled between the two has a process that somebody knows of."""

    def cannot_start(*_: object) -> None:
        assert told.moves == [(RUN, "running")]
        raise OSError("no more processes")

    monkeypatch.setattr(trainer_launch, "start_trainer_process", cannot_start)
    monkeypatch.setattr(trainers, "_asked", lambda run: None)
    trainers._start(ROW)
    assert told.moves == [(RUN, "running"), (RUN, "failed")]


def test_a_process_whose_end_cannot_be_heard_is_ended(
    trainers: Trainers, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no more descriptors; its GPUs are given back, and nothing may go on there."""
    processes: list[subprocess.Popen[bytes]] = []
    children: list[int] = []

    def start(*_: object) -> "subprocess.Popen[bytes]":
        command = ["sh", "-c", "sleep 600 & echo $!; wait"]
        mark = trainer_launch.trainer_mark(trainers._home, RUN).decode().partition("=")
        processes.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, mark[0]: mark[2]},
            )
        )
        assert processes[0].stdout is not None
        children.append(int(processes[0].stdout.readline()))
        return processes[0]

    def fail(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(trainer_launch, "start_trainer_process", start)
    monkeypatch.setattr(trainers, "_asked", lambda run: None)
    monkeypatch.setattr(os, "pidfd_open", fail)
    trainers._start(ROW)
    assert told.moves == [(RUN, "running"), (RUN, "failed")]
    assert "Too many open files" in told.reasons[-1]
    assert processes[0].returncode == -signal.SIGKILL and not alive(children[0])
    assert len(trainers) == 0


def test_the_process_of_a_run_that_is_over_is_asked_to_end(
    trainers: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoRuns:
        def run(self, _: object) -> list[TrainingRunRow]:
            return []

    @contextmanager
    def read_no_runs(_: object) -> Any:
        yield NoRuns()

    monkeypatch.setattr(trainers_module, "Reader", read_no_runs)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    trainers._children[RUN] = _TrainerProcess(process)
    trainers.update(0.0)
    assert process.wait(20) == -signal.SIGTERM
