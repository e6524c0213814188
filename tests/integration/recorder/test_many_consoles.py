"""A hundred consoles on one home, some of which have stopped reading: nobody else pays for them."""

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest
import zmq

from houston_shared import wire
from houston_shared.home import Home
from tests.support.recorder_client import Station, until

CONSOLES = 100
STALLED = 5
STEPS = 60


class Console:
    """What a console holds: a live socket, and the database as far as it has read it."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", home: Home) -> None:
        self.socket = context.socket(zmq.SUB)
        self.socket.subscribe(b"")
        self.socket.connect(home.socket("live"))
        self._connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
        self.read: list[int] = []
        self.notices: list[wire.Notice] = []

    def take(self) -> None:
        """Take every notice that waits."""
        while self.socket.poll(0):
            self.notices.append(wire.notice_decoder.decode(self.socket.recv()))

    def catch_up(self) -> None:
        """Read what is new by sequence, whatever notices came or did not."""
        newest = self.read[-1] if self.read else 0
        rows = self._connection.execute(
            "SELECT seq FROM events WHERE seq > ? ORDER BY seq", (newest,)
        )
        self.read += [row[0] for row in rows]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def consoles(station: Station) -> Iterator[list[Console]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=2)
    context.set(zmq.MAX_SOCKETS, 2 * CONSOLES)
    made = [Console(context, station.home) for _ in range(CONSOLES)]
    yield made
    for console in made:
        console.close()
    context.destroy(linger=0)


def test_all_are_told_and_none_pays_for_those_who_stopped_reading(
    station: Station, consoles: list[Console]
) -> None:
    person = station.person()
    assert until(lambda: person.ask(wire.AskStatus()).consoles == CONSOLES)
    worker = station.working()
    awake = consoles[STALLED:]
    for number in range(1, STEPS + 1):
        ack = worker.step(number)
        assert isinstance(ack, wire.Ack), "a step is never refused for a console's sake"
        for console in awake:
            console.take()
    newest = ack.seq
    assert until(lambda: all(told(console, newest) for console in awake))
    for console in awake:
        sequence = [notice.seq for notice in console.notices]
        assert sequence == sorted(set(sequence)), "in order, none twice"
        assert {notice.epoch for notice in console.notices} == {station.recorder.epoch}
    for console in consoles:  # those who come back as well: the database has no gaps
        console.catch_up()
        assert console.read == list(range(1, newest + 1))


def told(console: Console, newest: int) -> bool:
    console.take()
    return bool(console.notices) and console.notices[-1].seq >= newest


def test_a_console_knows_by_the_epoch_that_the_daemon_was_another(station: Station) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with contextlib.closing(Console(context, station.home)) as console:
        assert until(lambda: heard(station, console))
        before = console.notices[-1].epoch
        station.restart()
        assert until(lambda: heard(station, console) and console.notices[-1].epoch > before)
        assert console.notices[-1].epoch == station.recorder.epoch
        console.catch_up()
        assert console.read == list(range(1, console.read[-1] + 1)), "and nothing is missing"
    context.destroy(linger=0)


def heard(station: Station, console: Console) -> bool:
    """Make a commit, and look whether the console has heard of it (or of an earlier one)."""
    station.person().start()
    console.socket.poll(100)
    console.take()
    return bool(console.notices)
