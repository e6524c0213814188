"""Training runs as children of the daemon: started, given GPUs, started again, ended with it.

A run is state in the journal, and its checkpoints are files: a trainer that was killed, or ended
with the daemon, is restarted from its last checkpoint, and fails after three crashes without a step
between. GPUs are leased as for everybody; those of an engine are refused unless both sides share. A
run that a trainer outside this daemon works on is left alone, and its end is read from its folder.
What a trainer computes is not known here; `trainer_launch` builds its command line.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from houston_daemon.engines.engine_process import kill_by_environment
from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service import trainer_launch
from houston_daemon.service.daemon_log import LOGGER, describe_exit, read_last_line
from houston_daemon.service.gpu_ledger import ENGINE_HOLDER_PREFIX, GpuLedger
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.training.runs import run_folder
from houston_shared import policy_and_run_files
from houston_shared.backoff import Backoff, next_try
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.gpu_leases import visible_gpus_environment
from houston_shared.home import Home
from houston_shared.policy_and_run_files import TrainingProgress
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import RunState, TrainingQueued

_TRAINER_PREFIX = "trainer:"


class GpuRefusal(NamedTuple):
    """Why a run has no GPUs."""

    why: str
    waits: bool
    """Whether it may have them later."""


class TrainerGpus:
    """What trainers have; used from the supervisor's thread only."""

    def __init__(
        self, loaded: LoadedConfiguration, ledger: GpuLedger, engines: Callable[[], Collection[str]]
    ) -> None:
        """engines: names of the engines that run now."""
        self._loaded = loaded
        self._ledger = ledger
        self._engines = engines

    def lease(self, run: str, gpu_count: int, share: bool) -> GpuRefusal | None:
        """Lease GPUs; returns None, or why it gets none.

        Ray assigns several GPUs of a Ray cluster, on any node. Raises HoustonError when the ledger
        cannot be written.
        """
        if not gpu_count or (gpu_count > 1 and self._loaded.config.ray.schedules_gpus):
            return None
        if reason := self._refusal_reason(run, gpu_count, share):
            return GpuRefusal(reason, False)
        leased = self._ledger.lease(_TRAINER_PREFIX + run, {LOCAL_HOST: gpu_count}, share)
        return GpuRefusal(leased, True) if isinstance(leased, str) else None

    def gpus_of(self, run: str) -> tuple[int, ...]:
        """Numbers of what it has."""
        return self._ledger.gpus_of(_TRAINER_PREFIX + run).get(LOCAL_HOST, ())

    def visible(self, run: str) -> dict[str, str]:
        """The environment in which it sees its GPUs, and no other; none: it sees none."""
        return visible_gpus_environment(self.gpus_of(run))

    def release(self, run: str) -> None:
        """Give them back."""
        self._ledger.release(_TRAINER_PREFIX + run)

    def release_others(self, runs: Collection[str]) -> None:
        """Free what trainers of other runs than these have, or wait for: a run may have ended with
        no process of this daemon. Raises HoustonError when the ledger cannot be written."""
        holders = {_TRAINER_PREFIX + run for run in runs}
        self._ledger.release_others(
            lambda holder: not holder.startswith(_TRAINER_PREFIX) or holder in holders
        )

    def _refusal_reason(self, run: str, gpu_count: int, share: bool) -> str:
        """Why it can never have them as things are; empty where it can."""
        count = self._loaded.gpus(LOCAL_HOST)
        if gpu_count > count:
            return f"it asks for {gpu_count} GPUs and this host has {count} (`gpus` of [hosts])"
        if self.gpus_of(run):
            return ""
        blind = sorted(name for name in self._engines() if self._sees_all(name))
        if blind and not share:
            return (
                f"engine {blind[0]} leases no GPU and sees all of them: train with --share-gpus, "
                f"or set `engines.{blind[0]}.gpus`"
            )
        leases = [lease for lease in self._ledger.snapshot().leases if lease.host == LOCAL_HOST]
        holders = {
            lease.gpu: lease.holder.removeprefix(ENGINE_HOLDER_PREFIX)
            for lease in leases
            if lease.holder.startswith(ENGINE_HOLDER_PREFIX) and not (share and lease.shared)
        }
        if count - len(holders) < gpu_count:
            names = ", ".join(sorted(set(holders.values())))
            share_hint = "" if share else "train with --share-gpus and "
            return (
                f"it asks for {gpu_count} of {count} GPUs, and {len(holders)} are used by engine"
                f" {names}: {share_hint}set `engines.{names}.gpus_shared`, or end that engine"
            )
        return ""

    def _sees_all(self, name: str) -> bool:
        try:
            engine = self._loaded.engine(name.partition("#")[0])  # of a replica, its engine's
        except ConfigurationError:  # one of full weights: it has what its base's engine has
            return False
        return engine.kind in ("embedded", "vllm") and not engine.addressed and not engine.gpus


