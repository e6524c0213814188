"""Prepares the home before a daemon runs on it: file system, folders, sockets' folder, who gets in.

Refuses network file systems, where flock and SQLite's WAL do not work reliably. Creates home and
logs, and for a home with a long path a safe folder for its sockets. Checks that users and groups in
`[roles]` exist and names those whom the home's group keeps out. The recorder decides what a role
may do, and sets modes of files in the home. Light to import, because the starting command needs it.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.recorder.identity_and_roles import RoleBook
from houston_shared.atomic_file import write_atomically
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import unusable_home

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.ceph", "9p", "wekafs", "orangefs"}
    | {"fuse.juicefs", "fuse.gcsfuse", "fuse.rclone", "fuse.goofys", "gfs2", "ocfs2", "coda"}
)
"""Types whose locks or shared memory do not hold across machines."""
MOUNTINFO_FILE = Path("/proc/self/mountinfo")


def filesystem_type(path: Path, mounts: Path = MOUNTINFO_FILE) -> str:
    """Type of the file system of `path` (of its nearest existing parent), e.g. `ext4`."""
    return _find_mount(path, mounts)[0]


def mount_options(path: Path, mounts: Path = MOUNTINFO_FILE) -> frozenset[str]:
    """Options that the file system of `path` is mounted with, e.g. `noexec`."""
    return _find_mount(path, mounts)[1]


def _find_mount(path: Path, mounts: Path) -> tuple[str, frozenset[str]]:
    """Type and options of the mount that `path` lies on, from proc_pid_mountinfo(5)."""
    target = str(_nearest_existing(path))
    best, mount = "", ("unknown", frozenset[str]())
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        point = fields[4].encode().decode("unicode_escape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, mount = point, (after.split()[0], frozenset(fields[5].split(",")))
    return mount


def refuse_network_home(home: Home) -> None:
    """Raise ConfigurationError when the home lies on a network file system."""
    if (kind := filesystem_type(home.path)) in NETWORK_FILESYSTEMS:
        raise ConfigurationError(
            f"The home {home.path} is on {kind}, where locks and SQLite's log are not reliable.",
            "Nothing was started.",
            "Name a --home on a disk of this machine.",
        )


def _nearest_existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path.resolve()


def make_home_folders(home: Home) -> None:
    """Make the home and its logs; raises HoustonError when the home cannot be written."""
    try:
        for folder in (home.path, home.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable_home(home, problem) from None


def prepare_socket_folder(home: Home, group: str) -> None:
    """Make the folder and name it in `home.run_note`; nothing to do for a home with a short path.

    Called by who holds the home's lock. The place of the last daemon is kept where it can be.
    group: Unix group whose members must reach the sockets; empty for the owner only.
    Raises HoustonError when no place can be had, or when it belongs to somebody else.
    """
    if home.run.parent == home.path:
        return
    gid = _group_id(group)
    for place in _socket_folder_candidates(home):
        if not os.access(place.parent, os.W_OK | os.X_OK) or not _is_passable_for(
            gid, place.parent
        ):
            continue
        _make_socket_folder(place)
        if place != home.noted_run:
            _write_run_note(home, place)
        return
    raise HoustonError(
        f"The path of {home.path} is too long for sockets, and no other folder can hold them.",
        "The daemon was not started.",
        "Set XDG_RUNTIME_DIR to a folder of yours, or name a --home with a shorter path.",
    )


def _socket_folder_candidates(home: Home) -> Iterator[Path]:
    if home.noted_run:
        yield home.noted_run
    yield from home.run_places()


def _group_id(group: str) -> int | None:
    """None also for an unknown group: the recorder says so."""
    try:
        return grp.getgrnam(group).gr_gid if group else None
    except KeyError:
        return None


def _is_passable_for(gid: int | None, root: Path) -> bool:
    """Whether members of the group may pass through `root` and all above it."""
    if gid is None:
        return True
    for folder in (root, *root.resolve().parents):
        status = folder.stat()
        bit = stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
        if not status.st_mode & bit:
            return False
    return True


def _make_socket_folder(place: Path) -> None:
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()
    except OSError as problem:
        raise _unusable_socket_folder(place, problem.strerror or "unknown") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise _unusable_socket_folder(place, "it is not a folder of this user")
    place.chmod(0o700 | stat.S_IMODE(status.st_mode) & 0o2050)


def _unusable_socket_folder(place: Path, reason: str) -> HoustonError:
    return HoustonError(
        f"The folder {place} for the daemon's sockets cannot be used: {reason}.",
        "The daemon was not started.",
        "Remove it, set XDG_RUNTIME_DIR to a folder of yours, or name a shorter --home.",
    )


def _write_run_note(home: Home, place: Path) -> None:
    """Members of the group look here; the home keeps others out."""
    try:
        write_atomically(home.run_note, f"{place}\n".encode(), mode=0o644)
    except OSError as problem:
        raise unusable_home(home, problem) from None


def check_roles(loaded: LoadedConfiguration) -> None:
    """Raise ConfigurationError, with the file, for a user or group that this machine lacks."""
    settings = loaded.config
    try:
        RoleBook(settings.roles, settings.daemon.group)
    except ConfigurationError as problem:
        raise ConfigurationError(
            f"{loaded.source}: {problem.cause}",
            problem.effect,
            f"Correct it in {loaded.source}; `getent passwd` lists users, `getent group` groups.",
        ) from None


def users_kept_out(loaded: LoadedConfiguration) -> list[str]:
    """Users in `[roles]` who cannot enter the home's folder, as they are not in its group."""
    group, roles = loaded.config.daemon.group, loaded.config.roles
    named = dict.fromkeys((*roles.operators, *roles.annotators, *roles.viewers))
    return [name for name in named if not name.startswith("@") and not _is_let_in(name, group)]


def kept_out_warning(loaded: LoadedConfiguration) -> str:
    """One sentence about them, with what to do; empty where there are none."""
    if not (users := users_kept_out(loaded)):
        return ""
    group = loaded.config.daemon.group
    names = ", ".join(users)
    if not group:
        return f"[roles] names {names}, but without [daemon] group no other user can connect."
    return (
        f"[roles] names {names}, not in the group {group}: they cannot connect; as root: "
        f"usermod -aG {group} USER, then they log in again."
    )


def _is_let_in(name: str, group: str) -> bool:
    try:
        user = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        return name.isdecimal()  # a number that no password file knows: nobody can tell
    if user.pw_uid in (0, os.geteuid()):
        return True
    gid = _group_id(group)
    return gid is not None and gid in os.getgrouplist(user.pw_name, user.pw_gid)
