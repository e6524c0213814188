"""A worker's connection to the recorder: messages sent until answered, heartbeats, pauses, lease.

`IngestConnection` sends the same bytes of a message each time, so that the recorder can tell a
repetition from a contradiction; the rollouts of a shared worker have one in common.
`RecorderClient` adds lease and active time to every message, sends a heartbeat every second
(`HeartbeatRounds`: with those of the other rollouts of a shared worker) and waits at safe points
while paused. It does not know what a step consists of.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import zmq
import zmq.asyncio

from houston_daemon.agent.remote_line import LineRefused, RemoteLine
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.worker_control import ControlState, WorkerExit, raise_if_exiting
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.recorder_endpoint import RecorderEndpoint
from houston_shared.records import AT_REST_ACTIVITY, JobReport, StepRecord
from houston_shared.secret_redaction import redact

log = logging.getLogger(__name__)
RESEND_AFTER_SECONDS = 10.0
"""How long an answer may take before the message is sent again."""
SILENT_LINE_SECONDS = 30.0
"""How long an answer over TCP may take before another line is made: TCP has lost nothing, so what
is silent for so long is a tunnel that hangs."""
SLOWEST_LINE = 100_000
"""Bytes a second that any line carries: what waits to be answered may take that long in addition.
"""
DISK_FULL_WAITS = (0.5, 1.0, 2.0)
"""Seconds before the next try while the disk is full; the last one repeats."""
Reply = TypeVar("Reply", wire.Welcome, wire.Steps, wire.Ack)


class GuidanceWaits(HoustonError):
    """The recorder refused a purified step: a person has spoken since."""


class IngestConnection:
    """One DEALER socket of a process; many requests, of many rollouts, may be under way at once."""

    def __init__(self, endpoint: RecorderEndpoint) -> None:
        self.endpoint = endpoint
        context = zmq.asyncio.Context.instance()
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.MAXMSGSIZE, wire.FRAME_LIMIT)
        self._line = RemoteLine(context, self._socket, endpoint) if endpoint.is_remote else None
        self._socket.connect(endpoint.address)
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, asyncio.Future[wire.IngestReply]] = {}
        self._waiting_bytes = 0
        self.controls: dict[str, ControlState] = {}
        """Rollout → what a push about it changes; under "" that of a worker with one rollout."""
        self.heartbeats = HeartbeatRounds(self)
        self._reader = asyncio.create_task(self._read())
        self._tasks = {self._reader}
        """What ends only with the connection, or when nothing more can be said."""
        if self._line:
            self._tasks.add(asyncio.create_task(self._line.watch()))

    def next_number(self) -> bytes:
        """The id of a new request."""
        return next(self._numbers).to_bytes(8, "big")

    async def exchange(self, number: bytes, body: bytes) -> wire.IngestReply:
        """Send the same bytes again until they are answered; over TCP also when a new line comes
        up. Raises LineRefused when no answer can come.
        """
        answer: asyncio.Future[wire.IngestReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._waiting_bytes += len(body)
        try:
            while True:
                lost, patience = await self._send(number, body)
                point("worker.send.after")
                waits: set[asyncio.Future[Any]] = {answer, *self._tasks, *lost}
                done, _ = await asyncio.wait(
                    waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if answer in done:
                    return answer.result()
                for task in self._tasks & done:
                    task.result()  # raises what ended it
                if not done:
                    log.warning("no answer within %.0f s, sending again", patience)
                    if self._line:
                        self._line.connect_again()
        finally:
            self._waiting.pop(number, None)
            self._waiting_bytes -= len(body)

    async def close(self) -> None:
        """Let the last bytes go and close the socket."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # raised to whoever asked
        if self._line:
            self._line.close()
        self._socket.close()

    async def _send(
        self, number: bytes, body: bytes
    ) -> tuple[tuple[asyncio.Future[None], ...], float]:
        """Send once; what is done when it must be sent again at once, and after how many seconds it
        must in any case."""
        if self._line is None:
            await self._socket.send_multipart([number, body])
            return (), RESEND_AFTER_SECONDS
        sending = asyncio.create_task(self._line.send([number, body]))
        waits: set[asyncio.Future[Any]] = {sending, *self._tasks}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
        for task in self._tasks & done:
            task.result()  # raises what ended it
        return (sending.result(),), SILENT_LINE_SECONDS + self._waiting_bytes / SLOWEST_LINE

    async def _read(self) -> None:
        while True:
            number, body = await self._socket.recv_multipart()
            reply = wire.ingest_reply_decoder.decode(body)
            if number == wire.PUSH_REQUEST_ID:
                if isinstance(reply, wire.ControlPush):
                    self._take_push(reply)
            elif (answer := self._waiting.get(number)) and not answer.done():
                answer.set_result(reply)

    def _take_push(self, push: wire.ControlPush) -> None:
        control = self.controls.get(push.rollout) or self.controls.get("")
        if control is not None:  # a rollout that was left meanwhile hears nothing more
            control.update(push.control)


