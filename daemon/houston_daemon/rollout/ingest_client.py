"""A worker's line to the recorder: requests that are asked until they are answered.

A message keeps its bytes however often it is sent, so that the recorder can tell a repetition from
a contradiction. This module knows frames and refusals, not what the messages mean.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from houston_daemon.rollout.control import ControlState
from houston_daemon.rollout.guidance import Leaving
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point

log = logging.getLogger(__name__)
ANSWER_SECONDS = 10.0
"""How long an answer may take before the message is sent again."""
WAITS = (0.5, 1.0, 2.0)
"""Seconds before the next try while the disk is full; the last one repeats."""
Reply = TypeVar("Reply", wire.Welcome, wire.Steps, wire.Ack)


class IngestClient:
    """One DEALER socket; many requests may be under way at once."""

    def __init__(self, endpoint: str, control: ControlState) -> None:
        self._socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.MAXMSGSIZE, wire.FRAME_LIMIT)
        self._socket.connect(endpoint)
        self._control = control
        self._numbers = itertools.count(1)
        self.valid_at = 0.0
        """Monotonic time at which the lease was surely valid: an answered message was sent then."""
        self._waiting: dict[bytes, asyncio.Future[wire.IngestReply]] = {}
        self._refusals: dict[bytes, str] = {}
        """Why requests that are under way were not done at first."""
        self._reader = asyncio.create_task(self._read())

    @property
    def kept_waiting(self) -> str:
        """Why something cannot be stored now; empty while everything can.

        The first reason of the wait: figures in it that change would have to be stored again.
        """
        return next(iter(self._refusals.values()), "")

    async def ask(self, message: wire.FromWorker, kind: type[Reply]) -> Reply:
        """Send until answered with `kind`; the answer.

        Raises Leaving when the lease is old or the rollout has ended, HoustonError for any other
        refusal that sending again cannot change.
        """
        number = next(self._numbers).to_bytes(8, "big")
        body = wire.encode(message)
        tries = 0
        sent_at = time.monotonic()
        try:
            while True:
                reply = await self._exchange(number, body)
                if isinstance(reply, kind):
                    self.valid_at = max(self.valid_at, sent_at)
                    if isinstance(reply, wire.Ack | wire.Welcome):
                        self._control.update(reply.control)
                    return reply
                await self._refused(number, reply, WAITS[min(tries, len(WAITS) - 1)])
                tries += 1
        finally:
            self._refusals.pop(number, None)

    async def close(self) -> None:
        """Let the last bytes go and close the socket."""
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._socket.close()

    async def _exchange(self, number: bytes, body: bytes) -> wire.IngestReply:
        """Send the same bytes again for as long as no answer comes."""
        answer: asyncio.Future[wire.IngestReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            while True:
                await self._socket.send_multipart([number, body])
                point("worker.send.after")
                both: set[asyncio.Future[Any]] = {answer, self._reader}
                done, _ = await asyncio.wait(
                    both,
                    timeout=ANSWER_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if answer in done:
                    return answer.result()
                if self._reader in done:
                    self._reader.result()  # raises what ended it
                log.warning("no answer within %s s, sending again", ANSWER_SECONDS)
        finally:
            self._waiting.pop(number, None)

    async def _refused(self, number: bytes, reply: wire.IngestReply, wait: float) -> None:
        """Wait where trying again may help; raise where it cannot."""
        if not isinstance(reply, wire.Refused):
            raise HoustonError(f"The recorder answered with {type(reply).__name__}.")
        if reply.code == "STALE_LEASE":
            raise Leaving("lease")
        if reply.code == "ENDED":
            raise Leaving("ended")
        if reply.code != "DISK_FULL":
            raise HoustonError(f"The recorder refused a message: {reply.code}, {reply.reason}")
        self._refusals.setdefault(number, reply.reason)
        log.warning("not stored (%s), trying again in %s s", reply.reason, wait)
        await asyncio.sleep(wait)

    async def _read(self) -> None:
        while True:
            number, body = await self._socket.recv_multipart()
            reply = wire.ingest_reply.decode(body)
            if number == wire.PUSH:
                if isinstance(reply, wire.ControlPush):
                    self._control.update(reply.control)
            elif (answer := self._waiting.get(number)) and not answer.done():
                answer.set_result(reply)
