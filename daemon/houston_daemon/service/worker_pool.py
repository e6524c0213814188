"""The worker processes: at most so many, few starting at once, restarted with backoff.

A worker that dies is started again after 1, 2, 4 … 60 s; after five deaths without a closed step
between them its rollout fails, with the last line of its log as the reason. One that is silent
for too long (stopped, hung) is killed, which is a death like any other. Which rollouts may run is
decided by the recorder, and whether their engine answers by the supervisor. How a process is
started is `worker_spawner`.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from houston_daemon.recorder.live_workers import WorkerSilence
from houston_daemon.recorder.recorder_handle import Assignment, RecorderHandle
from houston_daemon.service.backoff import Backoff, next_try
from houston_daemon.service.daemon_log import LOGGER, read_last_line
from houston_daemon.service.fork_server import WorkerEnded, WorkerStarted
from houston_daemon.service.supervisor_queries import ResumableRollout
from houston_daemon.service.worker_spawner import SilenceWatch, WorkerLost
from houston_shared.faults import point

STARTING_WORKERS_LIMIT = 4
"""Workers asked for and not yet born; more would only starve each other and the recorder."""
WORKER_DEATHS_LIMIT = 5
FAILED_START_SECONDS = 60.0
"""After a worker that could not even be asked for."""


@dataclass(slots=True)
class _RunningWorker:
    lease: int
    engine: str
    url: str
    pid: int = 0
    """0 until it is born."""
    end_signal: signal.Signals | None = None
    """The signal that told it to end: then its end is no death."""
    silent: float = 0.0
    """Seconds that it has said nothing, where that is noticeable."""
    hung: bool = False
    """Whether it was killed for its silence."""


@dataclass(slots=True)
class _DeathHistory:
    steps: int = 0
    """Closed steps at the last death."""
    backoff: Backoff = field(default_factory=Backoff)
    """Counts the deaths without a closed step between them."""
    last_words: str = ""
    """What its worker wrote last before it died."""
    last_exit: str = ""
    """The exit code or signal of the last death."""


LaunchWorker = Callable[[Assignment, str], None]
"""Asks for the worker of an assignment, with the URL of its engine (empty for none)."""
EngineUrlLookup = Callable[[str], str | None]
"""URL of an engine that answers (empty where workers know it themselves), None while it is down."""


class WorkerPool:
    """All workers of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        recorder: RecorderHandle,
        launch: LaunchWorker,
        log_of: Callable[[str], Path],
        limit: int,
        silent_seconds: float = 60.0,
    ) -> None:
        self._silences = SilenceWatch(silent_seconds)
        self._recorder = recorder
        self._launch = launch
        self._log_of = log_of
        self.limit = limit
        """How many run at the same time, at most."""
        self._running: dict[str, _RunningWorker] = {}
        self._histories: dict[str, _DeathHistory] = {}
        self.restarts = 0
        """Workers that died and whose rollout was to go on, since the daemon's start."""
        self._unreported_ends: list[tuple[str, int, str]] = []
        """Ends of workers (rollout, lease, failure) that the recorder has not stored yet."""

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def __contains__(self, rollout: object) -> bool:
        """Whether a worker of this rollout runs."""
        return rollout in self._running

    @property
    def pids(self) -> dict[str, int]:
        """Rollout → process id of its worker, of those that are born."""
        return {rollout: worker.pid for rollout, worker in self._running.items() if worker.pid}

    def troubles(self, now: float, resumable: dict[str, ResumableRollout]) -> dict[str, str]:
        """Workers that died without a closed step since, and what comes next, for the status."""
        troubles = {}
        for rollout, history in self._histories.items():
            standing = resumable.get(rollout)
            deaths = history.backoff.failures
            if deaths and standing and standing.steps == history.steps:
                wait = history.backoff.seconds_left(now)
                next_start = "runs again" if rollout in self._running else f"again in {wait:.0f} s"
                troubles[f"worker of {rollout}"] = (
                    f"died {deaths} of {WORKER_DEATHS_LIMIT} times without a step between; "
                    f"{next_start}; last ({history.last_exit}): {history.last_words}"
                )
        for rollout, worker in self._running.items():
            if worker.silent:
                troubles[f"worker of {rollout}"] = self._quiet(worker)
        return troubles

    def _quiet(self, worker: _RunningWorker) -> str:
        limit = f"ended after {self._silences.limit:g} s"
        return f"silent for {worker.silent:.0f} s; {'killed' if worker.hung else limit}"

    def end_silent(self, silences: Mapping[str, WorkerSilence]) -> None:
        """Kill workers that have been silent for too long, by what the recorder heard of them."""
        for rollout, worker in self._running.items():
            silence = silences.get(rollout)
            if silence is None or silence.lease != worker.lease:
                continue
            if not worker.pid or worker.end_signal:
                continue
            noticed = self._silences.noticed(worker.pid, silence.seconds)
            worker.silent = silence.seconds if noticed else 0.0
            if noticed and not worker.hung and self._silences.hung(worker.pid, silence.seconds):
                LOGGER.error(
                    "worker of %s (pid %s, lease %s) has been silent for %.0f s: it is killed",
                    rollout, worker.pid, worker.lease, silence.seconds,
                )  # fmt: skip
                worker.hung = True
                _signal_worker(worker.pid, signal.SIGKILL)

    def start_runnable(
        self,
        now: float,
        resumable: dict[str, ResumableRollout],
        reachable: EngineUrlLookup,
        equipped: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Start workers for runnable rollouts, oldest first, as far as the limits allow.

        equipped: whether a rollout has the GPUs that it asked for.
        Raises HoustonError when the recorder cannot store it now; the next call tries again.
        """
        self._report_ends()
        runnable = self._recorder.runnable()
        gone = self._histories.keys() - set(runnable) - self._running.keys()
        for rollout in gone:
            del self._histories[rollout]
        for rollout in runnable:
            starting = sum(not worker.pid for worker in self._running.values())
            if len(self._running) >= self.limit or starting >= STARTING_WORKERS_LIMIT:
                return
            standing = resumable.get(rollout)
            if standing is None or rollout in self._running or self._due(rollout) > now:
                continue
            url = reachable(standing.engine)
            if url is not None and equipped(rollout):
                self._start(rollout, standing, url, now)

    def next_due(self, now: float) -> float | None:
        """When the next backoff ends, None when nothing waits for one."""
        histories = self._histories.items()
        waiting = (
            history.backoff for rollout, history in histories if rollout not in self._running
        )
        return next_try(waiting, now)

    def on_started(self, event: WorkerStarted) -> None:
        """A process runs: there is room for the next start."""
        worker = self._running.get(event.rollout)
        if worker is None or worker.lease != event.lease:
            return
        point("supervisor.born.before")
        worker.pid = event.pid
        LOGGER.info("worker of %s: pid %s, lease %s", event.rollout, event.pid, event.lease)
        if worker.end_signal:
            _signal_worker(worker.pid, worker.end_signal)

    def on_ended(
        self, event: WorkerEnded, now: float, resumable: dict[str, ResumableRollout]
    ) -> None:
        """Take note of a process that ended, and decide when its rollout may go on."""
        point("supervisor.died.before")
        worker = self._running.pop(event.rollout)
        self._wait(event.rollout, now + 1.0)
        failure = ""
        if event.code != 0 and not worker.end_signal:
            standing = resumable.get(event.rollout)
            hung = f"it was silent for {worker.silent:.0f} s and was killed" if worker.hung else ""
            failure = self._count_death(event.rollout, event.code, hung, standing, now)
        self._silences.forget(worker.pid)
        self._unreported_ends.append((event.rollout, worker.lease, failure))

    def on_lost(self, event: WorkerLost, now: float) -> None:
        """Its nursery ended, and it with it: no death of its own, and no fault of its rollout."""
        worker = self._running.pop(event.rollout)
        self._wait(event.rollout, now + event.delay)
        self.restarts += 1
        self._unreported_ends.append((event.rollout, worker.lease, ""))

    def end(self, number: signal.Signals, engine: str = "", other_than: str = "") -> None:
        """Signal every worker, or those of `engine` that were given another URL."""
        for worker in self._running.values():
            if engine and (worker.engine != engine or worker.url == other_than):
                continue
            worker.end_signal = number
            if worker.pid:
                _signal_worker(worker.pid, number)

    def _report_ends(self) -> None:
        """Tell the recorder of ended workers; what a full disk refuses is told again later."""
        while self._unreported_ends:
            point("supervisor.settle.before")
            self._recorder.worker_ended(*self._unreported_ends[0])
            point("supervisor.settle.after")
            self._unreported_ends.pop(0)

    def _wait(self, rollout: str, until: float) -> None:
        """Start no worker of a rollout before `until`."""
        self._histories.setdefault(rollout, _DeathHistory()).backoff.not_before = until

    def _due(self, rollout: str) -> float:
        history = self._histories.get(rollout)
        return history.backoff.not_before if history else 0.0

    def _start(self, rollout: str, standing: ResumableRollout, url: str, now: float) -> None:
        assignment = self._recorder.assign(rollout)
        lease = assignment.lease
        try:
            point("supervisor.launch.before")
            self._launch(assignment, url)
        except OSError as problem:
            LOGGER.error("worker of %s could not be started: %s", rollout, problem)
            self._wait(rollout, now + FAILED_START_SECONDS)
            self._unreported_ends.append((rollout, lease, ""))
            return
        point("supervisor.launch.after")
        self._running[rollout] = _RunningWorker(lease, standing.engine, url)

    def _count_death(
        self, rollout: str, code: int, why: str, standing: ResumableRollout | None, now: float
    ) -> str:
        """Count a death; returns why the rollout fails, empty while it may try again.

        why: why it was killed; empty for what its log says.
        """
        history = self._histories[rollout]
        steps = standing.steps if standing else history.steps
        delay = history.backoff.fail(now, first=steps > history.steps)
        history.steps = steps
        why = history.last_words = (
            why or read_last_line(self._log_of(rollout)) or "it wrote nothing"
        )
        how = history.last_exit = _describe_exit(code)
        deaths = history.backoff.failures
        if deaths >= WORKER_DEATHS_LIMIT:
            last = f"last ({how}): {why}"
            LOGGER.error("rollout %s fails: %s deaths; %s", rollout, deaths, last)
            cause = f"its worker ended {deaths} times without a step between; {last}"
            return f"{cause}; see: houston daemon logs --rollout {rollout}"
        self.restarts += 1
        LOGGER.warning("worker of %s ended (%s); again in %g s: %s", rollout, how, delay, why)
        return ""


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _signal_worker(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        if number == signal.SIGKILL:
            os.killpg(pid, number)  # what it runs at this moment (evaluators) ends too
