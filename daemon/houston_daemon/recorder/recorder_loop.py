"""The recorder's loop: poll, take what is ready, store it in one transaction, then answer.

One thread runs it from start to end and owns connection and sockets. Order within a turn:
supervisor, people, workers, so that a flood of steps never delays guidance. Also the status, the
p99 of acks, notices to consoles, and jumps of the wall clock. Handlers and transactions are
elsewhere.
"""

import gc
import logging
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import zmq

from houston_daemon.hosts.guard.control_groups import find_cgroup_folders
from houston_daemon.maintenance.host_cleanup import HostCleanupProcess
from houston_daemon.recorder import rollout_assignment
from houston_daemon.recorder.disk.disk_space_watch import DiskHousekeeping, DiskSpaceWatch
from houston_daemon.recorder.group_commit import DurationWindow, GroupCommit
from houston_daemon.recorder.handlers import rollout_handlers
from houston_daemon.recorder.host_changes import HostChanges, store_host_changes
from houston_daemon.recorder.identity_and_roles import PeerIdentities
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.message_dispatch import (
    SupervisorCall,
    WorkerHeartbeats,
    WorkerMessage,
    WorkItem,
)
from houston_daemon.recorder.message_intake import MessageIntake
from houston_daemon.recorder.message_receiver import WORKER_BATCH_SIZE, MessageReceiver
from houston_daemon.recorder.recorder_handle import NotifySupervisor, SupervisorReport
from houston_daemon.recorder.recorder_sockets import (
    LINGER_MS,
    LiveSocket,
    SocketBindings,
    WakeupPipe,
)
from houston_daemon.recorder.recorder_store import CleanupRequest, Store
from houston_daemon.recorder.request_checks import Refusal
from houston_daemon.recorder.rollout_reader import ControlStateCache
from houston_daemon.recorder.search_indexer_process import SearchIndexerProcess
from houston_shared.config_sections import RecorderSettings
from houston_shared.control_messages import Status
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store.event_bodies import ClockJumped
from houston_shared.times_and_counts import now_us
from houston_shared.wire import (
    PUSH_REQUEST_ID,
    ControlPush,
    EngineReplica,
    Notice,
    WorkerControl,
)

if TYPE_CHECKING:
    from houston_daemon.recorder.remote_ingest import RemoteIngest

MB = 1_000_000
CONTROL_KINDS = frozenset({"guidance", "edit", "withdraw", "delivery", "state", "cancel"})
"""Kinds of events that may change what is wanted of a worker."""


def publish_notices(store: Store, live: LiveSocket, epoch: int) -> None:
    """One notice for each rollout and kind of the batch, with its newest sequence."""
    live.count_listeners()
    if not live.has_listeners:
        return
    newest = {(event.rollout, event.kind): event.seq for event in store.journal.appended}
    for (rollout, kind), seq in sorted(newest.items(), key=lambda item: item[1]):
        live.publish(Notice(epoch, seq, rollout, kind))


def push_control_states(
    store: Store,
    rollouts: Iterable[str],
    controls: Callable[[str], WorkerControl],
) -> None:
    """Send changed control states to workers at once; one not reached gets it in the next ack."""
    for rollout in rollouts:
        news = store.workers.pending_push(rollout, controls(rollout))
        if news is None:
            continue
        push = ControlPush(control=news.control, rollout=rollout)
        if not news.route.router.send(news.route.routing, PUSH_REQUEST_ID, push):
            worker = store.workers.get(rollout)
            if worker:
                worker.told_control = None


LOGGER = logging.getLogger("houston.recorder")
CLOCK_JUMP_SECONDS = 2.0
"""A time service that slews a clock changes it by far less between two looks."""

CLOCK_READING_SECONDS = 0.1
"""Between the readings of both clocks at most."""