class IngestSocket:
    """What one rollout sends and receives over a connection."""

    def __init__(
        self,
        endpoint: RecorderEndpoint | IngestConnection,
        control: ControlState,
        rollout: str = "",
    ) -> None:
        """endpoint: where to connect, or a connection that other rollouts have, too.

        rollout: whose it is; may be left out where the connection is its own.
        """
        self._shared = isinstance(endpoint, IngestConnection)
        self._connection = (
            endpoint if isinstance(endpoint, IngestConnection) else IngestConnection(endpoint)
        )
        self._connection.controls[rollout] = control
        self.endpoint = self._connection.endpoint
        self._control = control
        self._rollout = rollout
        self.lease_valid_at = 0.0
        """Monotonic time at which the lease was surely valid: an answered message was sent then."""
        self._refusals: dict[bytes, str] = {}
        """Why requests that are under way were not done at first."""

    @property
    def storage_refusal(self) -> str:
        """Why something cannot be stored now; empty while everything can.

        The reason stays the first one of the wait, since changing figures would be stored each
        time.
        """
        return next(iter(self._refusals.values()), "")

    async def ask(self, message: wire.FromWorker, kind: type[Reply]) -> Reply:
        """Send until the answer is a `kind`; return it.

        Raises WorkerExit when the lease is old or the rollout has ended, GuidanceWaits when a step
        is not purified because guidance waits, HoustonError for any other refusal that sending
        again cannot change.
        """
        number = self._connection.next_number()
        body = wire.encode_message(message)
        tries = 0
        sent_at = time.monotonic()
        try:
            while True:
                reply = await self._connection.exchange(number, body)
                if isinstance(reply, kind):
                    self._take_answer(reply, sent_at)
                    return reply
                await self._handle_refusal(
                    number, reply, DISK_FULL_WAITS[min(tries, len(DISK_FULL_WAITS) - 1)]
                )
                tries += 1
        finally:
            self._refusals.pop(number, None)

    async def beat(self, heartbeat: Callable[[], wire.Heartbeat], first_after: float) -> None:
        """Send a heartbeat every second until cancelled, together with those of other rollouts if
        the connection is shared. Raises as `ask` does.

        first_after: seconds until the first one, if the connection is not shared.
        """
        if self._shared:
            await self._connection.heartbeats.take_part(heartbeat, self.take_heartbeat_answer)
        await asyncio.sleep(first_after)
        while True:
            await self.ask(heartbeat(), wire.Ack)  # the rollout works meanwhile
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def take_heartbeat_answer(self, reply: wire.Ack | wire.Refused, sent_at: float) -> None:
        """Take the answer to a heartbeat of this rollout that was sent together with others."""
        if isinstance(reply, wire.Refused):
            _raise_refusal(reply)
            log.warning("a heartbeat was not accepted: %s", reply.reason)
        else:
            self._take_answer(reply, sent_at)

    async def close(self) -> None:
        """Receive nothing more; close the connection if it is not shared."""
        self._connection.controls.pop(self._rollout, None)
        if not self._shared:
            await self._connection.close()

    def _take_answer(self, reply: wire.Welcome | wire.Steps | wire.Ack, sent_at: float) -> None:
        self.lease_valid_at = max(self.lease_valid_at, sent_at)
        if isinstance(reply, wire.Ack | wire.Welcome):
            self._control.update(reply.control)

    async def _handle_refusal(self, number: bytes, reply: wire.IngestReply, wait: float) -> None:
        """Wait where trying again may help; raise where it cannot."""
        _raise_refusal(reply)
        assert isinstance(reply, wire.Refused)
        self._refusals.setdefault(number, reply.reason)
        log.warning("not stored (%s), trying again in %s s", reply.reason, wait)
        await asyncio.sleep(wait)


