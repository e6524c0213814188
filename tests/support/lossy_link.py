"""A network namespace behind a link that delays and loses packets, and can be cut.

Two TUN devices, one here and one in the namespace; a thread carries packets from one to the other,
late, and not all of them. It stands for `tc qdisc … netem`, whose kernel module many machines lack
(this one does), and works on any with root, `ip` and `/dev/net/tun`.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NETWORK = "198.18"
"""For tests of networks (RFC 2544)."""
_CLONE_NEWNET = 0x40000000
_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def why_not() -> str:
    """Why there can be no such link on this machine; empty where there can."""
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip`"
    return "" if _TUN.exists() else f"there is no {_TUN}"


needs_links = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


class LossyLink:
    """One link; `close` takes the namespace with it, if it was made for this link."""

    def __init__(self, delay: float, loss: float, subnet: int = 77, namespace: str = "") -> None:
        """delay: seconds each way. loss: share of packets, 0 to 1. subnet: its own, where there
        are several links. namespace: of another link, which outlives this one; else a new one."""
        self._delay, self._loss = delay, loss
        self.here, self.there = f"{NETWORK}.{subnet}.1", f"{NETWORK}.{subnet}.2"
        """Addresses of both ends."""
        self._random = random.Random(7)
        self._cut = threading.Event()
        self._over = threading.Event()
        self._owns_namespace = not namespace
        self.namespace = namespace or f"houston-{os.getpid()}"
        self.carried = self.lost = 0
        """Packets so far."""
        if self._owns_namespace:
            _run("ip", "netns", "add", self.namespace)
        self._ends = [_tun(f"hou{os.getpid() % 100_000}{end}{subnet}") for end in "ab"]
        (_, here), (_, there) = self._ends
        _run("ip", "link", "set", there, "netns", self.namespace)
        for words in (["addr", "add", f"{self.here}/30", "dev", here], ["link", "set", here, "up"]):
            _run("ip", *words)
        for words in (
            ["addr", "add", f"{self.there}/30", "dev", there],
            ["link", "set", there, "up"],
            ["link", "set", "lo", "up"],
        ):
            _run("ip", "-n", self.namespace, *words)
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def inside(self, *command: str) -> list[str]:
        """A command as it is run in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *command]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in the namespace meanwhile, and so is what it starts."""
        with (
            open("/proc/thread-self/ns/net", "rb") as own,
            open(f"/run/netns/{self.namespace}", "rb") as other,
        ):
            _enter(other.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    def cut(self) -> None:
        """No packet passes any more; nobody is told."""
        self._cut.set()

    def heal(self) -> None:
        self._cut.clear()

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        for descriptor, _ in self._ends:
            os.close(descriptor)
        if self._owns_namespace:
            _run("ip", "netns", "del", self.namespace)

    def _carry(self) -> None:
        (here, _), (there, _) = self._ends
        other = {here: there, there: here}
        waiting: list[tuple[float, int, int, bytes]] = []
        number = 0
        while not self._over.is_set():
            until = waiting[0][0] - time.monotonic() if waiting else 0.1
            ready, _, _ = select.select([here, there], [], [], min(max(until, 0.0), 0.1))
            for descriptor in ready:
                packet = os.read(descriptor, 65_536)
                if self._cut.is_set() or self._random.random() < self._loss:
                    self.lost += 1
                    continue
                number += 1
                due = time.monotonic() + self._delay
                heapq.heappush(waiting, (due, number, other[descriptor], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(waiting)
                if not self._cut.is_set():
                    os.write(target, packet)
                    self.carried += 1


def _tun(name: str) -> tuple[int, str]:
    """A new TUN device; its descriptor, which it lives as long as, and its name."""
    descriptor = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor, name


def _enter(namespace: int) -> None:
    """What `os.setns` does from Python 3.12 on."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