class WallClock:
    """Compares both clocks; `check_jump` often, from one thread."""

    def __init__(self) -> None:
        self._offset = _read_clock_offset()

    def check_jump(self) -> float:
        """Seconds that the wall clock jumped since the last look; 0 when it did not."""
        before, self._offset = self._offset, _read_clock_offset()
        jumped = self._offset - before
        return jumped if abs(jumped) > CLOCK_JUMP_SECONDS else 0.0


def store_clock_jump(store: Store, seconds: float) -> None:
    """Store a jump, inside the open transaction."""
    LOGGER.warning("clock jumped: %+.1f s", seconds)
    store.journal.append(EventKey(), "jumped", ClockJumped(seconds=round(seconds, 3)))


def _read_clock_offset() -> float:
    """How far the clocks are apart; read again when this process was stopped in between."""
    while True:
        start_time = time.monotonic_ns() / 1e9
        wall, after = now_us() / 1e6, time.monotonic_ns() / 1e9
        if after - start_time < CLOCK_READING_SECONDS:
            return wall - start_time


_OF_WORKERS = (WorkerMessage, WorkerHeartbeats)
STOP_WORKER_TURNS = 8
"""Turns that a stop gives to what workers have said already."""
STOP_QUEUE_TURNS = 100
"""Turns that it gives to what else is queued, and to bodies on their way to disk."""


def _open_remote(home: Home, settings: RecorderSettings) -> "RemoteIngest | None":
    """None where nothing is listened to: those daemons do not load what it needs."""
    if not settings.listen:
        return None
    from houston_daemon.recorder.remote_ingest import RemoteIngest

    return RemoteIngest(home, settings)


