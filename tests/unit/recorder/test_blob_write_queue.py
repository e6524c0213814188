"""A large body is on disk when its message is stored, whatever was erased meanwhile."""

import threading
from pathlib import Path
from typing import cast

from houston_daemon.recorder.message_dispatch import WorkerMessage
from houston_daemon.recorder.message_receiver import BlobWriteQueue
from houston_daemon.recorder.recorder_sockets import ReceivedFrames, RouterSocket
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.store import store_reader
from tests.support.recorder_client import result


def test_an_erasure_of_the_same_content_takes_nothing_from_what_comes(tmp_path: Path) -> None:
    home, woken = Home(tmp_path), threading.Event()
    home.blobs.mkdir(parents=True)
    message = wire.StoreResult(
        rollout="r", lease=1, step=1, attempt=1, index=0, result=result(1, text="log " * 20_000)
    )
    frames = ReceivedFrames(b"w", b"0" * 8, wire.encode_message(message), None)
    holding = BlobWriteQueue(home, woken.set)
    assert holding.submit(WorkerMessage(cast("RouterSocket", None), frames, message)) is None
    assert woken.wait(20)
    (written,) = (path for path in home.blobs.rglob("*") if path.is_file())
    written.unlink()
    (work,) = holding.take_ready()
    holding.close()
    assert isinstance(work, WorkerMessage)
    assert work.body is not None
    assert work.body.blob is not None
    assert store_reader.read_blob(home, work.body.blob) == work.body.data
