"""`ingest` over TCP: bound with CURVE for this home's hosts; a message's sender is its host.

It has its own socket and context, so handshakes and ciphers of other machines take nothing from the
local sockets. pyzmq's authenticator asks `KnownHosts` at each handshake; a message of a host that
was removed since is recognised by the key it came under. `message_intake` interprets the messages.
There are no ZMTP heartbeats: libzmq 4.3.5 aborts on one that ends a connection whose queue is full
(libzmq#3937). TCP itself notices a dead peer, and workers send something once a second.
"""

import itertools
import logging
import os
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from houston_daemon.recorder.disk.host_keys import HostKeys, KnownHosts, ensure_server_keys
from houston_daemon.recorder.identity_and_roles import Peer
from houston_daemon.recorder.recorder_sockets import RouterSocket
from houston_shared.config_sections import RecorderSettings
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.wire import PUSH_REQUEST_ID

LOGGER = logging.getLogger("houston.recorder")
ZAP_DOMAIN = "houston"
BACKLOG = 1_024
"""Connections that wait to be accepted: all workers come back at once after a restart."""
HANDSHAKE_MS = 10_000
DEAD_PEER_MS = 30_000
"""What was sent and is not acknowledged by the peer's kernel for so long ends the connection."""
KEEPALIVE_SECONDS = 10
"""A peer that says nothing is asked by the kernel after this time, then three times more."""
LOGGED_KEYS = 1_000
"""Refused keys that are remembered, so that each is logged once."""
REMEMBERED_CONNECTIONS = 100_000
_MONITOR = "inproc://remote-ingest.monitor"


class HostAuthenticator(ThreadAuthenticator):
    """Answers libzmq's question at each handshake, in a thread: is this key a host's?"""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", hosts: KnownHosts) -> None:
        super().__init__(context)
        self._hosts = hosts
        self._address = ""
        self._logged: set[bytes] = set()
        self.configure_curve_callback(ZAP_DOMAIN, self)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer one request (rfc.zeromq.org/spec/27; the fourth frame is the peer's address)."""
        self._address = msg[3].decode("utf-8", "replace") if len(msg) > 3 else ""
        await super().handle_zap_message(msg)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key, in Z85, is a host's."""
        del domain
        try:
            name = self._hosts.name_of(key.decode("ascii"))
        except HoustonError as problem:
            LOGGER.error("a host at %s is refused: %s", self._address, problem)
            return False
        if name is not None:
            LOGGER.info("host %s connects from %s", name, self._address)
            return True
        if key not in self._logged and len(self._logged) < LOGGED_KEYS:
            self._logged.add(key)
            former = self._hosts.former_name_of(key.decode("ascii"))
            LOGGER.warning(
                "a worker at %s is refused: its key (%s…, %s) belongs to no host of this home; "
                "`houston host list` shows all of them", self._address, key[:8].decode("ascii"),
                "unknown" if former == "unknown" else f"formerly of {former}",
            )  # fmt: skip
        return False


class RemoteIngest(RouterSocket):
    """The TCP socket of one recorder; belongs to its thread."""

    def __init__(self, home: Home, settings: RecorderSettings) -> None:
        """Nothing is read or bound yet."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        super().__init__(self._context, self._host_of)
        self._home = home
        self._listen = settings.listen
        self._hosts = KnownHosts(home)
        self._authenticator = HostAuthenticator(self._context, self._hosts)
        self._monitor: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        self._handshake_logged = False
        self._connections: dict[bytes, tuple[int, str]] = {}
        """Routing id → its number, and the public key of the host that it is of."""
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Bind. Raises HoustonError, also where the home's keys cannot be read."""
        self._set_options(ensure_server_keys(self._home))
        self._authenticator.start()
        self.socket.monitor(_MONITOR, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop libzmq's own thread
        self._monitor.connect(_MONITOR)
        try:
            self.socket.bind(self._listen)
        except zmq.ZMQError as problem:
            raise HoustonError(
                f"`[recorder] listen` = {self._listen} cannot be bound ({problem.strerror}).",
                "The daemon was not started.",
                "End the program that uses the port, or name another address of this machine.",
            ) from None
        LOGGER.info("listening for workers on other machines at %s", self._listen)

    def send(self, routing: bytes, request: bytes, message: object) -> bool:
        """Send like any router, but push nothing to a host that was removed."""
        if request == PUSH_REQUEST_ID and not self._is_known(
            self._connections.get(routing, (0, ""))[1]
        ):
            return False
        return super().send(routing, request, message)

    def connection_of(self, routing: bytes) -> int:
        """In the order of their first messages."""
        return self._connections[routing][0]

    def _set_options(self, keys: HostKeys) -> None:
        options: dict[int, Any] = {
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_SECRETKEY: keys.secret_key.encode(),
            zmq.ZAP_DOMAIN: ZAP_DOMAIN.encode(),
            zmq.ZAP_ENFORCE_DOMAIN: 1,  # nobody gets in where nobody asks for their key
            zmq.IPV6: int("[" in self._listen),
            zmq.BACKLOG: BACKLOG,
            zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
            zmq.TCP_MAXRT: DEAD_PEER_MS,
            zmq.TCP_KEEPALIVE: 1,
            zmq.TCP_KEEPALIVE_IDLE: KEEPALIVE_SECONDS,
            zmq.TCP_KEEPALIVE_INTVL: KEEPALIVE_SECONDS,
            zmq.TCP_KEEPALIVE_CNT: 3,
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)

    def close(self, linger_ms: int) -> None:
        """Let the last answers go, for so long, and close. Idempotent."""
        self._authenticator.stop()
        self._monitor.close(linger=0)
        self._context.destroy(linger=linger_ms)

    def log_refused_handshakes(self) -> None:
        """Log that somebody came with another home's key; no message ever reports that."""
        while self._monitor.poll(0):
            parse_monitor_message(self._monitor.recv_multipart())
            if not self._handshake_logged:
                self._handshake_logged = True
                LOGGER.warning(
                    "a client at %s was refused in the handshake: it does not have this home's "
                    "key, or is not a worker (further ones are not logged)", self._listen,
                )  # fmt: skip

    def _is_known(self, key: str) -> bool:
        try:
            return self._hosts.name_of(key) is not None
        except HoustonError:
            return False

    def _host_of(self, frame: zmq.Frame) -> Peer | None:
        """The host that a message came from; one that was removed is no owner any more.

        frame: the first one, whose bytes are the sender's routing id.
        """
        try:
            key = str(frame.get("User-Id"))
            name = self._hosts.name_of(key)
        except (zmq.ZMQError, HoustonError):
            return None
        if frame.bytes not in self._connections:
            if len(self._connections) >= REMEMBERED_CONNECTIONS:
                del self._connections[next(iter(self._connections))]
            self._connections[frame.bytes] = (next(self._numbers), key)
        if name is None:
            former = self._hosts.former_name_of(key)
            return Peer(-1, f"host {former}", None, host=former)
        return Peer(os.geteuid(), f"host {name}", None, host=name)
