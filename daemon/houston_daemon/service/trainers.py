"""Training runs as children of the daemon: started, looked after, started again, ended with it.

A run is state in the journal, and its checkpoints are files: a trainer that was killed, or ended
with the daemon, is started again and goes on from its last checkpoint. What it computes is its own
business; here is when it may run, on which GPUs, and what its end means.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass

from houston_daemon.engines.process import end_marked
from houston_daemon.recorder.protocol import RecorderHandle
from houston_daemon.service import trainer_command
from houston_daemon.service.gpus import GpuLedger
from houston_daemon.service.inbox import Inbox
from houston_daemon.service.log import LOGGER, last_line
from houston_daemon.service.trainer_gpus import TrainerGpus
from houston_daemon.service.trainers_beside import ELSEWHERE, Beside, at_work, ended_elsewhere
from houston_shared import training_progress
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.bodies_training import RunState, TrainingAsked
from houston_shared.store.queries import training_runs
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.store.reader import Reader

CRASHES = 3
"""Ends without a word, one after the other and without a step in between, before a run fails."""
LONGEST_DELAY_SECONDS = 60.0
SWEEP_SECONDS = 2.0
"""What a killed process may take to be gone."""
LEAVE_SECONDS = 30.0
"""What a cancelled trainer has to write a checkpoint and leave."""


@dataclass(frozen=True, slots=True)
class TrainerEnded:
    """A trainer's process ended."""

    run: str
    pid: int


@dataclass(slots=True)
class _Child:
    process: "subprocess.Popen[bytes]"
    ending: str = ""
    """Who wants it ended; empty while nobody does."""


@dataclass(slots=True)
class _Crashes:
    count: int
    step: int
    """How far it had come at the last of them."""
    not_before: float


