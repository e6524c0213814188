"""The connection to one far end: an ssh process with requests under way, replaced when it is cut.

An ended session stays ended; the link makes a new one as soon as possible. A request just after the
host went away waits a few seconds for it, then fails with HostAway. Requests under way fail at
once, or are sent again if repeating them does no harm.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import HostAway, NeedsPerson
from houston_daemon.hosts.ssh import ssh_protocol
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.ssh_command import connection_turn
from houston_shared.backoff import RetryPolicy
from houston_shared.errors import HoustonError

_GREETING_SECONDS = 25.0
_PING_SECONDS = 5.0
_SILENT_SECONDS = 30.0
_ENDING_SECONDS = 2.0
_LAST_WORDS_SECONDS = 1.0
_ERROR_BYTES = 2_000
_CUT_REASON = "the connection was cut"


class ConnectionCut(Exception):
    """The connection has ended; the text says how."""


class SshSession:
    """Requests to one far end, from `open` until the connection ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._writer, self._reader = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[m.HostAnswer]] = {}
        self._number = 0
        self._last_received_at = time.monotonic()
        self.why = ""
        self._errors = bytearray()
        self._listening_to_errors = asyncio.create_task(self._collect_errors())
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()

    @classmethod
    async def open(cls, command: list[str]) -> "SshSession":
        """Run `command`, which connects; wait for the far end's greeting. Raises ConnectionCut."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
                start_new_session=True,  # Ctrl-C at a terminal is not for it
            )
        except OSError as problem:
            raise ConnectionCut(f"{command[0]} cannot be run: {problem.strerror}") from problem
        session = cls(process)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                await ssh_protocol.read_greeting(session._reader)
        except (TimeoutError, ssh_protocol.GarbledMessage) as problem:
            await session._hear_errors()
            await session.close()
            cut_reason = str(problem) or f"no answer within {_GREETING_SECONDS:g} s"
            raise ConnectionCut(session._last_error() or cut_reason) from problem
        except BaseException:
            await session.close()
            raise
        session._tasks = [
            asyncio.create_task(session._listen()),
            asyncio.create_task(session._ping()),
        ]
        return session

    async def ask(self, ask: m.AnyHostRequest, stop: asyncio.Event | None = None) -> m.HostAnswer:
        """Ask, and wait for the answer; `stop` takes the request back. Raises ConnectionCut."""
        if self.ended.is_set():
            raise ConnectionCut(self.why)
        self._number += 1
        number = self._number
        answer: asyncio.Future[m.HostAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._say(m.Request(number, ask))
            if stop is not None:
                await _wait_for_either(answer, stop)
                if not answer.done():
                    await self._say(m.CancelRequest(number))
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionCut):
                await self._say(m.CancelRequest(number))
            raise
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """End the connection: the far end sees its input end."""
        self._end("it was closed")
        for task in (*self._tasks, self._listening_to_errors):
            task.cancel()
        await asyncio.gather(*self._tasks, self._listening_to_errors, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await self._process.wait()

    async def _say(self, message: m.NearEndMessage) -> None:
        try:
            self._writer.write(ssh_protocol.pack_frame(msgspec.msgpack.encode(message)))
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as problem:  # the latter where it is closed already
            await self._hear_errors()
            self._end(self._last_error() or _CUT_REASON)
            raise ConnectionCut(self.why) from problem

    async def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(m.HostAnswer)
        reason = ""
        try:
            while (body := await ssh_protocol.read_frame(self._reader, self._hear)) is not None:
                answer = decoder.decode(body)
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            await self._hear_errors()
        except (ssh_protocol.GarbledMessage, msgspec.MsgspecError) as problem:
            reason = str(problem)
        self._end(reason or self._last_error() or _CUT_REASON)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_SECONDS)
            silent = time.monotonic() - self._last_received_at
            if silent > _SILENT_SECONDS:
                self._end(f"it has said nothing for {silent:.0f} s")
                return
            self._number += 1
            with contextlib.suppress(ConnectionCut):
                await self._say(m.Request(self._number, m.Ping()))

    def _hear(self) -> None:
        self._last_received_at = time.monotonic()

    def _end(self, reason: str) -> None:
        if self.ended.is_set():
            return
        self.why = reason
        self.ended.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionCut(reason))
        self._writer.close()
        if self._process.returncode is None:
            # Not its own kill(), which looks first whether it has ended: the loop's watcher would
            # be left without its exit status, and say so to whoever sees the log.
            process_table.send_signal([self._process.pid], signal.SIGKILL)

    async def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_ERROR_BYTES):
            self._errors += data
            del self._errors[:-_ERROR_BYTES]

    async def _hear_errors(self) -> None:
        """What ssh says of its end comes a moment after it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await asyncio.shield(self._listening_to_errors)

    def _last_error(self) -> str:
        """The last line that ssh, or the shell there, wrote to its standard error."""
        lines = self._errors.decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


