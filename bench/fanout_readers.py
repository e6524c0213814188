"""Readers of one home for `console_fanout.py`: a live socket and a read-only database each.

    python bench/fanout_readers.py HOME READERS      until a line comes on stdin; then one JSON line
    python bench/fanout_readers.py --raw ENDPOINT READERS

A reader does what a console does: a notice wakes it, and at most ten times a second it reads from
the database what is new by sequence. It counts what is missing in that sequence. With `--raw` there
is no database: each message carries the time at which it was published.
"""

import argparse
import json
import sqlite3
import sys
import time
from pathlib import Path

import zmq

from houston_shared import wire
from houston_shared.home import Home

COALESCE_SECONDS = 0.1
PAGE = 5_000
NEW = "SELECT seq, at FROM events WHERE seq > ? ORDER BY seq LIMIT ?"


class Reader:
    """One console's share of the work; it keeps the delays it saw, in milliseconds."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str) -> None:
        self.socket = context.socket(zmq.SUB)
        self.socket.subscribe(b"")
        self.socket.connect(endpoint)
        self.notices: list[float] = []

    def take(self) -> None:
        """Take every message that waits."""
        while self.socket.poll(0):
            self.hear(self.socket.recv())

    def hear(self, body: bytes) -> None:
        """A message whose body is the time of its publication, nanoseconds."""
        self.notices.append((time.time_ns() - int(body)) / 1e6)

    def catch_up(self) -> None:
        """There is no database."""


class DatabaseReader(Reader):
    """One that follows a home."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", home: Home) -> None:
        super().__init__(context, home.socket("live"))
        began = time.perf_counter()
        self._connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
        (self._seq,) = self._connection.execute("SELECT max(seq) FROM events").fetchone()
        self._connection.execute("SELECT * FROM rollouts").fetchall()
        self.snapshot_ms = 1e3 * (time.perf_counter() - began)
        self._heard: dict[int, int] = {}
        self._due = 0.0
        self.shown: list[float] = []
        self.missing = 0

    def hear(self, body: bytes) -> None:
        """A notice: when it came is compared with its event's time once that is read."""
        self._heard[wire.notice_decoder.decode(body).seq] = time.time_ns() // 1000

    def catch_up(self) -> None:
        """Read what is new, if something is and the last read is long enough ago."""
        if not self._heard or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + COALESCE_SECONDS
        for seq, at in self._connection.execute(NEW, (self._seq, PAGE)).fetchall():
            self.missing += seq - self._seq - 1
            self._seq = seq
            heard = self._heard.pop(seq, None)
            if heard is not None:
                self.notices.append((heard - at) / 1e3)
                self.shown.append((time.time_ns() // 1000 - at) / 1e3)
        self._heard = {seq: when for seq, when in self._heard.items() if seq > self._seq}


def serve(readers: list[Reader]) -> None:
    """Read until a line comes on stdin."""
    poller = zmq.Poller()
    named = {reader.socket: reader for reader in readers}
    for reader in readers:
        poller.register(reader.socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    print("ready", flush=True)
    while True:
        ready = dict(poller.poll(20))
        if sys.stdin.fileno() in ready:
            return
        for socket in ready:
            named[socket].take()
        for reader in readers:
            reader.catch_up()


def report(readers: list[Reader]) -> dict[str, object]:
    """What they saw."""
    followed = [one for one in readers if isinstance(one, DatabaseReader)]
    return {
        "notices": [round(ms, 3) for one in readers for ms in one.notices],
        "shown": [round(ms, 3) for one in followed for ms in one.shown],
        "missing": sum(one.missing for one in followed),
        "snapshot_ms": [round(one.snapshot_ms, 2) for one in followed],
    }


def main() -> None:
    """Read, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place")
    parser.add_argument("readers", type=int)
    parser.add_argument("--raw", action="store_true")
    given = parser.parse_args()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    readers: list[Reader] = [
        Reader(context, given.place)
        if given.raw
        else DatabaseReader(context, Home(Path(given.place)))
        for _ in range(given.readers)
    ]
    serve(readers)
    print(json.dumps(report(readers)), flush=True)
    context.destroy(linger=0)


if __name__ == "__main__":
    main()
