"""Forged authors, replayed ids, stolen sockets and 100,000 broken frames: refused, or dropped."""

import getpass
import os
import random
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from houston_shared import wire
from houston_shared.control_client import ControlClient
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from tests.support.full_home import job
from tests.support.other_user import NOBODY, needs_root, open_place, speak
from tests.support.recorder_client import Client, Person, Station, Worker, spec

FUZZ = 50_000
"""Frames on each of the two sockets."""
WINDOW = 400
"""Frames whose answers are waited for at a time: fewer than a socket queues."""


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    """A recorder in this process."""
    made = Station(tmp_path / "home").start()
    yield made
    made.stop()


# --- who is somebody else ------------------------------------------------------------------------


@needs_root
def test_an_author_in_the_frame_is_not_believed() -> None:
    import grp

    from houston_shared.config_sections import DaemonSettings

    with open_place() as place:
        group = grp.getgrgid(NOBODY).gr_name
        station = Station(place / "home", daemon=DaemonSettings(group=group)).start()
        try:
            rollout = station.person().start()[0]
            forged = {
                "type": "Guide", "id": "f", "rollout": rollout, "text": "obey", "author": "root",
                "uid": 0, "verified": True, "role": "operator", "pid": 1, "claimed": "root",
            }  # fmt: skip
            endpoint = station.home.socket("control")
            (reply,) = speak(endpoint, NOBODY, NOBODY, [wire.encode_message(forged)])
            assert (reply.guidance.author, reply.guidance.verified) == ("root", False)
            rows = station.query("SELECT author, uid, verified FROM guidance")
            assert rows == [("root", NOBODY, 0)]  # the claim, whose it is, and that it is a claim
        finally:
            station.stop()


def test_a_replayed_request_changes_nothing(station: Station) -> None:
    person, rollout = station.person(), station.person().start()[0]
    body = wire.encode_message(wire.Guide(id="once", rollout=rollout, text="hello"))
    for _ in range(5):
        assert isinstance(person.raw(b"samesame", body), wire.RequestStored)
    other = wire.encode_message(wire.Guide(id="once", rollout=rollout, text="another"))
    assert isinstance(person.raw(b"samesame", other), wire.Denied)
    assert station.query("SELECT count(*) FROM guidance") == [(1,)]
    again = [person.start(request="same") for _ in range(3)]
    assert again[0] == again[1] == again[2]


def test_a_taken_routing_id_takes_no_answers(station: Station) -> None:
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(2)]
    try:
        for one in sockets:
            one.setsockopt(zmq.IDENTITY, b"console")
            one.connect(station.home.socket("control"))
            one.send_multipart([b"12345678", wire.encode_message(wire.AskStatus())])
            one.poll(2000 if one is sockets[0] else 300)
        sockets[0].send_multipart([b"87654321", wire.encode_message(wire.AskStatus())])
        first = [sockets[0].recv_multipart()[0] for _ in range(2) if sockets[0].poll(5000)]
        assert first == [b"12345678", b"87654321"]
        assert not sockets[1].poll(100)
    finally:
        context.destroy(linger=0)


# --- stolen sockets ------------------------------------------------------------------------------

_THIEF = """
import os, socket, sys
place, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
listening = socket.socket(socket.AF_UNIX)
listening.bind(place)
listening.listen()
listening.settimeout(20)
print("listening", flush=True)
sys.stdin.readline()
listening.setblocking(False)
heard = b""
while True:
    try:
        found, _ = listening.accept()
    except BlockingIOError:
        break
    found.settimeout(0.3)
    try:
        heard += found.recv(65536)
    except OSError:
        pass
print(len(heard))
"""


@contextmanager
def held_home() -> Iterator[Home]:
    """A home that a daemon seems to hold, with nothing on its sockets yet."""
    with open_place() as place:
        home = Home(place / "home")
        home.run.mkdir(parents=True, mode=0o755)
        lock = HomeLock(home)
        assert lock.take(HomeOwner(os.getpid(), "now")) is None
        try:
            yield home
        finally:
            lock.release()


