"""Frames of a video, taken by ffmpeg shut in the rollout's sandbox without a network.

The video was made by others: ffmpeg may open the file itself and nothing else, and has limits of
time and output. Knows no agent.
"""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from houston_daemon.environments import interpreter
from houston_daemon.environments.workstation.parse.converter import Unreadable
from houston_daemon.hosts.protocol import Host

MOST = 32
"""Frames that one request holds."""
_SECONDS = 120.0
_OUTPUT = 64_000_000
_WIDTH = 1_024
_START = re.compile(rb"\xff\xd8\xff")
"""The start of a JPEG; within one, 0xFF in the picture's data is followed by 0x00."""


class Frames(NamedTuple):
    """Frames in order, as JPEG."""

    pictures: list[bytes]
    more: bool
    """Whether the video goes on after the last of them."""


async def frames(host: Host, file: str, interval: int) -> Frames:
    """Every `interval`-th frame of `file`, a path as the sandbox shows it. Raises Unreadable."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise Unreadable(
            "This node has no ffmpeg, which takes the frames of a video; the operator can "
            "install it. Pictures of it can be looked at with parse_image."
        )
    program = os.path.realpath(program)  # its folder is mapped, not one that a link to it lies in
    wanted = f"framestep={interval},scale='min({_WIDTH},iw)':-2"
    command = [program, "-v", "error", "-nostdin", "-protocol_whitelist", "file,pipe"]
    command += ["-i", f"file:{file}", "-an", "-sn", "-vf", wanted, "-frames:v", str(MOST + 1)]
    command += ["-f", "image2pipe", "-c:v", "mjpeg", "-q:v", "5", "pipe:1"]
    done = await host.spawn(
        command,
        seconds=_SECONDS,
        writable=False,
        extra_read=interpreter.unseen(Path(program).parent),
        output_limit=_OUTPUT,
        network=False,
    )
    if done.exit_code is None:
        raise Unreadable(f"The frames could not be taken within {_SECONDS:g} s.")
    # Where there is no start there is no picture, whatever else was printed.
    starts = [found.start() for found in _START.finditer(done.stdout)]
    ends = [*starts[1:], len(done.stdout)]
    pictures = [done.stdout[a:b] for a, b in zip(starts, ends, strict=False)]
    if done.cut:
        pictures = pictures[:-1]
    if not pictures:
        raise Unreadable("The file holds no video that ffmpeg can read.")
    return Frames(pictures[:MOST], len(pictures) > MOST or done.cut)