class RecorderLoop:
    """Everything between the sockets and the database."""

    def __init__(
        self,
        store: Store,
        identities: PeerIdentities,
        epoch: int,
        tell: NotifySupervisor,
        calls: "deque[SupervisorCall]",
        remote: RecorderSettings,
    ) -> None:
        """calls: the supervisor's calls, filled from any thread; follow each with a wake.

        remote: where workers of other machines are listened to.
        """
        self._store = store
        self._epoch = epoch
        self._tell = tell
        self._calls = calls
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = LiveSocket(self._context)
        self._maintenance = DiskHousekeeping(store)
        self._disk_space = DiskSpaceWatch(store.home)
        self._answered = 0
        """Messages of workers answered since the start."""
        self._answer_seconds = DurationWindow()
        """From the receipt of the earliest message of a turn to its answer."""
        self._controls = ControlStateCache(store)
        self._search = SearchIndexerProcess(store.home)
        self._cleaner = HostCleanupProcess(store.home)
        self._cleanup_in_progress: dict[str, CleanupRequest] = {}
        self._disk_work: list[WorkItem] = []
        """What the state of the disk asks for, in the next batch."""
        self._clock = WallClock()
        self._started_at = time.monotonic()
        self._limits = find_cgroup_folders().mechanism
        self.reported = SupervisorReport()
        """What the supervisor said last of the processes it keeps."""
        self._intake = MessageIntake(self.status, identities.roles)
        self.wakeup_pipe = WakeupPipe()
        """Ends the loop's sleep; to be closed by whoever could still wake it."""
        self._remote = _open_remote(store.home, remote)
        self._host_changes = HostChanges(store.home)
        self._receiving = MessageReceiver(
            store.home,
            self._context,
            identities,
            self._intake,
            self._storage_refusal,
            self.wakeup_pipe,
            self._remote,
        )
        self._bindings = SocketBindings(
            store.home,
            {
                "ingest": self._receiving.ingest.socket,
                "control": self._receiving.control.socket,
                "live": self._live.socket,
            },
        )
        self._commits = GroupCommit(store, self._receiving.receive_until)
        self.current_batch: list[WorkItem] = []
        """What is in hand; not empty after a failure."""
        self.stopping = False
        """Set by a call of the supervisor; the loop then ends when nothing is queued."""

    def open(self, group: str) -> None:
        """Bind the sockets; raises HoustonError."""
        self._bindings.open(group)
        if self._remote:
            self._remote.open()

    def run(self) -> None:
        """Turn until stopped. Raises what must end the recorder."""
        # Acks wait for nothing: what the daemon is made of is never looked through for garbage
        # (10 ms), and a commit that is done waits 1 ms at most for the interpreter, not 5.
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        sys.setswitchinterval(0.001)
        sleep = self._receiving.waiter(self._live)
        more = False
        while not self.stopping:
            if not more:
                sleep()
            more = self._run_turn()
        self._finish_turns(STOP_WORKER_TURNS)
        self._receiving.close()
        self._finish_turns(STOP_QUEUE_TURNS)

    def close(self, clean: bool) -> None:
        """Let everything go; with `clean`, the last checkpoint and head are written first."""
        self._search.stop()
        self._cleaner.stop()
        self._receiving.close()
        self._commits.close()
        if clean:
            point("recorder.close.before")
            self._maintenance.close()
        point("recorder.close.after")
        self._store.connection.close()
        self._bindings.close()
        if self._remote:
            self._remote.close(LINGER_MS if clean else 0)
        self._context.destroy(linger=LINGER_MS if clean else 0)

    def _finish_turns(self, max_messages: int) -> None:
        """Do what is queued, but not for ever."""
        for _ in range(max_messages):
            if not self._run_turn():
                return

    def _run_turn(self) -> bool:
        """One batch and what follows it; whether there may be more at once."""
        self.wakeup_pipe.drain()
        self._store.workers.note_turn(listening=not self._receiving.is_full)
        began = self._receiving.oldest_received_at()
        items = self._collect()
        self.current_batch = items
        if items:
            point("recorder.batch.before")
            self._commits.run(items)
            if self._commits.disk_full:
                self._commits.disk_full = ""
                self._disk_space.note_refused_write()
            point("recorder.batch.after")
            self._answer_and_publish(items)
            self.current_batch = []
            if answered := sum(isinstance(work, _OF_WORKERS) for work in items):
                self._answered += answered
                self._answer_seconds.append(time.perf_counter() - began)
        self._live.count_listeners()
        if self._disk_space.check():
            self._hold_for_disk()
        self._maintenance.run()
        self._bindings.check(time.monotonic())
        if self._remote:
            self._remote.log_refused_handshakes()
        self._search.poll()
        return bool(items)

    def _collect(self) -> list[WorkItem]:
        items: list[WorkItem] = []
        while self._calls:
            items.append(self._calls.popleft())
        items += self._disk_work
        self._disk_work = []
        items += self._receiving.receive_from_people()
        if refused := self._intake.attempts.take_due(last=self.stopping):
            items.append(refused)
        waiting = self._receiving.take_waiting()
        items += waiting
        items += self._collect_cleanup_results()
        if jumped := self._clock.check_jump():
            items.append(SupervisorCall(partial(store_clock_jump, seconds=jumped)))
        if self._remote and self._host_changes.check():
            items.append(SupervisorCall(store_host_changes))
        if self._store.presence.due(last=self.stopping):
            items.append(SupervisorCall(self._store.presence.write))
        items += self._receiving.receive_from_workers(WORKER_BATCH_SIZE - len(waiting))
        return items

    def _collect_cleanup_results(self) -> list[WorkItem]:
        """Hosts are freed beside the recorder; what came of it is stored with the batch."""
        if self._cleaner.is_idle and not self._cleanup_in_progress and self._store.cleanup_requests:
            self._cleanup_in_progress = rollout_handlers.take_cleanup_batch(
                self._store.cleanup_requests
            )
            self._cleaner.start([request.order for request in self._cleanup_in_progress.values()])
        items: list[WorkItem] = []
        for report in self._cleaner.take_reports():
            request = self._cleanup_in_progress.pop(report.rollout)
            items.append(
                SupervisorCall(
                    partial(rollout_handlers.store_cleanup_result, request=request, report=report)
                )
            )
        return items

    def _hold_for_disk(self) -> None:
        """Pause rollouts while the disk is full; tried again where even that found no room."""
        reason = self._disk_space.reason
        if rollout_assignment.is_disk_pause_due(self._store, bool(reason)):
            act = partial(rollout_assignment.pause_for_disk, reason=reason)
            self._disk_work = [SupervisorCall(act)]

    def _storage_refusal(self) -> Refusal | None:
        return self._disk_space.refusal() or self._maintenance.checkpoints.refusal()

    def _answer_and_publish(self, items: list[WorkItem]) -> None:
        """Everything here happens because the batch is on disk."""
        store = self._store
        # Rollouts whose worker may have to hear something.
        touched = {each.rollout for each in store.journal.appended if each.kind in CONTROL_KINDS}
        self._controls.forget(touched)
        for work in items:
            point("recorder.answer.before")
            work.answer(store, self._controls.get)
        point("recorder.push.before")
        push_control_states(store, touched, self._controls.get)
        if store.journal.appended:
            point("recorder.publish.before")
            publish_notices(store, self._live, self._epoch)
            self._search.notify()
            store.journal.appended.clear()
        point("recorder.tell.before")
        events, store.supervisor_events = store.supervisor_events, []
        for event in dict.fromkeys(events):
            self._tell(event)

    def drain(self, store: Store) -> None:
        """From now on every worker hears that the daemon stops."""
        store.draining = True
        self._controls.forget_all()
        store.after_commit.append(self._push_all)

    def use_replicas(self, store: Store, replicas: Mapping[str, tuple[EngineReplica, ...]]) -> None:
        """From now on workers hear of these servers of their engines."""
        store.replicas = replicas
        self._controls.forget_all()
        store.after_commit.append(self._push_all)

    def _push_all(self) -> None:
        rollouts = self._store.workers.rollouts()
        push_control_states(self._store, rollouts, self._controls.get)

    def status(self, store: Store) -> Status:
        """How the daemon stands now."""
        counts = store.connection.execute("SELECT state, count(*) FROM rollouts GROUP BY state")
        reported, backup = self.reported, self.reported.backup
        return Status(
            pid=os.getpid(),
            state="draining" if store.draining else "running",
            uptime=time.monotonic() - self._started_at,
            epoch=self._epoch,
            version=version("houston-agents"),
            home=str(store.home.path),
            rollouts=dict(counts.fetchall()),
            workers=reported.workers,
            queue=max(0, len(self.current_batch) - 1) + self._receiving.count,  # less the asker
            commits=self._commits.commits,
            commit_p99_ms=self._commits.durations.p99_ms(),
            wal_mb=self._maintenance.checkpoints.wal_bytes() / MB,
            disk_free_mb=shutil.disk_usage(store.home.path).free / MB,
            consoles=self._live.consoles,
            limits=self._limits,
            engines=dict(reported.engines),
            last_error=self._problem() or reported.error,
            search_lag=max(0, store.journal.seq - self._search.seq),
            longest_silence=store.workers.longest_silence,
            restarts=dict(reported.restarts),
            troubles={**reported.troubles, **store.workers.troubles()},
            backup_age=max(0.0, time.time() - backup[0]) if backup else None,
            backup_event=backup[1] if backup else 0,
            gpus=dict(reported.gpus),
            training=dict(reported.training),
            policies=dict(reported.policies),
            replicas=dict(reported.replicas),
            nodes=reported.nodes,
            unplaced=dict(reported.unplaced),
            acked=self._answered,
            ack_p99_ms=self._answer_seconds.p99_ms(),
        )

    def _problem(self) -> str:
        return (
            self._disk_space.problem
            or self._maintenance.problem
            or self._search.problem
            or self._commits.fault
        )
