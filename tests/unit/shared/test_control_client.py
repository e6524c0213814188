"""The client: no daemon is told at once, a silent one in bounded time, words of a denial kept."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from houston_shared import wire
from houston_shared.async_control_client import AsyncControlClient, LiveFeed
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner

Answer = Callable[[wire.ControlRequest], wire.ControlReply | None]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.run.mkdir()
    return made


@contextmanager
def daemon(home: Home, answer: Answer) -> Iterator[HomeLock]:
    """Hold the home and answer on a real `control` socket; None answers nothing."""
    lock = HomeLock(home)
    assert lock.take(HomeOwner(os.getpid(), "now")) is None
    stop = threading.Event()
    thread = threading.Thread(target=_serve, args=(home, answer, stop))
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join()
        lock.release()


def _serve(home: Home, answer: Answer, stop: threading.Event) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(home.socket("control"))
        while not stop.is_set():
            if router.poll(20):
                client, request, body = router.recv_multipart()
                reply = answer(wire.control_request_decoder.decode(body))
                if reply is not None:
                    push = wire.encode_message(wire.RequestStored(seq=99))
                    router.send_multipart([client, wire.PUSH_REQUEST_ID, push])  # not the answer
                    router.send_multipart([client, request, wire.encode_message(reply)])


def test_no_daemon_is_said_without_waiting(home: Home) -> None:
    before = time.monotonic()
    with ControlClient(home) as client, pytest.raises(DaemonNotRunning) as problem:
        client.ask(wire.AskStatus())
    assert time.monotonic() - before < 5, "far less than the client's patience"
    assert problem.value.code == ExitCode.DAEMON_NOT_RUNNING
    assert "houston daemon start" in str(problem.value)


def test_answers_come_back_to_their_questions(home: Home) -> None:
    with daemon(home, lambda _: wire.RequestStored(seq=7)), ControlClient(home) as client:
        assert client.ask(wire.AskStatus()) == wire.RequestStored(seq=7)
        assert client.ask(wire.AskStatus()) == wire.RequestStored(seq=7)


def test_a_denial_keeps_its_words_and_its_code(home: Home) -> None:
    denied = wire.Denied(cause="There is no rollout x.", effect="Nothing.", next="list", code=75)
    guide = wire.Guide(id="1", rollout="x", text="hello")
    with daemon(home, lambda _: denied), ControlClient(home) as client:  # noqa: SIM117
        with pytest.raises(HoustonError) as problem:
            client.ask(guide)
    said = problem.value
    assert (said.cause, said.effect, said.next) == ("There is no rollout x.", "Nothing.", "list")
    assert said.code == ExitCode.BUSY


def test_a_daemon_that_does_not_answer_is_said_honestly(home: Home) -> None:
    with daemon(home, lambda _: None), ControlClient(home, timeout=0.3) as client:  # noqa: SIM117
        with pytest.raises(HoustonError, match=r"did not answer in 0\.3 s") as problem:
            client.ask(wire.AskStatus())
    assert f"pid {os.getpid()}" in str(problem.value)


def test_a_message_that_is_too_long_is_refused_before_it_is_sent(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_LIMIT", 4_000_000)
    long = wire.Guide(id="1", rollout="x", text="x" * 5_000_000)
    with daemon(home, lambda _: wire.RequestStored()), ControlClient(home) as client:
        with pytest.raises(HoustonError, match="has 5 MB; the daemon takes at most 4"):
            client.ask(long)
        assert client.ask(wire.AskStatus()) == wire.RequestStored()


def test_a_daemon_that_ends_before_it_answers(home: Home) -> None:
    with daemon(home, lambda _: None) as lock, ControlClient(home, timeout=60) as client:
        threading.Timer(0.3, lock.release).start()
        with pytest.raises(DaemonNotRunning, match="before it answered"):
            client.ask(wire.AskStatus())


def test_a_question_asked_while_the_daemon_starts_is_answered(home: Home) -> None:
    lock = HomeLock(home)
    lock.take(HomeOwner(os.getpid(), "now"))
    stop = threading.Event()
    late = threading.Timer(0.5, _serve, args=(home, lambda _: wire.RequestStored(), stop))
    late.start()
    try:
        with ControlClient(home, timeout=30) as client:
            assert client.ask(wire.AskStatus()) == wire.RequestStored()
    finally:
        stop.set()
        late.join()
        lock.release()


async def test_questions_of_the_console_overlap(home: Home) -> None:
    def answer(message: wire.ControlRequest) -> wire.ControlReply:
        assert isinstance(message, wire.Guide)
        return wire.RequestStored(seq=int(message.id))

    with daemon(home, answer):
        client = AsyncControlClient(home)
        try:
            asked = [client.ask(wire.Guide(id=str(i), rollout="r", text="t")) for i in range(20)]
            assert await asyncio.gather(*asked) == [wire.RequestStored(seq=i) for i in range(20)]
        finally:
            await client.close()


async def test_the_console_learns_that_no_daemon_runs(home: Home) -> None:
    client = AsyncControlClient(home)
    try:
        with pytest.raises(DaemonNotRunning):
            await client.ask(wire.AskStatus())
    finally:
        await client.close()


async def test_the_wait_for_a_connection_is_part_of_the_timeout(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, ready_at = AsyncControlClient._connect, time.monotonic() + 0.8

    def connect_late(client: AsyncControlClient, end: float, seconds: float) -> bool:
        return time.monotonic() >= ready_at and connect(client, end, seconds)

    monkeypatch.setattr(AsyncControlClient, "_connect", connect_late)
    with daemon(home, lambda _: None):
        client = AsyncControlClient(home)
        try:
            before = time.monotonic()
            with pytest.raises(HoustonError, match="did not answer in 1 s"):
                await client.ask(wire.AskStatus(), timeout=1.0)
            assert time.monotonic() - before < 1.7
        finally:
            await client.close()


async def test_notices_are_coalesced_and_go_on_after_a_restart(home: Home) -> None:
    feed = LiveFeed(home)
    notices = aiter(feed)
    seen: list[wire.Notice] = []
    for epoch in (1, 2):
        coming = asyncio.ensure_future(anext(notices))  # as the console, it always listens
        # A context of its own, as a daemon has: at its end the socket's file is gone for sure.
        with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
            publisher.bind(home.socket("live"))
            assert await asyncio.to_thread(publisher.poll, 20_000), "it connects, again too"
            for seq in range(1, 101):
                rollout = "ab"[seq % 2]
                publisher.send(wire.encode_message(wire.Notice(epoch, seq, rollout, "step")))
            seen.append(await asyncio.wait_for(coming, 20))
            while (seen[-1].epoch, seen[-1].seq) != (epoch, 100):
                seen.append(await asyncio.wait_for(anext(notices), 20))
    feed.close()
    assert len(seen) < 200, "of what came together only the newest"
    assert [(n.epoch, n.seq) for n in seen] == sorted((n.epoch, n.seq) for n in seen)


def test_a_client_that_is_forgotten_hangs_nothing(home: Home) -> None:
    """The collector ends what nobody closed, and goes on."""
    for client in (ControlClient, AsyncControlClient, LiveFeed):
        circle = [client(home)]
        circle.append(circle)  # type: ignore[arg-type]
    del circle, client
    gc.collect()