class Trainers:
    """All training runs of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        loaded: Loaded,
        recorder: RecorderHandle,
        inbox: Inbox,
        ledger: GpuLedger,
        engines: Callable[[], Collection[str]],
    ) -> None:
        """engines: names of the engines that run now."""
        self._loaded = loaded
        self._home = loaded.home
        self._recorder = recorder
        self._inbox = inbox
        self._beside = Beside(self._home)
        self._gpus = TrainerGpus(loaded, ledger, engines)
        self._children: dict[str, _Child] = {}
        self._crashes: dict[str, _Crashes] = {}
        self._runs: list[TrainingRun] = []
        self._leaving = False
        self._swept = False

    def __len__(self) -> int:
        return len(self._children)

    def look(self, now: float) -> None:
        """Start what may run, end what was cancelled. Raises HoustonError."""
        if self._leaving:
            return
        with Reader(self._home) as reader:
            unfinished = reader.run(training_runs.every(unfinished=True))
        for run in unfinished:
            if run.alone and (end := self._beside.ended(run, now)):
                self._moved(run.id, *end)
        self._runs = [run for run in unfinished if not run.alone]
        for gone in self._crashes.keys() - {run.id for run in self._runs}:
            del self._crashes[gone]  # it was cancelled as it waited
        self._gpus.keep({run.id for run in self._runs} | self._children.keys())
        for run in self._runs:
            if child := self._children.get(run.id):
                _end(child, run.cancelling)
            elif not self._ours(run):
                continue
            elif run.cancelling:  # its process went with a daemon that died, and left its GPUs
                self._moved(run.id, "cancelled", "")
                self._gpus.free(run.id)
            elif self._turn(run, now):
                self._start(run)

    def told(self) -> dict[str, str]:
        """Run → how far it has come, for the status."""
        return {run.id: self._words(run) for run in self._runs}

    def troubles(self, now: float) -> dict[str, str]:
        """Trainers that keep ending, for the status."""
        return {
            f"training {run}": f"ended {one.count} times without a word; again in "
            f"{max(0.0, one.not_before - now):.0f} s"
            for run, one in self._crashes.items()
            if run not in self._children and one.count
        }

    def ended(self, event: TrainerEnded, now: float) -> None:
        """Take note of an end."""
        child = self._children.get(event.run)
        if child is None or child.process.pid != event.pid:
            return
        code = child.process.wait()
        del self._children[event.run]
        end_marked([trainer_command.mark(self._home, event.run)], SWEEP_SECONDS)
        self._gpus.free(event.run)
        if self._leaving:
            return
        try:
            self._conclude(event.run, code, child.ending, now)
        except HoustonError as problem:  # a full disk: it is started again, and ends again
            LOGGER.warning("training %s: %s", event.run, problem)

    def leave(self) -> None:
        """Ask all to write a checkpoint and end; they go on at the next start."""
        self._leaving = True
        for child in self._children.values():
            _signal(child, signal.SIGTERM)

    def kill(self) -> None:
        """End all at once."""
        self._leaving = True
        for child in self._children.values():
            try:
                os.killpg(child.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _ours(self, run: TrainingRun) -> bool:
        """Whether to start or end it is ours: a person may have gone on with it while no daemon
        ran. A trainer of ours would end at once beside that one, which is no crash."""
        self._sweep()
        if at_work(self._home, run.id):
            self._crashes.pop(run.id, None)
            if run.reason != ELSEWHERE:
                self._moved(run.id, "queued" if run.state == "queued" else "running", ELSEWHERE)
            return False
        if end := ended_elsewhere(self._home, run):
            self._moved(run.id, *end)
            return False
        return True

    def _sweep(self) -> None:
        """End what a daemon that died has left, once: nothing may write beside ours."""
        if not self._swept:
            end_marked(trainer_command.marks(self._home), SWEEP_SECONDS)
            self._swept = True

    def _turn(self, run: TrainingRun, now: float) -> bool:
        """Whether it may start: after a crash not at once, and on the CPU one at a time."""
        crashes = self._crashes.get(run.id)
        if crashes and now < crashes.not_before:
            return False
        asked = self._asked(run)
        if asked is None:
            self._moved(run.id, "failed", "what was asked of it is lost")
            return False
        others = [one for one in self._children if not self._gpus.of(one)]
        if not asked.gpus and others:
            self._moved(run.id, "queued", f"waits for training {others[0]} to end")
            return False
        said = self._gpus.lease(run.id, asked.gpus, asked.share_gpus)
        if said:
            self._moved(run.id, "queued" if said.waits else "failed", said.why)
        return said is None

    def _start(self, run: TrainingRun) -> None:
        asked = self._asked(run)
        gpus = asked.gpus if asked else 0
        folder = training_progress.folder(self._home, run.id)
        try:
            process = trainer_command.start(
                self._loaded, run.id, run.kind, gpus, self._gpus.visible(run.id), LEAVE_SECONDS
            )
            self._inbox.watch(os.pidfd_open(process.pid), TrainerEnded(run.id, process.pid))
        except (OSError, HoustonError) as problem:
            self._gpus.free(run.id)
            self._moved(run.id, "failed", f"it cannot be started: {problem}")
            return
        self._children[run.id] = _Child(process)
        LOGGER.info("training %s: started (pid %s, %s)", run.id, process.pid, folder)
        self._recorder.training_moved(run.id, "running", "", start=True)

    def _conclude(self, run: str, code: int, ending: str, now: float) -> None:
        """What the end of a process means for its run."""
        progress = training_progress.read(self._home, run)
        said = progress.message if progress else ""
        LOGGER.info("training %s: its process ended with exit code %s", run, code)
        if code and (code == ExitCode.BUSY or at_work(self._home, run)):
            return  # somebody else was there first, and what the folder says is theirs
        failed = progress is not None and progress.state == "failed"
        if code and not ending and not failed:
            self._crashed(run, code, progress.step if progress else 0, now)
            return
        self._crashes.pop(run, None)
        if code == 0:  # also of one that was cancelled as it ended: its policy is there
            self._moved(run, "finished", "")
        elif ending:
            self._moved(run, "cancelled", "")
        else:
            self._moved(run, "failed", said or f"it ended with exit code {code}")

    def _crashed(self, run: str, code: int, step: int, now: float) -> None:
        before = self._crashes.get(run)
        count = before.count + 1 if before and before.step == step else 1
        line = last_line(trainer_command.output(self._home, run)) or "it wrote nothing"
        how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        if count >= CRASHES:
            del self._crashes[run]
            self._moved(run, "failed", f"it ended {count} times ({how}): {line}")
            return
        delay = min(LONGEST_DELAY_SECONDS, 2.0 ** (count - 1))
        self._crashes[run] = _Crashes(count, step, now + delay)
        LOGGER.warning("training %s ended (%s): %s; again in %.0f s", run, how, line, delay)

    def _moved(self, run: str, state: RunState, reason: str) -> None:
        self._recorder.training_moved(run, state, reason)

    def _words(self, run: TrainingRun) -> str:
        if run.id not in self._children:
            return f"{run.state}: {run.reason}" if run.reason else run.state
        return training_progress.words(training_progress.read(self._home, run.id))

    def _asked(self, run: TrainingRun) -> TrainingAsked | None:
        with Reader(self._home) as reader:
            return reader.run(training_runs.asked(run))

    def next_due(self, now: float) -> float | None:
        """When a crashed one is started again, monotonic; None where none waits."""
        waiting = [
            one.not_before for run, one in self._crashes.items() if run not in self._children
        ]
        return min((due for due in waiting if due > now), default=None)


def _end(child: _Child, who: str) -> None:
    """Ask it to end, once, where somebody wants that."""
    if who and not child.ending:
        child.ending = who
        _signal(child, signal.SIGTERM)


def _signal(child: _Child, number: signal.Signals) -> None:
    if child.process.poll() is None:
        child.process.send_signal(number)