TRAINER_BEGIN_SECONDS = 60.0
"""What a trainer may take from being announced to holding its folder: it imports much."""
TRAINED_ELSEWHERE = (
    "a trainer that this daemon did not start is running in its folder: this run waits until "
    "that trainer ends, which can be ended where it was started"
)
"""Why a run of the daemon's own is not started, and not ended either."""
_FINAL_STATES: dict[str, RunState] = {
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}


class ExternalTrainers:
    """Used from the supervisor's thread only."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._empty: dict[str, float] = {}
        """Run → since when nobody was seen at work in its folder, monotonic."""

    def ended(self, run: TrainingRunRow, now: float) -> tuple[RunState, str] | None:
        """State and reason of a run that has ended; None while it runs or may start soon."""
        if end := _reported_end(
            run, policy_and_run_files.read_training_progress(self._home, run.id)
        ):
            self._empty.pop(run.id, None)
            return end
        if is_trainer_at_work(self._home, run.id):
            self._empty.pop(run.id, None)
        elif now - self._empty.setdefault(run.id, now) >= TRAINER_BEGIN_SECONDS:
            del self._empty[run.id]
            return "failed", "its process was killed"
        return None


def is_trainer_at_work(home: Home, run: str) -> bool:
    """Whether a trainer is at work in the folder of a run, or may be, whoever started it."""
    return bool(_why_left_alone(home, run))


def _why_left_alone(home: Home, run: str) -> str:
    """Why a run is neither started nor ended here; empty where no trainer is at work in its
    folder."""
    try:
        run_folder.require_no_trainer(policy_and_run_files.training_run_folder(home, run))
    except HoustonError as problem:
        return TRAINED_ELSEWHERE if problem.code == ExitCode.BUSY else problem.cause
    return ""


def read_external_end(home: Home, run: TrainingRunRow) -> tuple[RunState, str] | None:
    """State and reason of a run of the daemon's own that somebody else's trainer ended.

    None if that trainer was killed, or if the daemon's own ran last: the daemon continues the run.
    """
    progress = policy_and_run_files.read_training_progress(home, run.id)
    return _reported_end(run, progress) if progress is not None and progress.alone else None


def _reported_end(
    run: TrainingRunRow, progress: TrainingProgress | None
) -> tuple[RunState, str] | None:
    """State and reason, where the trainer of a run said that it is over."""
    state = _FINAL_STATES.get(progress.state) if progress else None
    if progress is None or state is None:
        return None
    if state == "finished":
        again = f"houston train sft --resume {run.id}"
        return state, "" if run.policy else f"no daemon registered its policy: {again}"
    return state, progress.message if state == "failed" else ""


TRAINER_CRASH_LIMIT = 3
"""Ends without a word, one after the other and without a step in between, before a run fails."""
KILLED_TRAINER_SECONDS = 2.0
"""What a killed process may take to be gone."""
CHECKPOINT_SECONDS = 30.0
"""What a cancelled trainer has to write a checkpoint and leave."""


@dataclass(frozen=True, slots=True)
class TrainerEnded:
    """A trainer's process ended."""

    run: str
    pid: int


@dataclass(slots=True)
class _TrainerProcess:
    process: "subprocess.Popen[bytes]"
    ending: str = ""
    """Who wants it ended; empty while nobody does."""


@dataclass(slots=True)
class _TrainerCrashes:
    step: int = 0
    """How far it had come at the last of them."""
    backoff: Backoff = field(default_factory=Backoff)


