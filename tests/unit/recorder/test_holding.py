"""A large body is on disk when its message is stored, whatever was erased meanwhile."""

import threading
from pathlib import Path
from typing import cast

from houston_daemon.recorder.holding import Holding
from houston_daemon.recorder.sockets import Frames, Router
from houston_daemon.recorder.work import FromWorker
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.store import blobs
from tests.support.recorder_client import result


def test_an_erasure_of_the_same_content_takes_nothing_from_what_comes(tmp_path: Path) -> None:
    home, woken = Home(tmp_path), threading.Event()
    home.blobs.mkdir(parents=True)
    message = wire.StoreResult(
        rollout="r", lease=1, step=1, attempt=1, index=0, result=result(1, text="log " * 20_000)
    )
    frames = Frames(b"w", b"0" * 8, wire.encode(message), None)
    holding = Holding(home, woken.set)
    assert holding.put(FromWorker(cast("Router", None), frames, message)) is None
    assert woken.wait(20)
    (written,) = (path for path in home.blobs.rglob("*") if path.is_file())
    written.unlink()
    (work,) = holding.ready()
    holding.close()
    assert isinstance(work, FromWorker)
    assert work.body is not None
    assert work.body.blob is not None
    assert blobs.read(home, work.body.blob) == work.body.data
