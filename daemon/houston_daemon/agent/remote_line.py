"""A worker's TCP line to the recorder: its options, whether it is up, and why it was given up.

libzmq reconnects automatically; its monitor reports when a line is up and when it is lost, so a
worker sends only over a line that is up and sends again what was not answered. No other spool is
needed: a worker sends nothing new before its last message is acked. TCP notices a dead line, since
a heartbeat uses it each second; ZMTP's own heartbeats abort libzmq 4.3.5 in rare cases
(libzmq#3937). The messages are those of `recorder_client`.
"""

import asyncio
import contextlib
import logging
import time
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from houston_shared.errors import HoustonError
from houston_shared.recorder_endpoint import RecorderEndpoint

log = logging.getLogger(__name__)
DEAD_LINE_MS = 15_000
"""What was sent and is not acknowledged by the other kernel for so long ends the connection."""
CONNECT_MS = 5_000
HANDSHAKE_MS = 10_000
RECONNECT_MS = (200, 3_000)
"""Between two tries to connect: at first, and at most."""
KEEPALIVE_SECONDS = 10
STUCK_SECONDS = 20.0
"""A lost line of which libzmq says nothing for so long is one that it gave up: connected anew."""
PATIENCE_SECONDS = 3_600.0
"""After so long without a line the worker leaves; its rollout has a successor long since."""
FAILED_HANDSHAKES = 20
"""So many in a row, and none that succeeded before: whoever answers is not our recorder."""
_EVENTS = (
    zmq.EVENT_CONNECT_DELAYED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)


class LineRefused(HoustonError):
    """The recorder refuses this host, or cannot be reached: the worker leaves."""


class RemoteLine:
    """Over the DEALER of one connection; used from its event loop only."""

    def __init__(
        self, context: zmq.asyncio.Context, socket: zmq.asyncio.Socket, endpoint: RecorderEndpoint
    ) -> None:
        """Sets the socket's options; connect it afterwards, then run `watch`."""
        self._socket = socket
        self._address = endpoint.address
        self._connected = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the line that stands now is lost; then another one."""
        self._was_connected = False
        self._failed = 0
        """Handshakes that failed in a row."""
        self._down_since = time.monotonic()
        options: dict[int, Any] = {
            zmq.CURVE_SERVERKEY: endpoint.server_key.encode(),
            zmq.CURVE_PUBLICKEY: endpoint.public_key.encode(),
            zmq.CURVE_SECRETKEY: endpoint.secret_key.encode(),
            zmq.IMMEDIATE: 1,  # nothing is queued for a line that is down: it is sent again
            zmq.IPV6: int("[" in endpoint.address),
            zmq.CONNECT_TIMEOUT: CONNECT_MS,
            zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
            zmq.RECONNECT_IVL: RECONNECT_MS[0],
            zmq.RECONNECT_IVL_MAX: RECONNECT_MS[1],
            zmq.TCP_MAXRT: DEAD_LINE_MS,
            zmq.TCP_KEEPALIVE: 1,
            zmq.TCP_KEEPALIVE_IDLE: KEEPALIVE_SECONDS,
            zmq.TCP_KEEPALIVE_INTVL: KEEPALIVE_SECONDS,
            zmq.TCP_KEEPALIVE_CNT: 3,
        }
        for option, value in options.items():
            socket.setsockopt(option, value)
        place = f"inproc://line-{id(self)}"
        socket.monitor(place, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop libzmq's own thread
        self._monitor.connect(place)

    async def send(self, frames: list[bytes]) -> asyncio.Future[None]:
        """Wait for a working line and send once. The future is done when it is lost."""
        while True:
            await self._connected.wait()
            lost = self._lost
            try:
                await self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:  # it was lost just now, or its queue is full
                await asyncio.wait({lost}, timeout=0.1)
            else:
                return lost

    async def watch(self) -> None:
        """Follow the line until it is closed. Raises LineRefused."""
        while True:
            try:
                async with asyncio.timeout(None if self._connected.is_set() else STUCK_SECONDS):
                    message = parse_monitor_message(await self._monitor.recv_multipart())
            except TimeoutError:
                self.connect_again()
            else:
                self._take(message["event"], message["value"])
            if not self._connected.is_set():
                self._check_patience()

    def close(self) -> None:
        """Stop the monitor; called before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _take(self, event: int, value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            down = time.monotonic() - self._down_since
            log.info("the line to the recorder at %s is up, after %.1f s", self._address, down)
            self._failed, self._was_connected = 0, True
            self._connected.set()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == 400:
            raise LineRefused(
                f"The recorder at {self._address} refuses the key of this host: it was removed, or "
                "belongs to another home.",
                "Workers of this host leave their rollouts.",
                "On the daemon's machine: houston host add NAME",
            )
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            self._count_failed()
        elif event == zmq.EVENT_DISCONNECTED and self._connected.is_set():
            log.warning(
                "the line to the recorder at %s is down; messages without an ack are kept and sent "
                "again when it is back", self._address,
            )  # fmt: skip
            self._mark_disconnected()

    def _mark_disconnected(self) -> None:
        """The line stands no more, if it did."""
        if self._connected.is_set():
            self._down_since = time.monotonic()
            self._connected.clear()
            self._lost.set_result(None)
            self._lost = asyncio.get_running_loop().create_future()

    def _count_failed(self) -> None:
        self._failed += 1
        if self._failed == 1:
            log.warning(
                "the peer at %s does not have the home's key: it is another daemon, or a tunnel"
                " without one; trying again", self._address,
            )  # fmt: skip
        if self._failed >= FAILED_HANDSHAKES and not self._was_connected:
            raise LineRefused(
                f"The peer at {self._address} does not have the home's key that this host "
                "was given.",
                "Workers of this host leave their rollouts.",
                "Check `address` in the endpoint file, or on the daemon's machine: "
                "houston host add NAME --replace",
            )

    def connect_again(self) -> None:
        """Drop the present line and try a new one."""
        self._mark_disconnected()
        with contextlib.suppress(zmq.ZMQError):  # given up: there is nothing to disconnect
            self._socket.disconnect(self._address)
        self._socket.connect(self._address)

    def _check_patience(self) -> None:
        if time.monotonic() - self._down_since > PATIENCE_SECONDS:
            raise LineRefused(
                f"The recorder at {self._address} could not be reached for "
                f"{PATIENCE_SECONDS / 60:.0f} minutes.",
                "Workers of this host leave their rollouts.",
                "On this machine: houston host check FILE",
            )
