"""Files of the workspace as the parse actions take them: found, measured, read; video frames."""

import asyncio
import os
import posixpath
import re
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.workstation.confined_paths import ConfinedFolder, PathRefused
from houston_daemon.environments.workstation.document_converter import (
    Converted,
    Converter,
    Kind,
    Unreadable,
)
from houston_daemon.environments.workstation.file_window import reader
from houston_daemon.hosts.host_protocol import RolloutHost

MAX_DOCUMENT_BYTES = 512 << 20
MAX_VIDEO_BYTES = 16 << 30
MAX_AUDIO_BYTES = 25 << 20
"""What OpenAI's endpoint takes."""
MAX_IMAGE_BYTES = 20 << 20
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def resolve_file(confined: ConfinedFolder, path: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """The place of a regular file relative to the workspace, links resolved.

    Raises PathRefused, and Unreadable for one that is empty or too large.
    """
    with confined.file(path) as (descriptor, place):
        _check_size(os.fstat(descriptor).st_size, max_bytes)
        return place.path


def content(confined: ConfinedFolder, path: str, max_bytes: int) -> bytes:
    """All bytes of a file. Raises PathRefused, and Unreadable beyond `max_bytes` bytes."""
    with confined.file(path) as (descriptor, _), reader(descriptor) as file:
        data = file.read(max_bytes + 1)  # it may be growing
    _check_size(len(data), max_bytes)
    return data


def picture_kind(data: bytes) -> str:
    """The media type of a picture by its first bytes. Raises Unreadable."""
    for start, kind in _KINDS.items():
        if data.startswith(start):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise Unreadable("It is no PNG, JPEG, GIF or WebP picture.")


def check_target(confined: ConfinedFolder, path: str) -> None:
    """Refuse a place that cannot be written before the work is done. Raises PathRefused."""
    try:
        with confined.place(path) as place:
            status = os.lstat(place.name, dir_fd=place.folder)
    except PathRefused:
        with confined.place(path, make_folders=True):
            return
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{path!r} is no regular file and is not replaced.")


def _check_size(size: int, max_bytes: int) -> None:
    if not size:
        raise Unreadable("The file is empty.")
    if size > max_bytes:
        raise Unreadable(f"The file is larger than {max_bytes >> 20} MB.")


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


async def frames(host: RolloutHost, file: str, interval: int) -> Frames:
    """Every `interval`-th frame of `file`, a path as the sandbox shows it. Raises Unreadable."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise Unreadable(
            "This node has no ffmpeg, which takes the frames of a video; the operator can "
            "install it. Pictures of it can be looked at with parse_image."
        )
    program = os.path.realpath(program)  # its folder is mapped, not one that a link to it lies in
    filters = f"framestep={interval},scale='min({_WIDTH},iw)':-2"
    command = [program, "-v", "error", "-nostdin", "-protocol_whitelist", "file,pipe"]
    command += ["-i", f"file:{file}", "-an", "-sn", "-vf", filters, "-frames:v", str(MOST + 1)]
    command += ["-f", "image2pipe", "-c:v", "mjpeg", "-q:v", "5", "pipe:1"]
    result = await host.spawn(
        command,
        seconds=_SECONDS,
        writable=False,
        extra_read=local_host_setup.unmapped_paths(Path(program).parent),
        output_limit=_OUTPUT,
        network=False,
    )
    if result.exit_code is None:
        raise Unreadable(f"The frames could not be taken within {_SECONDS:g} s.")
    # Where there is no start there is no picture, whatever else was printed.
    starts = [match.start() for match in _START.finditer(result.stdout)]
    ends = [*starts[1:], len(result.stdout)]
    pictures = [result.stdout[a:b] for a, b in zip(starts, ends, strict=False)]
    if result.cut:
        pictures = pictures[:-1]
    if not pictures:
        raise Unreadable("The file holds no video that ffmpeg can read.")
    return Frames(pictures[:MOST], len(pictures) > MOST or result.cut)


class LocalDocuments:
    """Files of one workspace that are no text, on this machine. Paths are the agent's.

    Each call raises PathRefused for a path that is not reached, Unreadable for what cannot be read.
    """

    def __init__(self, host: RolloutHost, converter: Converter) -> None:
        self._host = host
        self._confined = ConfinedFolder(host.workspace, host.inside)
        self._converter = converter

    async def check_target(self, path: str) -> None:
        """Refuse a place that cannot be written."""
        await asyncio.to_thread(check_target, self._confined, path)

    async def convert(self, kind: Kind, path: str) -> Converted:
        """A document as Markdown; what it includes is looked for beside it."""
        place = await asyncio.to_thread(resolve_file, self._confined, path)
        inside = posixpath.join(self._host.inside, place)
        return await self._converter.convert(kind, inside, cwd=posixpath.dirname(inside))

    async def content(self, path: str, max_bytes: int) -> bytes:
        """All bytes of a file of at most `max_bytes`."""
        return await asyncio.to_thread(content, self._confined, path, max_bytes)

    async def frames(self, path: str, interval: int) -> Frames:
        """Every `interval`-th frame of a video."""
        place = await asyncio.to_thread(resolve_file, self._confined, path, MAX_VIDEO_BYTES)
        return await frames(self._host, posixpath.join(self._host.inside, place), interval)