class Trainers:
    """All training runs of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recorder: RecorderHandle,
        inbox: SupervisorInbox,
        ledger: GpuLedger,
        engines: Callable[[], Collection[str]],
    ) -> None:
        """engines: names of the engines that run now."""
        self._loaded = loaded
        self._home = loaded.home
        self._recorder = recorder
        self._inbox = inbox
        self._external = ExternalTrainers(self._home)
        self._gpus = TrainerGpus(loaded, ledger, engines)
        self._children: dict[str, _TrainerProcess] = {}
        self._crashes: dict[str, _TrainerCrashes] = {}
        self._runs: list[TrainingRunRow] = []
        self._is_shutting_down = False
        self._has_ended_leftovers = False

    def __len__(self) -> int:
        return len(self._children)

    def update(self, now: float) -> None:
        """Start what may run, end what was cancelled. Raises HoustonError."""
        if self._is_shutting_down:
            return
        with Reader(self._home) as reader:
            unfinished = reader.run(policy_queries.list_training_runs(unfinished=True))
        for run in unfinished:
            if run.alone and (end := self._external.ended(run, now)):
                self._set_state(run.id, *end)
        self._runs = [run for run in unfinished if not run.alone]
        for run_id in self._crashes.keys() - {run.id for run in self._runs}:
            del self._crashes[run_id]  # it was cancelled as it waited
        self._gpus.release_others({run.id for run in self._runs} | self._children.keys())
        for run_id in self._children.keys() - {run.id for run in unfinished}:
            _ask_to_end(self._children[run_id], "daemon")  # cancelled as it was started
        for run in self._runs:
            if child := self._children.get(run.id):
                _ask_to_end(child, run.cancelling)
            elif not self._owns_run(run):
                continue
            elif run.cancelling:  # its process went with a daemon that died, and left its GPUs
                self._set_state(run.id, "cancelled", "")
                self._gpus.release(run.id)
            elif self._may_start(run, now):
                self._start(run)

    def describe(self) -> dict[str, str]:
        """Run → how far it has come, for the status."""
        return {run.id: self._describe_run(run) for run in self._runs}

    def troubles(self, now: float) -> dict[str, str]:
        """Trainers that keep ending, for the status."""
        return {
            f"training {run}": f"ended {crashes.backoff.failures} times without a word; again in "
            f"{crashes.backoff.seconds_left(now):.0f} s"
            for run, crashes in self._crashes.items()
            if run not in self._children
        }

    def on_ended(self, event: TrainerEnded, now: float) -> None:
        """Take note of an end."""
        child = self._children.get(event.run)
        if child is None or child.process.pid != event.pid:
            return
        code = child.process.wait()
        del self._children[event.run]
        kill_by_environment(
            [trainer_launch.trainer_mark(self._home, event.run)], KILLED_TRAINER_SECONDS
        )
        self._gpus.release(event.run)
        if self._is_shutting_down:
            return
        try:
            self._conclude(event.run, code, child.ending, now)
        except HoustonError as problem:  # a full disk: it is started again, and ends again
            LOGGER.warning("training %s: %s", event.run, problem)

    def begin_shutdown(self) -> None:
        """Ask all to write a checkpoint and end; they go on at the next start."""
        self._is_shutting_down = True
        for child in self._children.values():
            _signal_trainer(child, signal.SIGTERM)

    def kill(self) -> None:
        """End all at once."""
        self._is_shutting_down = True
        for child in self._children.values():
            try:
                os.killpg(child.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _owns_run(self, run: TrainingRunRow) -> bool:
        """Whether to start or end it is ours: a person may have gone on with it while no daemon
        ran. A trainer of ours would end at once beside that one, which is no crash."""
        self._end_left_processes()
        if reason := _why_left_alone(self._home, run.id):
            self._crashes.pop(run.id, None)
            if run.reason != reason:
                self._set_state(run.id, "queued" if run.state == "queued" else "running", reason)
            return False
        if end := read_external_end(self._home, run):
            self._set_state(run.id, *end)
            return False
        return True

    def _end_left_processes(self) -> None:
        """End what a daemon that died has left, once: nothing may write beside ours."""
        if not self._has_ended_leftovers:
            kill_by_environment(
                trainer_launch.all_trainer_marks(self._home), KILLED_TRAINER_SECONDS
            )
            self._has_ended_leftovers = True

    def _may_start(self, run: TrainingRunRow, now: float) -> bool:
        """Whether it may start: after a crash not at once, and on the CPU one at a time."""
        crashes = self._crashes.get(run.id)
        if crashes and now < crashes.backoff.not_before:
            return False
        request = self._asked(run)
        if request is None:
            self._set_state(run.id, "failed", "its start request is lost")
            return False
        runs_without_gpus = [run_id for run_id in self._children if not self._gpus.gpus_of(run_id)]
        if not request.gpus and runs_without_gpus:
            self._set_state(run.id, "queued", f"waits for training {runs_without_gpus[0]} to end")
            return False
        refusal = self._gpus.lease(run.id, request.gpus, request.share_gpus)
        if refusal:
            self._set_state(run.id, "queued" if refusal.waits else "failed", refusal.why)
        return refusal is None

    def _start(self, run: TrainingRunRow) -> None:
        request = self._asked(run)
        gpus = request.gpus if request else 0
        folder = policy_and_run_files.training_run_folder(self._home, run.id)
        visible = self._gpus.visible(run.id)
        # First: who cancels it from now on has its process ended.
        self._recorder.report_training_state(run.id, "running", "", start=True)
        try:
            process = trainer_launch.start_trainer_process(
                self._loaded, run.id, run.kind, gpus, visible, CHECKPOINT_SECONDS
            )
            self._watch_process(run.id, process)
        except (OSError, HoustonError) as problem:
            self._gpus.release(run.id)
            self._set_state(run.id, "failed", f"it cannot be started: {problem}")
            return
        self._children[run.id] = _TrainerProcess(process)
        LOGGER.info("training %s: started (pid %s, %s)", run.id, process.pid, folder)

    def _watch_process(self, run: str, process: "subprocess.Popen[bytes]") -> None:
        """Hear of its end. Raises OSError where that cannot be; it is ended then: nobody would know
        of it, and its GPUs are given to others."""
        try:
            self._inbox.watch(os.pidfd_open(process.pid), TrainerEnded(run, process.pid))
        except OSError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kill_by_environment(
                [trainer_launch.trainer_mark(self._home, run)], KILLED_TRAINER_SECONDS
            )
            raise

    def _conclude(self, run: str, code: int, ending: str, now: float) -> None:
        """What the end of a process means for its run."""
        progress = policy_and_run_files.read_training_progress(self._home, run)
        message = progress.message if progress else ""
        LOGGER.info("training %s: its process ended with exit code %s", run, code)
        if code and (code == ExitCode.BUSY or is_trainer_at_work(self._home, run)):
            return  # somebody else was there first, and what the folder says is theirs
        failed = progress is not None and progress.state == "failed"
        if code and not ending and not failed:
            self._record_crash(run, code, progress.step if progress else 0, now)
            return
        self._crashes.pop(run, None)
        if code == 0:  # also of one that was cancelled as it ended: its policy is there
            self._set_state(run, "finished", "")
        elif ending:
            self._set_state(run, "cancelled", "")
        else:
            self._set_state(run, "failed", message or f"it ended with exit code {code}")

    def _record_crash(self, run: str, code: int, step: int, now: float) -> None:
        crashes = self._crashes.setdefault(run, _TrainerCrashes())
        delay = crashes.backoff.fail(now, first=crashes.step != step)
        crashes.step, count = step, crashes.backoff.failures
        line = (
            read_last_line(trainer_launch.trainer_output_file(self._home, run))
            or "it wrote nothing"
        )
        # Its first process ends as one that a signal ended, unless that was killed itself.
        exit_text = describe_exit(128 - code if code > 128 else code)
        if count >= TRAINER_CRASH_LIMIT:
            del self._crashes[run]
            self._set_state(run, "failed", f"it ended {count} times ({exit_text}): {line}")
            return
        LOGGER.warning("training %s ended (%s): %s; again in %.0f s", run, exit_text, line, delay)

    def _set_state(self, run: str, state: RunState, reason: str) -> None:
        self._recorder.report_training_state(run, state, reason)

    def _describe_run(self, run: TrainingRunRow) -> str:
        if run.id not in self._children:
            return f"{run.state}: {run.reason}" if run.reason else run.state
        return policy_and_run_files.describe_training_progress(
            policy_and_run_files.read_training_progress(self._home, run.id)
        )

    def _asked(self, run: TrainingRunRow) -> TrainingQueued | None:
        with Reader(self._home) as reader:
            return reader.run(policy_queries.read_training_request(run))

    def next_due(self, now: float) -> float | None:
        """When a crashed one is started again, monotonic; None where none waits."""
        waiting = self._crashes.keys() - self._children.keys()
        return next_try((self._crashes[run].backoff for run in waiting), now)


def _ask_to_end(child: _TrainerProcess, reason: str) -> None:
    """Ask it to end, once, where somebody wants that."""
    if reason and not child.ending:
        child.ending = reason
        _signal_trainer(child, signal.SIGTERM)


def _signal_trainer(child: _TrainerProcess, number: signal.Signals) -> None:
    if child.process.poll() is None:
        child.process.send_signal(number)
