"""Files of the workspace as the parse actions take them: found, measured, read.

Runs in a thread; reaches the workspace through `Confined` only.
"""

import os
import stat

from houston_daemon.environments.workstation.files.confine import Confined, PathRefused
from houston_daemon.environments.workstation.files.window import reader
from houston_daemon.environments.workstation.parse.converter import Unreadable

MOST_DOCUMENT = 512 << 20
MOST_VIDEO = 16 << 30
MOST_SOUND = 25 << 20
"""What OpenAI's endpoint takes."""
MOST_PICTURE = 20 << 20
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def located(confined: Confined, path: str, most: int = MOST_DOCUMENT) -> str:
    """The place of a regular file relative to the workspace, links resolved.

    Raises PathRefused, and Unreadable for one that is empty or too large.
    """
    with confined.file(path) as (found, place):
        _check_size(os.fstat(found).st_size, most)
        return place.path


def content(confined: Confined, path: str, most: int) -> bytes:
    """All bytes of a file. Raises PathRefused, and Unreadable beyond `most` bytes."""
    with confined.file(path) as (found, _), reader(found) as file:
        data = file.read(most + 1)  # it may be growing
    _check_size(len(data), most)
    return data


def picture_kind(data: bytes) -> str:
    """The media type of a picture by its first bytes. Raises Unreadable."""
    for start, kind in _KINDS.items():
        if data.startswith(start):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise Unreadable("It is no PNG, JPEG, GIF or WebP picture.")


def check_target(confined: Confined, path: str) -> None:
    """Refuse a place that cannot be written before the work is done. Raises PathRefused."""
    try:
        with confined.place(path) as place:
            found = os.lstat(place.name, dir_fd=place.folder)
    except PathRefused:
        with confined.place(path, make_folders=True):
            return
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"{path!r} is no regular file and is not replaced.")


def _check_size(size: int, most: int) -> None:
    if not size:
        raise Unreadable("The file is empty.")
    if size > most:
        raise Unreadable(f"The file is larger than {most >> 20} MB.")
