"""The worker processes: limited in number, few starting at once, restarted with backoff.

A worker that dies is started again after 1, 2, 4 … 60 s; after five deaths without a closed step
between them its rollout fails, with the last line of its log as the reason. A worker that is silent
for too long (stopped, hung) is killed, which counts as a death. The recorder decides which rollouts
may run, and the supervisor whether their engine answers. Short rollouts share workers
(`shared_workers`); one whose shared worker died continues in its own, so that it can harm no other.
`worker_spawner` starts the processes.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from houston_daemon.agent.shared_worker_line import RolloutExited
from houston_daemon.recorder.live_workers import WorkerSilence
from houston_daemon.recorder.recorder_handle import Assignment, RecorderHandle
from houston_daemon.service.daemon_log import LOGGER, describe_exit, read_last_line
from houston_daemon.service.fork_server import WorkerEnded, WorkerStarted
from houston_daemon.service.shared_workers import SharedWorkers
from houston_daemon.service.supervisor_queries import ResumableRollout
from houston_daemon.service.worker_spawner import FAILED_START_SECONDS, WorkerLost
from houston_daemon.service.worker_timeout import SilenceWatch
from houston_shared.backoff import Backoff, next_try
from houston_shared.faults import point
from houston_shared.node_places import node_name
from houston_shared.records import RolloutSpec

STARTING_WORKERS_LIMIT = 4
"""Workers asked for and not yet born; more would only starve each other and the recorder."""
WORKER_DEATHS_LIMIT = 5


@dataclass(slots=True)
class _RunningWorker:
    lease: int
    urls: Mapping[str, str]
    """Where each of its engines was when it was started."""
    pid: int = 0
    """0 until it is born."""
    end_signal: signal.Signals | None = None
    """The signal that told it to end: then its end is no death."""
    silent: float = 0.0
    """Seconds that it has said nothing, where that is noticeable."""
    hung: bool = False
    """Whether it was killed for its silence."""
    shared: str = ""
    """Name of the worker that other rollouts have, too; empty for one of its own."""
    node: str = ""
    """Node of a cluster that it runs on; empty for this machine."""


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
    alone: bool = False
    """Whether it shared the worker that died: from now on it has its own, so that who is to blame
    dies alone."""


LaunchWorker = Callable[[Assignment, Mapping[str, str]], None]
"""Asks for the worker of an assignment, with the URLs of its engines by name (empty for none)."""
SendSignal = Callable[[str, int, signal.Signals], None]
"""Sends a signal to a worker on another node: its rollout and lease, or name and 0 of a shared
one."""
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
        silent_seconds: float = 120.0,
        shared: SharedWorkers | None = None,
        send_signal: SendSignal | None = None,
    ) -> None:
        """shared: the workers of rollouts that can share one; without it each has its own.

        send_signal: how workers on nodes of a cluster are reached; None where there is none.
        """
        self.shared = shared
        self._send_signal = send_signal
        self._silences = SilenceWatch(silent_seconds)
        self._recorder = recorder
        self._launch = launch
        self._log_of = log_of
        self.limit = limit
        """How many run at the same time, at most."""
        self.is_full = False
        """Whether rollouts wait because so many run, as last looked at."""
        self._running: dict[str, _RunningWorker] = {}
        self._histories: dict[str, _DeathHistory] = {}
        self.restarts = 0
        """Workers that died and whose rollout was to go on, since the daemon's start."""
        self._silences_due: float | None = None
        """When the next silence reaches the limit, monotonic; None where none will."""
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
        """Rollout, or name of a shared worker → its process id, of those born on this machine."""
        shared = self.shared.pids if self.shared else {}
        own = {
            rollout: worker.pid
            for rollout, worker in self._running.items()
            if worker.pid and not worker.node
        }
        return {**own, **shared}

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """Rollout → the node that its worker runs on and the worker's name, of a cluster's."""
        return {
            rollout: (worker.node, worker.shared or rollout)
            for rollout, worker in self._running.items()
            if worker.node
        }

    def troubles(self, now: float, resumable: dict[str, ResumableRollout]) -> dict[str, str]:
        """Workers that died without a closed step since, and what comes next, for the status."""
        troubles = {}
        for rollout, history in self._histories.items():
            candidate = resumable.get(rollout)
            deaths = history.backoff.failures
            if deaths and candidate and candidate.steps == history.steps:
                wait = history.backoff.seconds_left(now)
                next_start = "runs again" if rollout in self._running else f"again in {wait:.0f} s"
                troubles[f"worker of {rollout}"] = (
                    f"died {deaths} of {WORKER_DEATHS_LIMIT} times without a step in between; "
                    f"{next_start}; last ({history.last_exit}): {history.last_words}"
                )
        for rollout, worker in self._running.items():
            if worker.silent:
                troubles[f"worker of {rollout}"] = self._silence_reason(worker)
        return troubles

    def wait_reason(self, paused: Collection[str]) -> str:
        """Why rollouts wait when the pool `is_full`: paused ones hold half of the workers or more;
        else empty. paused: all paused rollouts."""
        paused_count = len(self._running.keys() & set(paused))
        holding = f"paused rollouts hold {paused_count} of {self.limit} (`max_rollouts`)"
        return f"waits for a worker: {holding}" if 2 * paused_count >= self.limit else ""

    def _silence_reason(self, worker: _RunningWorker) -> str:
        limit = f"ended after {self._silences.limit:g} s"
        return f"silent for {worker.silent:.0f} s; {'killed' if worker.hung else limit}"

    def end_silent(self, silences: Mapping[str, WorkerSilence], now: float) -> None:
        """Kill workers that have been silent for too long, by what the recorder heard of them."""
        limit = self._silences.limit
        seconds_left = (limit - silence.seconds for silence in silences.values())
        self._silences_due = min((now + each for each in seconds_left if each > 0), default=None)
        self._end_unknown(silences)
        for rollout, worker in self._running.items():
            silence = silences.get(rollout)
            if silence is None or silence.lease != worker.lease:
                continue
            if not worker.pid or worker.end_signal:
                continue
            process = worker.pid, silence.seconds, worker.node
            noticed = self._silences.noticed(*process)
            worker.silent = silence.seconds if noticed else 0.0
            if noticed and not worker.hung and self._silences.hung(*process):
                LOGGER.error(
                    "worker of %s (pid %s, lease %s) has been silent for %.0f s: it is killed",
                    rollout, worker.pid, worker.lease, silence.seconds,
                )  # fmt: skip
                worker.hung = True
                self._signal(rollout, worker, signal.SIGKILL)

    def _end_unknown(self, silences: Mapping[str, WorkerSilence]) -> None:
        """Take those for ended that this daemon did not start (a worker on another machine that
        outlived the daemon before) and that have gone silent: nobody else hears of their end."""
        reported = {rollout for rollout, _, _ in self._unreported_ends}
        for rollout, silence in silences.items():
            is_known = rollout in self._running or rollout in reported
            if not is_known and silence.seconds > self._silences.limit:
                LOGGER.warning(
                    "worker of %s (lease %s), which an earlier daemon started, has been silent "
                    "for %.0f s: it counts as ended", rollout, silence.lease, silence.seconds,
                )  # fmt: skip
                self._unreported_ends.append((rollout, silence.lease, ""))

    def start_runnable(
        self,
        now: float,
        resumable: dict[str, ResumableRollout],
        reachable: EngineUrlLookup,
        has_resources: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Start workers for runnable rollouts, oldest first, as far as the limits allow.

        has_resources: whether a rollout has the GPUs that it asked for.
        Raises HoustonError when the recorder cannot store it now; the next call tries again.
        """
        self._report_ends()
        if self.shared:
            self.shared.retire_idle_workers(now)
        runnable = self._recorder.runnable()
        gone_rollouts = self._histories.keys() - set(runnable) - self._running.keys()
        for rollout in gone_rollouts:
            del self._histories[rollout]
        self.is_full = False
        for rollout in runnable:
            candidate = resumable.get(rollout)
            if candidate is None or rollout in self._running or self._due(rollout) > now:
                continue
            engine_urls = ((name, reachable(name)) for name in candidate.engines)
            urls = {name: url for name, url in engine_urls if url is not None}
            if len(urls) < len(candidate.engines):
                continue
            self.is_full = len(self._running) >= self.limit
            if self.is_full or self._starting_count >= STARTING_WORKERS_LIMIT:
                return
            if has_resources(rollout):
                self._start(rollout, urls, now)

    @property
    def _starting_count(self) -> int:
        own = sum(not worker.pid and not worker.shared for worker in self._running.values())
        return own + (self.shared.starting_count if self.shared else 0)

    def next_due(self, now: float) -> float | None:
        """When the next backoff ends or a silence may be too long; None when nothing waits."""
        histories = self._histories.items()
        waiting = (
            history.backoff for rollout, history in histories if rollout not in self._running
        )
        dues = (next_try(waiting, now), self._silences_due)
        return min((due for due in dues if due is not None), default=None)

    def on_started(self, event: WorkerStarted) -> None:
        """A process runs: there is room for the next start."""
        if self.shared and event.rollout in self.shared:
            self.shared.on_started(event.rollout, event.pid, event.node)
            workers = {
                rollout: worker
                for rollout, worker in self._running.items()
                if worker.shared == event.rollout
            }
        else:
            worker = self._running.get(event.rollout)
            if worker is None or worker.lease != event.lease:
                return
            workers = {event.rollout: worker}
        point("supervisor.born.before")
        at = f" on node {node_name(event.node)}" if event.node else ""
        LOGGER.info("worker of %s: pid %s, lease %s%s", event.rollout, event.pid, event.lease, at)
        for rollout, worker in workers.items():
            worker.pid, worker.node = event.pid, event.node
            if worker.end_signal:
                self._signal(rollout, worker, worker.end_signal)

    def on_ended(
        self, event: WorkerEnded, now: float, resumable: dict[str, ResumableRollout]
    ) -> None:
        """Take note of a process that ended, and decide when its rollouts may go on."""
        point("supervisor.died.before")
        if self.shared is None or event.rollout not in self.shared:
            self._end_rollout(event.rollout, event.code, "", now, resumable)
            return
        lefts, running = self.shared.take_ended(event.rollout)
        for leaving in lefts:
            self.on_left(leaving, now, resumable)
        reason = ""
        if event.code:
            last_line = read_last_line(self._log_of(event.rollout)) or "it wrote nothing"
            reason = f"it was one of {len(running)} in the worker {event.rollout}; {last_line}"
        for rollout in self._running.keys() & running.keys():
            self._end_rollout(rollout, event.code, reason, now, resumable)

    def on_left(
        self, event: RolloutExited, now: float, resumable: dict[str, ResumableRollout]
    ) -> None:
        """A shared worker runs a rollout no more, and lives on."""
        worker = self._running.get(event.rollout)
        if self.shared is None or worker is None or worker.lease != event.lease:
            return
        self.shared.leave(event, now)
        self._end_rollout(event.rollout, event.code, event.problem, now, resumable)

    def _end_rollout(
        self,
        rollout: str,
        code: int,
        cause: str,
        now: float,
        resumable: dict[str, ResumableRollout],
    ) -> None:
        """cause: what is known of a death; empty for what its log says."""
        worker = self._running.pop(rollout)
        self._wait(rollout, now + 1.0)
        failure = ""
        if code != 0 and not worker.end_signal:
            hung = (
                f"it was silent for {worker.silent:.0f} s and was killed" if worker.hung else cause
            )
            self._histories[rollout].alone |= bool(worker.shared)
            failure = self._count_death(rollout, code, hung, resumable.get(rollout), now)
        self._silences.forget(worker.pid, worker.node)
        self._unreported_ends.append((rollout, worker.lease, failure))

    def on_lost(self, event: WorkerLost, now: float) -> None:
        """Handle a worker that ended with its fork server, or was never forked: no death of its
        own, and no fault of its rollout."""
        rollouts = [event.rollout]
        if self.shared and event.rollout in self.shared:
            lefts, running = self.shared.take_ended(event.rollout)
            for leaving in lefts:
                self.on_left(leaving, now, {})
            rollouts = list(self._running.keys() & running.keys())
        for rollout in rollouts:
            worker = self._running.pop(rollout)
            self._wait(rollout, now + event.delay)
            self._unreported_ends.append((rollout, worker.lease, ""))
        self.restarts += 1

    def end(self, number: signal.Signals, engine: str = "", other_than: str = "") -> None:
        """Signal every worker, or those of `engine` that were given another URL."""
        for rollout, worker in self._running.items():
            if engine and worker.urls.get(engine, other_than) == other_than:
                continue
            worker.end_signal = number
            if worker.pid:
                self._signal(rollout, worker, number)
            if self.shared and worker.shared:
                self.shared.retire(worker.shared)

    def _signal(self, rollout: str, worker: _RunningWorker, number: signal.Signals) -> None:
        if not worker.node:
            _signal_worker(worker.pid, number)
        elif self._send_signal is not None:
            lease = 0 if worker.shared else worker.lease
            self._send_signal(worker.shared or rollout, lease, number)

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

    def _start(self, rollout: str, urls: Mapping[str, str], now: float) -> None:
        assignment = self._recorder.assign(rollout)
        lease, name = assignment.lease, ""
        try:
            point("supervisor.launch.before")
            if self.shared is not None and self.may_share(assignment.spec):
                name = self.shared.give(assignment, urls)
            else:
                self._launch(assignment, urls)
        except OSError as problem:
            LOGGER.error("worker of %s could not be started: %s", rollout, problem)
            self._wait(rollout, now + FAILED_START_SECONDS)
            self._unreported_ends.append((rollout, lease, ""))
            return
        point("supervisor.launch.after")
        pid, node = self.shared.process_of(name) if self.shared and name else (0, "")
        self._running[rollout] = _RunningWorker(lease, urls, pid, shared=name, node=node)

    def may_share(self, spec: RolloutSpec) -> bool:
        """Whether a rollout may be given to a worker that others have, too."""
        history = self._histories.get(spec.rollout)
        is_sharing = self.shared is not None and self.shared.capacity > 1
        return (
            is_sharing and spec.shares_worker and not spec.gpus and not (history and history.alone)
        )

    def _count_death(
        self, rollout: str, code: int, cause: str, candidate: ResumableRollout | None, now: float
    ) -> str:
        """Count a death; returns why the rollout fails, empty while it may try again.

        cause: why it was killed; empty for what its log says.
        """
        history = self._histories[rollout]
        steps = candidate.steps if candidate else history.steps
        delay = history.backoff.fail(now, first=steps > history.steps)
        history.steps = steps
        cause = history.last_words = (
            cause or read_last_line(self._log_of(rollout)) or "it wrote nothing"
        )
        exit_text = history.last_exit = describe_exit(code)
        deaths = history.backoff.failures
        if deaths >= WORKER_DEATHS_LIMIT:
            last = f"last ({exit_text}): {cause}"
            LOGGER.error("rollout %s fails: %s deaths; %s", rollout, deaths, last)
            cause = f"its worker ended {deaths} times without a step in between; {last}"
            return f"{cause}; see: houston daemon logs --rollout {rollout}"
        self.restarts += 1
        LOGGER.warning(
            "worker of %s ended (%s); again in %g s: %s", rollout, exit_text, delay, cause
        )
        return ""


def _signal_worker(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        if number == signal.SIGKILL:
            os.killpg(pid, number)  # what it runs at this moment (evaluators) ends too