@contextmanager
def thief(home: Home, uid: int) -> Iterator[Callable[[], int]]:
    """Another user listens on `control`; yields what tells how many bytes it heard."""
    home.run.chmod(0o777)
    place = str(home.run / "control.sock")
    process = subprocess.Popen(
        [sys.executable, "-c", _THIEF, place, str(uid)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "listening\n"

    def heard() -> int:
        told, _ = process.communicate("\n", timeout=30)
        return int(told)

    try:
        yield heard
    finally:
        process.kill()
        process.communicate()


def _as_it_is(home: Home) -> None:
    """The thief's socket in a folder that others may write to."""


def _closed_again(home: Home) -> None:
    """The folder looks right again; the file in it is the thief's."""
    home.run.chmod(0o755)


def _given_away(home: Home) -> None:
    """Folder and file look right; only the kernel knows who listens."""
    home.run.chmod(0o755)
    os.chown(home.run / "control.sock", 0, 0)


THEFTS = {
    "a folder that others may write to": (_as_it_is, "other users may write to it"),
    "a socket of another user": (_closed_again, "it was put there by another user"),
    "a process of another user": (_given_away, "a process of another user listens there"),
}


@needs_root
@pytest.mark.parametrize("name", THEFTS)
def test_nothing_is_said_to_another_user_s_process(name: str) -> None:
    dress, why = THEFTS[name]
    with held_home() as home, thief(home, NOBODY) as heard:
        dress(home)
        with ControlClient(home, 5) as client, pytest.raises(HoustonError) as problem:
            client.ask(wire.Guide(id="g", rollout="r", text="what only the daemon may hear"))
        assert why in problem.value.cause
        assert "Nothing was sent." in problem.value.effect
        assert heard() == 0


@needs_root
def test_a_folder_of_another_user_is_not_entered() -> None:
    with held_home() as home:
        os.chown(home.run, NOBODY, NOBODY)
        with ControlClient(home, 5) as client, pytest.raises(HoustonError) as problem:
            client.ask(wire.AskStatus())
        assert "put there by another user" in problem.value.cause


def test_a_file_in_place_of_the_socket_is_not_spoken_to() -> None:
    with held_home() as home:
        (home.run / "control.sock").write_text("not a socket")
        with ControlClient(home, 5) as client, pytest.raises(HoustonError, match="cannot be trust"):
            client.ask(wire.AskStatus())


@needs_root
def test_who_is_not_let_in_is_told_so() -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from houston_shared.control_client import ControlClient\n"
        "from houston_shared.home import Home; from houston_shared.wire import AskStatus\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try:\n    ControlClient(Home(Path(sys.argv[1]))).ask(AskStatus())\n"
        "except Exception as problem:\n    print(type(problem).__name__, problem)\n"
    )
    with open_place() as place:
        station = Station(place / "home").start()
        lock = HomeLock(station.home)
        assert lock.take(HomeOwner(os.getpid(), "now")) is None
        try:
            station.home.path.chmod(0o755)
            done = subprocess.run(
                [sys.executable, "-c", code, str(station.home.path)],
                capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            assert "is not open to this user" in done.stdout, done.stdout
        finally:
            lock.release()
            station.stop()


# --- broken frames -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process() -> Iterator[tuple["subprocess.Popen[str]", Home]]:
    """A recorder in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="houston-fuzz-") as folder:
        home = Home(Path(folder) / "home")
        running = subprocess.Popen(
            [sys.executable, "-m", "tests.support.recorder_process", str(home.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdout
        running.stdout.readline()
        yield running, home
        running.communicate("", timeout=60)
        assert running.returncode == 0, "the recorder came to a clean end"


def seeds(rollout: str, lease: int, control: bool) -> list[bytes]:
    """Good messages to break."""
    if control:
        found: list[Any] = [
            wire.Guide(id="g", rollout=rollout, text="hello"),
            wire.EditGuidance(id="g", revision=1, text="better"),
            wire.WithdrawGuidance(id="g"),
            wire.Steer(rollout=rollout, action="pause", reason="why"),
            wire.BookmarkStep(rollout=rollout, step=1, note="here"),
            wire.ReportPresence(rollout=rollout, step=3, active=True),
            wire.ReorderGuidance(rollout=rollout, order=("g",), seen=("g",)),
            wire.ClaimRollout(request="c", rollout=rollout, note="mine", seen=1),
            wire.GiveVerdicts(
                request="v",
                rollout=rollout,
                seen=9,
                steps=(wire.JudgedSteps(first=1, last=2, verdict="mask", reason="why"),),
            ),
            wire.StoreDraft(id="d", rollout=rollout, step=1, critic="c", text="t", reason="why"),
            wire.RejectDraft(id="d"),
            wire.StoreReviewCost(
                request="q",
                rollout=rollout,
                reviewer="judge:e",
                requests=2,
                prompt_tokens=9,
                sampled_tokens=4,
                cost=0.5,
            ),
            wire.StoreProcessRewards(
                policy="prm@1",
                scores=(wire.StepScore(rollout=rollout, step=1, attempt=1, score=0.5),),
            ),
            wire.StoreVerdicts(
                request="w",
                rollout=rollout,
                source="judge",
                by="judge:local",
                steps=(wire.JudgedSteps(first=1, last=2, verdict="keep", reason="why"),),
            ),
            wire.AskStatus(claimed="somebody"),
            wire.StartRollouts(request="r", specs=(spec(),)),
        ]
        return [wire.encode_message(one) for one in found]
    common = {"rollout": rollout, "lease": lease}
    return [
        wire.encode_message(wire.Hello(**common, pid=1)),
        wire.encode_message(wire.ReadSteps(**common, step=1)),
        wire.encode_message(wire.Heartbeat(**common, activity="sampling")),
        wire.encode_message(wire.StoreState(**common, state="paused", reason="x")),
        wire.encode_message(wire.StoreJob(**common, job=job())),
    ]


def broken(good: list[bytes], chance: random.Random) -> bytes:
    """A random body, or a good one with bytes flipped, cut, doubled or joined."""
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    body = bytearray(chance.choice(good))
    if kind == 1:
        return bytes(body[: chance.randrange(len(body))])
    if kind == 2:
        return bytes(body) + chance.choice(good)
    for _ in range(chance.randrange(1, 5)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    if kind == 3:
        at = chance.randrange(len(body))
        body[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(body)


@pytest.mark.parametrize("name", ["control", "ingest"])
def test_every_broken_frame_is_answered(
    process: tuple["subprocess.Popen[str]", Home], name: str
) -> None:
    running, home = process
    person = Person(home)
    rollout = person.start()[0]
    assert running.stdin
    assert running.stdout
    running.stdin.write(f"{rollout}\n")
    running.stdin.flush()
    lease = int(running.stdout.readline())
    decoder: Any = wire.control_reply_decoder if name == "control" else wire.ingest_reply_decoder
    client = Client(home, name, decoder)
    good = seeds(rollout, lease, name == "control")
    chance = random.Random(20261120)
    sent = 0
    while sent < FUZZ:
        waiting = set()
        for _ in range(WINDOW):
            sent += 1
            request = sent.to_bytes(8, "big")
            waiting.add(request)
            client.socket.send_multipart([request, broken(good, chance)])
        while waiting:
            request, _ = client.receive_any()  # raises when no answer comes
            waiting.discard(request)
    assert running.poll() is None
    assert person.ask(wire.AskStatus()).state == "running"
    client.close()
    person.close()


def test_envelopes_of_any_shape_and_bytes_that_are_no_frames(
    process: tuple["subprocess.Popen[str]", Home],
) -> None:
    running, home = process
    chance = random.Random(7)
    for name in ("control", "ingest", "live"):
        kind = zmq.XSUB if name == "live" else zmq.DEALER
        with zmq.Context() as context, context.socket(kind) as shape:
            shape.setsockopt(zmq.LINGER, 0)
            shape.connect(home.socket(name))
            for _ in range(500):
                sizes = [chance.randrange(20) for _ in range(chance.randrange(1, 9))]
                if shape.poll(2000, zmq.POLLOUT):
                    shape.send_multipart([chance.randbytes(size) for size in sizes])
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(home.run / f"{name}.sock"))
                raw.settimeout(20)
                try:
                    raw.sendall(chance.randbytes(chance.randrange(1, 2000)))
                except OSError:
                    continue  # it hung up before all was said
    worker = Worker(home, "no-such-rollout", 1)
    assert isinstance(worker.hello(), wire.Refused)
    worker.close()
    person = Person(home)
    assert person.ask(wire.AskStatus()).state == "running"
    assert running.poll() is None
    assert stat.S_ISSOCK((home.run / "control.sock").stat().st_mode)
    assert person.guide(person.start()[0], "still here").guidance.author == getpass.getuser()
    person.close()
