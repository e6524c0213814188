"""Somebody else on this machine: a real process of another Unix user that speaks to a socket.

Only root can become another user; `needs_root` skips where the tests are not root.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from houston_shared import wire

NOBODY = 65534
"""uid of `nobody`, and gid of the group that tests attach people by."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Imports come first: the other user may not be able to read the interpreter's library.
_SPEAKER = """
import os, sys, zmq
endpoint, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = zmq.Context()
os.setgroups([]); os.setgid(gid); os.setuid(uid)
socket = context.socket(zmq.DEALER)
if len(sys.argv) > 4:
    socket.setsockopt(zmq.IDENTITY, bytes.fromhex(sys.argv[4]))
socket.connect(endpoint)
for line in sys.stdin.read().split():
    socket.send_multipart([b"12345678", bytes.fromhex(line)])
    if not socket.poll(5000):
        print("")
        break
    print(socket.recv_multipart()[1].hex())
context.destroy(linger=0)
"""


def speak(
    endpoint: str, uid: int, gid: int, messages: Sequence[Any], identity: bytes = b""
) -> list[Any]:
    """What another user hears on `control` to each message (wire messages or bytes); None: silence.

    Nothing is said after a silence.
    """
    bodies = [one if isinstance(one, bytes) else wire.encode_message(one) for one in messages]
    named = [identity.hex()] if identity else []
    done = subprocess.run(
        [sys.executable, "-c", _SPEAKER, endpoint, str(uid), str(gid), *named],
        input="\n".join(body.hex() for body in bodies),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.split("\n")[: len(bodies)]
    return [wire.control_reply_decoder.decode(bytes.fromhex(one)) if one else None for one in lines]


@contextmanager
def open_place() -> Iterator[Path]:
    """A folder that everybody may enter (pytest's own is the owner's alone)."""
    with tempfile.TemporaryDirectory(prefix="houston-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
