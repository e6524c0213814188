"""Whatever bytes arrive, they are answered or dropped, and everybody else is served on."""

import contextlib
import random

import pytest
import zmq

from houston_shared import records, wire
from tests.support.full_home import job
from tests.support.recorder_client import Client, Station, call, result, sample, spec

ID = b"\0\0\0\0\0\0\0\1"
SHAPES: dict[str, tuple[bytes, ...]] = {
    "one frame": (b"x",),
    "a short request id": (b"1", wire.encode_message(wire.AskStatus())),
    "three frames": (ID, b"a", b"b"),
    "an empty body": (ID, b""),
    "no msgpack": (ID, b"\xc1\xc1\xc1"),
    "another type": (ID, wire.encode_message({"type": "Nothing"})),
    "a number": (ID, wire.encode_message(7)),
    "a missing field": (ID, wire.encode_message({"type": "Hello", "rollout": "x"})),
    "a wrong type": (
        ID,
        wire.encode_message({"type": "Guide", "id": 1, "rollout": "x", "text": "y"}),
    ),
    "not UTF-8": (ID, b"\x82\xa4type\xa5Guide\xa2id\xa2\xff\xfe"),
    "nested without end": (
        ID,
        b"\x81\xa4type\xacStoreResult\xa6result\x81\xa6fields\x81\xa1a" + b"\x91" * 200_000,
    ),
}


def served(station: Station) -> bool:
    return bool(station.person().ask(wire.AskStatus()).state == "running")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("socket", ["ingest", "control"])
def test_a_malformed_message_is_answered(station: Station, socket: str, name: str) -> None:
    decoder = wire.ingest_reply_decoder if socket == "ingest" else wire.control_reply_decoder
    client = Client(station.home, socket, decoder)
    reply = client.raw(*SHAPES[name])
    client.close()
    if socket == "ingest":
        assert isinstance(reply, wire.Refused)
        assert reply.code == "INVALID"
    else:
        assert isinstance(reply, wire.Denied)
    assert served(station)


def test_a_frame_over_the_limit_ends_only_its_sender(station: Station) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(station.home.socket("control"))
    socket.send_multipart([ID, bytes(wire.FRAME_LIMIT + 1)])
    assert served(station)
    assert not socket.poll(200)
    context.destroy(linger=0)


def _valid(rollout: str, lease: int) -> list[bytes]:
    here = {"rollout": rollout, "lease": lease}
    messages: list[wire.WireMessage] = [
        wire.Hello(**here, pid=1),
        wire.ReadSteps(**here, step=1),
        wire.StoreSample(**here, step=1, attempt=1, sample=sample(1)),
        wire.StoreIntent(
            **here, step=1, attempt=1, index=0, intent=records.CallIntent(call=call(1))
        ),
        wire.StoreResult(
            **here,
            step=1,
            attempt=1,
            index=0,
            result=result(1, kind="eval", fields={"overall_score": 3.5, "counted": True}),
        ),
        wire.StoreObservation(
            **here,
            step=1,
            attempt=1,
            observation=records.ObservationBody(
                tail="t",
                files=(records.FileChange(path="p", kind="added", added=1, removed=0),),
                spans=(records.TerminalSpan(host="h", terminal="t", start=0, end=5),),
            ),
        ),
        wire.StoreJob(**here, job=job(9)),
        wire.StoreState(**here, state="running"),
        wire.Heartbeat(**here, activity="x"),
        wire.Guide(id="g", rollout=rollout, text="hello"),
        wire.EditGuidance(id="g", revision=1, text="hello"),
        wire.WithdrawGuidance(id="g"),
        wire.BookmarkStep(rollout=rollout, step=1, note="n"),
        wire.ReportPresence(rollout=rollout, step=1, active=True),
        wire.ReorderGuidance(rollout=rollout, order=("g",), seen=("g",)),
        wire.ClaimRollout(request="c", rollout=rollout, note="n", seen=1),
        wire.GiveVerdicts(
            request="v",
            rollout=rollout,
            steps=(wire.JudgedSteps(first=1, last=1, verdict="mask", reason="r"),),
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
            policy="prm@1", scores=(wire.StepScore(rollout=rollout, step=1, attempt=1, score=0.5),)
        ),
        wire.StoreVerdicts(
            request="v",
            rollout=rollout,
            source="rule",
            by="rules",
            steps=(wire.JudgedSteps(first=1, last=1, verdict="mask", reason="error@1: r"),),
        ),
        wire.StartRollouts(request="r", specs=(spec(),)),
    ]
    return [wire.encode_message(message) for message in messages]


def _mangle(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(changed))
        how = dice.randrange(4)
        if how == 0:
            changed[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            changed[at] = dice.choice(b"\x00\xc0\xca\xcb\xcf\xd3\xff\x7f\x80\x90\xa0")
        elif how == 2:
            del changed[at : at + dice.randint(1, 6)]
        else:
            changed[at:at] = dice.randbytes(dice.randint(1, 9))
        changed = changed or bytearray(b"\0")
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_mangled_messages_never_end_the_recorder(station: Station, seed: int) -> None:
    """Every message is mangled in many ways; each is answered, and the store stays sound."""
    from houston_daemon.maintenance.home_verification import verify_home

    dice = random.Random(seed)
    worker = station.working()
    clients = [
        Client(station.home, "ingest", wire.ingest_reply_decoder),
        Client(station.home, "control", wire.control_reply_decoder),
    ]
    valid = _valid(worker.rollout, worker.lease)
    for _ in range(25):
        for client in clients:
            for data in valid:
                client.socket.send_multipart([ID, _mangle(dice, data)])
            for _ in valid:
                client.receive_any()
    for client in clients:
        client.close()
    assert served(station)
    assert verify_home(station.home).findings == ()


def test_a_worker_that_does_not_read_harms_nobody(station: Station) -> None:
    lazy, busy = station.working(), station.working()
    lazy.socket.setsockopt(zmq.RCVHWM, 1)
    with contextlib.suppress(zmq.Again):  # its own queue is full at some point
        for _ in range(20_000):
            lazy.socket.send_multipart(
                [ID, wire.encode_message(lazy.message(wire.Heartbeat))], zmq.NOBLOCK
            )
    assert isinstance(busy.step(1), wire.Ack)
    assert served(station)