def _raise_refusal(reply: wire.IngestReply) -> None:
    """Raise what an answer means that is not the one asked for; nothing where the disk is full."""
    if not isinstance(reply, wire.Refused):
        raise HoustonError(f"The recorder answered with {type(reply).__name__}.")
    if reply.code == "STALE_LEASE":
        raise WorkerExit("lease")
    if reply.code == "ENDED":
        raise WorkerExit("ended")
    if reply.code == "REMOVED":
        raise LineRefused(f"The recorder refuses this host: {reply.reason}")
    if reply.code == "GUIDED":
        raise GuidanceWaits(reply.reason)
    if reply.code != "DISK_FULL":
        raise HoustonError(f"The recorder refused a message: {reply.code}, {reply.reason}")


class _Participant(NamedTuple):
    """A rollout that beats with others."""

    heartbeat: Callable[[], wire.Heartbeat]
    take: Callable[[wire.Ack | wire.Refused, float], None]
    """Called with each answer and when its heartbeat was sent, monotonic; may raise."""
    over: "asyncio.Future[None]"
    """Done when it takes no further part, with what was raised."""

    def fail(self, problem: BaseException) -> None:
        """It hears of a problem, unless it has left."""
        if not self.over.done():
            self.over.set_exception(problem)


class HeartbeatRounds:
    """The heartbeats of all rollouts of a connection, in one message a second.

    Each is answered as if it were alone: a refusal of one does not end the others.
    """

    def __init__(self, connection: IngestConnection) -> None:
        self._connection = connection
        self._participants: list[_Participant] = []
        self._task: asyncio.Task[None] | None = None

    async def take_part(
        self,
        heartbeat: Callable[[], wire.Heartbeat],
        take: Callable[[wire.Ack | wire.Refused, float], None],
    ) -> None:
        """Take part until cancelled; raises what `take` raised, or what ended the connection."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        participant = _Participant(heartbeat, take, over)
        self._participants.append(participant)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            await over
        finally:
            self._participants.remove(participant)
            if not self._participants and self._task:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                await self._round()
        except Exception as problem:  # noqa: BLE001 raised to whoever takes part
            self._task = None
            for participant in self._participants:
                participant.fail(problem)

    async def _round(self) -> None:
        senders, beats = [], []
        for participant in self._participants:
            try:
                beats.append(participant.heartbeat())
                senders.append(participant)
            except Exception as problem:  # noqa: BLE001 raised to that one
                participant.fail(problem)
        sent_at = time.monotonic()
        body = wire.encode_message(wire.Heartbeats(beats=tuple(beats)))
        reply = await self._connection.exchange(self._connection.next_number(), body)
        if not isinstance(reply, wire.HeartbeatReplies):
            _raise_refusal(reply)
            return  # the disk is full: the next round tells again what this one did
        for participant, answer in zip(senders, reply.replies, strict=True):
            if not participant.over.done():
                try:
                    participant.take(answer, sent_at)
                except (WorkerExit, HoustonError) as problem:
                    participant.fail(problem)


HEARTBEAT_SECONDS = 1.0
LEASE_FRESH_SECONDS = 3.0
"""A lease that was valid longer ago proves nothing: this process may have been stopped since."""


class RecorderClient:
    """One rollout's connection to the recorder."""

    def __init__(
        self,
        client: IngestSocket,
        control: ControlState,
        clock: ActiveClock,
        rollout: str,
        lease: int,
    ) -> None:
        self.control = control
        self.clock = clock
        self.rollout = rollout
        self.activity = ""
        """What the worker does now, a few words; shown to people."""
        self.trouble = ""
        """What goes wrong beside its steps."""
        self.replica_uses: Callable[[], dict[str, wire.ReplicaUse]] = dict
        """Which replica each of the rollout's engines is asked at."""
        self._client = client
        self.lease = lease

    async def store(self, kind: type[wire.FromWorker], **fields: Any) -> wire.Ack:
        """Send one message and return when it is on disk; the wait is not active time.

        Raises as `IngestSocket.ask` does.
        """
        message = kind(
            rollout=self.rollout, lease=self.lease, active_us=self.clock.microseconds(), **fields
        )
        with self.clock.excluded():
            return await self._client.ask(message, wire.Ack)

    async def read_steps(self, first: int) -> list[StepRecord]:
        """All steps of the journal from number `first` on, the open one last."""
        steps: list[StepRecord] = []
        while True:
            message = wire.ReadSteps(
                rollout=self.rollout,
                lease=self.lease,
                active_us=self.clock.microseconds(),
                step=first,
            )
            with self.clock.excluded():
                page = await self._client.ask(message, wire.Steps)
            steps += page.steps
            if not page.more or not page.steps:
                return steps
            first = page.steps[-1].step + 1

    async def send_heartbeats(self, first_after: float = 0.0) -> None:
        """A heartbeat every second until cancelled; raises WorkerExit when the lease is old.

        first_after: seconds until the first one; many short rollouts are over within one.
        """

        def heartbeat() -> wire.Heartbeat:
            point("worker.beat.before")
            return self._heartbeat()

        await self._client.beat(heartbeat, first_after)

    async def report_job(self, job: JobReport) -> None:
        """Report the state of a job, while the rollout works. Raises as `IngestSocket.ask` does."""
        message = wire.StoreJob(
            rollout=self.rollout,
            lease=self.lease,
            active_us=self.clock.microseconds(),
            job=job,
        )
        await self._client.ask(message, wire.Ack)

    async def ensure_lease_valid(self) -> None:
        """Before an act: ask again if the last proof is old. Raises WorkerExit for an old lease.

        A worker that was suspended after an ack would otherwise act at the same time as its
        successor.
        """
        if time.monotonic() - self._client.lease_valid_at > LEASE_FRESH_SECONDS:
            await self.heartbeat_once()

    async def heartbeat_once(self) -> None:
        """Send one heartbeat and wait for its answer. Raises as `store` does."""
        with self.clock.excluded():
            await self._client.ask(self._heartbeat(), wire.Ack)

    def _heartbeat(self) -> wire.Heartbeat:
        waiting = self._client.storage_refusal
        return wire.Heartbeat(
            rollout=self.rollout,
            lease=self.lease,
            active_us=self.clock.microseconds(),
            activity=f"waiting: {waiting}" if waiting else redact(self.activity),
            replicas=self.replica_uses(),
            trouble=redact(self.trouble),
        )

    async def wait_at_safe_point(self) -> None:
        """A point at which nothing is under way: exit here if requested, wait here while paused."""
        raise_if_exiting(self.control.current)
        if not self.control.current.pause:
            return
        point("worker.pause.before")
        self.activity = AT_REST_ACTIVITY
        with self.clock.excluded():
            while self.control.current.pause:
                await self.control.wait((), None)
                raise_if_exiting(self.control.current)
        self.activity = ""  # a heartbeat before the next thing it does must not say it stands

    async def wait_while_paused(
        self, until: Coroutine[Any, Any, None], activity: str = AT_REST_ACTIVITY
    ) -> None:
        """Wait for `until` at a safe point, while paused; exit here if requested."""
        self.activity = activity
        waiting = asyncio.create_task(until)
        try:
            with self.clock.excluded():
                while self.control.current.pause and not waiting.done():
                    raise_if_exiting(self.control.current)
                    await self.control.wait((waiting,), None)
        finally:
            waiting.cancel()
        self.activity = ""
