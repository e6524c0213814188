"""The folder of a long home's sockets: chosen by the daemon, made safe, and written into the home.

Under a shared folder such as /tmp anybody may have made the name first: what is no folder of this
user is refused. Modes of what lies in the home are the recorder's business.
"""

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.lock import unusable


def settle(home: Home, group: str) -> None:
    """Make the folder and name it in `home.run_note`; nothing to do for a home with a short path.

    Called by who holds the home's lock. The place of the last daemon is kept where it can be.
    group: Unix group whose members must reach the sockets; empty for the owner only.
    Raises HoustonError when no place can be had, or when it belongs to somebody else.
    """
    if home.run.parent == home.path:
        return
    gid = _gid(group)
    for place in _places(home):
        if not os.access(place.parent, os.W_OK | os.X_OK) or not _open_to(gid, place.parent):
            continue
        _make(place)
        if place != home.noted_run:
            _write(home, place)
        return
    raise HoustonError(
        f"There is no folder for the sockets of {home.path}, whose path is too long for them.",
        "The daemon was not started.",
        "Set XDG_RUNTIME_DIR to a folder of yours, or name a --home with a shorter path.",
    )


def _places(home: Home) -> Iterator[Path]:
    if home.noted_run:
        yield home.noted_run
    yield from home.run_places()


def _gid(group: str) -> int | None:
    """None also for an unknown group: the recorder says so."""
    try:
        return grp.getgrnam(group).gr_gid if group else None
    except KeyError:
        return None


def _open_to(gid: int | None, root: Path) -> bool:
    """Whether members of the group may pass through `root` and all above it."""
    if gid is None:
        return True
    for folder in (root, *root.resolve().parents):
        found = folder.stat()
        through = stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if not found.st_mode & through:
            return False
    return True


def _make(place: Path) -> None:
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError as problem:
        raise _refused(place, problem.strerror or "unknown") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise _refused(place, "it is no folder of this user")
    place.chmod(0o700 | stat.S_IMODE(found.st_mode) & 0o2050)


def _refused(place: Path, why: str) -> HoustonError:
    return HoustonError(
        f"The folder {place} for the daemon's sockets cannot be used: {why}.",
        "The daemon was not started.",
        "Remove it, set XDG_RUNTIME_DIR to a folder of yours, or name a shorter --home.",
    )


def _write(home: Home, place: Path) -> None:
    """Members of the group look here; the home keeps others out."""
    beside = home.run_note.with_suffix(".new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(f"{place}\n")
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        beside.replace(home.run_note)
    except OSError as problem:
        raise unusable(home, problem) from None