async def _wait_for_either(answer: asyncio.Future[m.HostAnswer], stop: asyncio.Event) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    either: set[asyncio.Future[Any]] = {answer, stopping}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT")
BeginSession = Callable[[SshSession], Awaitable[None]]

PATIENCE_SECONDS = 5.0
"""How long after a host went away calls wait for it; later ones fail at once while it is away."""
ANSWER_SECONDS = 120.0
"""How long an answer is waited for that takes no time by its nature."""
PERSON_SECONDS = 60.0
"""How long after a cut what needs a person is tried again first."""
NEEDS_PERSON = "a person has to see to it first"
_FIRST_TRIES = 3
"""Tries of a beginning: a machine that is there may refuse one where many knock together."""
_RETRY = RetryPolicy(first_wait=0.3, max_wait=30.0, jitter=(0.7, 1.3))


class HostLink:
    """Asks one machine; reconnects by itself from `start` until `close`."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        begin: BeginSession,
        shared: Callable[[], Path],
    ) -> None:
        """command: the words that connect; begin: what to say first in every new session.
        shared: where the connection is, or will be, that all on this node share.
        """
        self._shared = shared
        self.name = name
        self._command = command
        self._begin = begin
        self._session: SshSession | None = None
        self._why = "it was not tried yet"
        self._needed: NeedsPerson | None = None
        """What a person has to see to before it is tried again."""
        self._had_session = False
        self._away_since = time.monotonic()
        self._tried = asyncio.Condition()
        self._tries = 0
        self._connection_task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether there is a session, as far as is known."""
        return self._session is not None and not self._session.ended.is_set()

    async def start(self) -> str:
        """Start connecting, and wait for the first tries; return why there is no session, or "".

        Raises NeedsPerson where the far end says that only a person can help; the next call tries
        again.
        """
        if self._connection_task is None or self._connection_task.done():
            self._needed, self._tries = None, 0
            self._connection_task = asyncio.create_task(self._keep(), name=f"host {self.name}")
        async with self._tried:
            await self._tried.wait_for(lambda: self._is_known or self._tries >= _FIRST_TRIES)
        if self._needed is not None:
            raise self._needed
        return "" if self.up else self._why

    async def back(self) -> None:
        """Return when there is a session, or when `start` would say what a person has to do. Used
        after `start`; takes as long as needed."""
        async with self._tried:
            await self._tried.wait_for(lambda: self._is_known)

    async def ask(
        self,
        ask: m.AnyHostRequest,
        kind: type[AnswerT] | Any = None,
        *,
        stop: asyncio.Event | None = None,
        idempotent: bool = False,
    ) -> Any:
        """Ask, and return the answer as `kind`.

        stop: takes the request back. idempotent: may be asked twice.
        Raises HostAway, and whatever the far end met.
        """
        session = await self._live_session()
        try:
            answer = await self._answer(session, ask, stop)
        except ConnectionCut as cut:
            if not idempotent:
                raise HostAway(self.name, str(cut), self.back, cut=True) from cut
            session = await self._live_session()
            try:
                answer = await self._answer(session, ask, stop)
            except ConnectionCut as second:
                raise HostAway(self.name, str(second), self.back, cut=True) from second
        return self.read(answer, kind)

    async def _answer(
        self, session: SshSession, ask: m.AnyHostRequest, stop: asyncio.Event | None
    ) -> m.HostAnswer:
        """What comes of `ask`; a disk that hangs there must not stop the loop here."""
        most = ANSWER_SECONDS if isinstance(ask, m.SHORT_REQUESTS) else None
        try:
            async with asyncio.timeout(most):
                return await session.ask(ask, stop)
        except TimeoutError:
            reason = f"no answer within {most:g} s; its disk may hang"
            raise HostAway(self.name, reason, self.back, cut=True) from None

    async def other(
        self, service: str, ask: Any, kind: type[AnswerT], *, idempotent: bool = False
    ) -> AnswerT:
        """Ask a service that the far end was given; `ask` and `kind` are its own."""
        body = msgspec.Raw(msgspec.msgpack.encode(ask))
        answer: AnswerT = await self.ask(
            m.Other(service=service, body=body), kind, idempotent=idempotent
        )
        return answer

    def read(self, answer: m.HostAnswer, kind: type[AnswerT] | Any) -> Any:
        """The value of an answer; raises the error that it holds.

        Raises HostAway for an answer of the wrong type: such a far end cannot be used.
        """
        try:
            if answer.trouble is None:
                return msgspec.msgpack.decode(answer.value, type=kind)
            problem = ssh_protocol.unpack_error(answer.trouble)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as odd:
            reason = f"it gave an odd answer ({odd})"[:300]
            raise HostAway(self.name, reason, self.back, cut=True) from odd
        raise problem

    async def close(self) -> None:
        """Let go of the machine; what runs there goes on."""
        if self._connection_task is not None:
            self._connection_task.cancel()
            await asyncio.gather(self._connection_task, return_exceptions=True)
            self._connection_task = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _live_session(self) -> SshSession:
        """A session that was alive a moment ago. Raises HostAway."""
        session = self._session
        if session is not None and not session.ended.is_set():
            return session
        patience = self._away_since + PATIENCE_SECONDS - time.monotonic()
        if self._connection_task is not None and patience > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience), self._tried:
                    await self._tried.wait_for(lambda: self._is_known)
        if (session := self._session) is None or session.ended.is_set():
            raise HostAway(self.name, self._why, self.back, needed=self._needed)
        return session

    @property
    def _is_known(self) -> bool:
        """Whether there is a session, or will be none."""
        return self.up or self._needed is not None

    @property
    def _is_lasting(self) -> bool:
        """Whether what needs a person is not gone by itself: after a cut a host may just come up,
        its disks not mounted, or another home may just be ending there."""
        return not self._had_session or time.monotonic() - self._away_since > PERSON_SECONDS

    async def _keep(self) -> None:
        failed = 0
        while True:
            try:
                session = await self._connected()
            except (ConnectionCut, HoustonError, OSError) as problem:
                self._why = _session_failure(problem)
                if isinstance(problem, NeedsPerson) and self._is_lasting:
                    self._needed = problem
                await self._tell(None)
                log.info("host %s: %s", self.name, problem)
                if self._needed is not None:
                    return
                failed += 1
                wait = _RETRY.wait(failed)
                if isinstance(problem, NeedsPerson):  # no later than it is known to be lasting
                    known_at = self._away_since + PERSON_SECONDS + _RETRY.first_wait
                    wait = min(wait, known_at - time.monotonic())
                await asyncio.sleep(wait)
                continue
            failed, self._had_session = 0, True
            await self._tell(session)
            await session.ended.wait()
            self._why = session.why
            self._away_since = time.monotonic()
            self._session = None
            await session.close()
            log.info("host %s went away: %s", self.name, self._why)

    async def _connected(self) -> SshSession:
        async with connection_turn(self._shared()):
            session = await SshSession.open(self._command())
        try:
            await self._begin(session)
        except BaseException:
            await session.close()
            raise
        return session

    async def _tell(self, session: SshSession | None) -> None:
        async with self._tried:
            self._session = session
            self._tries += 1
            self._tried.notify_all()


def _session_failure(problem: ConnectionCut | HoustonError | OSError) -> str:
    """Why there is no session, in words without a full stop."""
    if isinstance(problem, HostAway):
        return problem.why
    if isinstance(problem, NeedsPerson):  # its words name places that are not the agent's
        return NEEDS_PERSON
    return (problem.cause if isinstance(problem, HoustonError) else str(problem)).rstrip(".")
