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
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.recorder.live_workers import WorkerSilence
from houston_daemon.recorder.recorder_handle import Assignment, RecorderHandle
from houston_daemon.service.daemon_log import LOGGER, read_last_line
from houston_daemon.service.fork_server import WorkerEnded, WorkerStarted
from houston_daemon.service.supervisor_queries import ResumableRollout
from houston_daemon.service.worker_spawner import SilenceWatch, WorkerLost
from houston_shared.faults import point

STARTING_WORKERS_LIMIT = 4
"""Workers asked for and not yet born; more would only starve each other and the recorder."""
WORKER_DEATHS_LIMIT = 5
LONGEST_DELAY_SECONDS = 60.0


@dataclass(slots=True)
class _RunningWorker:
    lease: int
    engine: str
    url: str
    pid: int = 0
    """0 until it is born."""
    asked: signal.Signals | None = None
    """The signal that told it to end: then its end is no death."""
    silent: float = 0.0
    """Seconds that it has said nothing, where that is noticeable."""
    hung: bool = False
    """Whether it was killed for its silence."""


@dataclass(slots=True)
class _DeathHistory:
    deaths: int = 0
    steps: int = 0
    not_before: float = 0.0
    said: str = ""
    """What its worker wrote last before it died."""
    how: str = ""
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
        self._live: dict[str, _RunningWorker] = {}
        self._past: dict[str, _DeathHistory] = {}
        self.restarts = 0
        """Workers that died and whose rollout was to go on, since the daemon's start."""
        self._owed: list[tuple[str, int, str]] = []
        """Ends of workers (rollout, lease, failure) that the recorder has not stored yet."""

    def __len__(self) -> int:
        """How many run."""
        return len(self._live)

    def __contains__(self, rollout: object) -> bool:
        """Whether a worker of this rollout runs."""
        return rollout in self._live

    @property
    def pids(self) -> dict[str, int]:
        """Rollout → process id of its worker, of those that are born."""
        return {rollout: live.pid for rollout, live in self._live.items() if live.pid}

    def troubles(self, now: float, standings: dict[str, ResumableRollout]) -> dict[str, str]:
        """Workers that died without a closed step since, and what comes next, for the status."""
        found = {}
        for rollout, past in self._past.items():
            standing = standings.get(rollout)
            if past.deaths and standing and standing.steps == past.steps:
                wait = max(0.0, past.not_before - now)
                then = "runs again" if rollout in self._live else f"again in {wait:.0f} s"
                found[f"worker of {rollout}"] = (
                    f"died {past.deaths} of {WORKER_DEATHS_LIMIT} times without a step between; "
                    f"{then}; last ({past.how}): {past.said}"
                )
        for rollout, live in self._live.items():
            if live.silent:
                found[f"worker of {rollout}"] = self._quiet(live)
        return found

    def _quiet(self, live: _RunningWorker) -> str:
        after = f"ended after {self._silences.limit:g} s"
        return f"silent for {live.silent:.0f} s; {'killed' if live.hung else after}"

    def end_silent(self, silences: Mapping[str, WorkerSilence]) -> None:
        """Kill workers that have been silent for too long, by what the recorder heard of them."""
        for rollout, live in self._live.items():
            silence = silences.get(rollout)
            if silence is None or silence.lease != live.lease or not live.pid or live.asked:
                continue
            noticed = self._silences.noticed(live.pid, silence.seconds)
            live.silent = silence.seconds if noticed else 0.0
            if noticed and not live.hung and self._silences.hung(live.pid, silence.seconds):
                LOGGER.error(
                    "worker of %s (pid %s, lease %s) has been silent for %.0f s: it is killed",
                    rollout, live.pid, live.lease, silence.seconds,
                )  # fmt: skip
                live.hung = True
                _signal_worker(live.pid, signal.SIGKILL)

    def fill(
        self,
        now: float,
        standings: dict[str, ResumableRollout],
        reachable: EngineUrlLookup,
        equipped: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Start workers for runnable rollouts, oldest first, as far as the limits allow.

        equipped: whether a rollout has the GPUs that it asked for.
        Raises HoustonError when the recorder cannot store it now; the next call tries again.
        """
        self._settle()
        runnable = self._recorder.runnable()
        gone = self._past.keys() - set(runnable) - self._live.keys()
        for rollout in gone:
            del self._past[rollout]
        for rollout in runnable:
            if len(self._live) >= self.limit or self._starting() >= STARTING_WORKERS_LIMIT:
                return
            standing = standings.get(rollout)
            if standing is None or rollout in self._live or self._due(rollout) > now:
                continue
            url = reachable(standing.engine)
            if url is not None and equipped(rollout):
                self._start(rollout, standing, url, now)

    def next_due(self, now: float) -> float | None:
        """When the next backoff ends, None when nothing waits for one."""
        waiting = [p.not_before for r, p in self._past.items() if r not in self._live]
        return min((due for due in waiting if due > now), default=None)

    def born(self, event: WorkerStarted) -> None:
        """A process runs: there is room for the next start."""
        live = self._live.get(event.rollout)
        if live is None or live.lease != event.lease:
            return
        point("supervisor.born.before")
        live.pid = event.pid
        LOGGER.info("worker of %s: pid %s, lease %s", event.rollout, event.pid, event.lease)
        if live.asked:
            _signal_worker(live.pid, live.asked)

    def died(self, event: WorkerEnded, now: float, standings: dict[str, ResumableRollout]) -> None:
        """Take note of a process that ended, and decide when its rollout may go on."""
        point("supervisor.died.before")
        live = self._live.pop(event.rollout)
        past = self._past.setdefault(event.rollout, _DeathHistory())
        past.not_before = now + 1.0
        failure = ""
        if event.code != 0 and not live.asked:
            standing = standings.get(event.rollout)
            said = f"it was silent for {live.silent:.0f} s and was killed" if live.hung else ""
            failure = self._death(event.rollout, event.code, said, past, standing, now)
        self._silences.forget(live.pid)
        self._owed.append((event.rollout, live.lease, failure))

    def lost(self, event: WorkerLost, now: float) -> None:
        """Its nursery ended, and it with it: no death of its own, and no fault of its rollout."""
        live = self._live.pop(event.rollout)
        self._past.setdefault(event.rollout, _DeathHistory()).not_before = now + event.delay
        self.restarts += 1
        self._owed.append((event.rollout, live.lease, ""))

    def end(self, number: signal.Signals, engine: str = "", other_than: str = "") -> None:
        """Signal every worker, or those of `engine` that were given another URL."""
        for live in self._live.values():
            if engine and (live.engine != engine or live.url == other_than):
                continue
            live.asked = number
            if live.pid:
                _signal_worker(live.pid, number)

    def _settle(self) -> None:
        """Tell the recorder of ended workers; what a full disk refuses is told again later."""
        while self._owed:
            point("supervisor.settle.before")
            self._recorder.worker_ended(*self._owed[0])
            point("supervisor.settle.after")
            self._owed.pop(0)

    def _starting(self) -> int:
        return sum(not live.pid for live in self._live.values())

    def _due(self, rollout: str) -> float:
        past = self._past.get(rollout)
        return past.not_before if past else 0.0

    def _start(self, rollout: str, standing: ResumableRollout, url: str, now: float) -> None:
        assignment = self._recorder.assign(rollout)
        lease = assignment.lease
        try:
            point("supervisor.launch.before")
            self._launch(assignment, url)
        except OSError as problem:
            LOGGER.error("worker of %s could not be started: %s", rollout, problem)
            self._past.setdefault(rollout, _DeathHistory()).not_before = now + LONGEST_DELAY_SECONDS
            self._owed.append((rollout, lease, ""))
            return
        point("supervisor.launch.after")
        self._live[rollout] = _RunningWorker(lease, standing.engine, url)

    def _death(
        self,
        rollout: str,
        code: int,
        said: str,
        past: _DeathHistory,
        standing: ResumableRollout | None,
        now: float,
    ) -> str:
        """Count a death; returns why the rollout fails, empty while it may try again.

        said: why it was killed; empty for what its log says.
        """
        steps = standing.steps if standing else past.steps
        past.deaths = 1 if steps > past.steps else past.deaths + 1
        past.steps = steps
        said = past.said = said or read_last_line(self._log_of(rollout)) or "it wrote nothing"
        how = past.how = _describe_exit(code)
        if past.deaths >= WORKER_DEATHS_LIMIT:
            last = f"last ({how}): {said}"
            LOGGER.error("rollout %s fails: %s deaths; %s", rollout, past.deaths, last)
            said = f"its worker ended {past.deaths} times without a step between; {last}"
            return f"{said}; see: houston daemon logs --rollout {rollout}"
        self.restarts += 1
        delay = min(LONGEST_DELAY_SECONDS, 2.0 ** (past.deaths - 1))
        past.not_before = now + delay
        LOGGER.warning("worker of %s ended (%s); again in %g s: %s", rollout, how, delay, said)
        return ""


def _describe_exit(code: int) -> str:
    """How a process ended, as the kernel or it said."""
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
