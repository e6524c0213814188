"""The home's folders with their modes, and `chain.head`, the newest event that is vouched for.

Folders are the owner's alone (0700) or open to the annotators' group (02750), and made durably. The
head file is written after the commit it names, at most every second and at a clean stop, so that a
journal whose end was cut is noticed. Databases are opened in `writer_connection`.
"""

import grp
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from houston_shared import atomic_file
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.faults import point
from houston_shared.home import Home


def sync_parent_folders(folder: Path) -> None:
    """Make a folder's own name durable, and the names of those above it on its file system.

    Raises OSError. A folder that this user may not read was not made by this user.
    """
    device = folder.stat().st_dev
    for above in folder.resolve().parents:
        if above.stat().st_dev != device:
            return
        if os.access(above, os.R_OK):
            atomic_file.sync_to_disk(above)


def prepare_home(home: Home, group: str) -> None:
    """Make the home and what lies in it, durably; raises HoustonError when it is not possible."""
    gid = _find_group_id(group)
    mode = 0o700 if gid is None else 0o2750
    try:
        for folder in (home.path, home.run, home.blobs, home.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_folder_owner(folder)
            if gid is not None:
                _share_existing_files(home, folder, gid)  # first: cut short, it is done again
                os.chown(folder, -1, gid)
            folder.chmod(mode)
        _create_databases(home, gid)
        atomic_file.sync_to_disk(home.path)
        sync_parent_folders(home.path)
    except OSError as problem:
        raise HoustonError(
            f"The home {home.path} cannot be prepared: {problem.strerror} ({problem.filename}).",
            "The daemon was not started.",
            "Make it writable for this user, or name another --home.",
        ) from None


def _share_existing_files(home: Home, folder: Path, gid: int) -> None:
    """Let the group read what was written before it was let in.

    Of blobs only where the folder is not yet the group's: there may be very many. Logs of
    workers and engines stay their owner's; the daemon's of this start has been begun already.
    """
    files: Iterable[Path] = ()
    if folder == home.logs:
        files = folder.glob("daemon.log*")
    elif folder == home.blobs and folder.stat().st_gid != gid:
        files = folder.rglob("*")
    for path in files:
        os.chown(path, -1, gid)
        path.chmod(0o2750 if path.is_dir() else 0o640)


def remake_run_folder(home: Home, group: str) -> None:
    """Make the sockets' folder again, with its mode; raises OSError."""
    gid = _find_group_id(group)
    home.run.mkdir(mode=0o700, exist_ok=True)
    _check_folder_owner(home.run)
    if gid is not None:
        os.chown(home.run, -1, gid)
    home.run.chmod(0o700 if gid is None else 0o2750)


def share_socket(home: Home, name: str, group: str) -> None:
    """Give a bound socket its mode: connecting needs write permission."""
    path = home.run / f"{name}.sock"
    gid = _find_group_id(group)
    if gid is not None:
        os.chown(path, -1, gid)
    path.chmod(0o600 if gid is None else 0o660)


def _create_databases(home: Home, gid: int | None) -> None:
    """Create the database file with its mode; SQLite gives -wal and -shm the same.

    Those that a daemon which was killed has left are given it here.
    """
    for database in (home.database, home.search_database):
        database.touch(mode=0o600)
    for path in home.path.glob("*.db*"):
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(0o600 if gid is None else 0o640)


def _check_folder_owner(folder: Path) -> None:
    """A folder of somebody else (a guessed name under /tmp) is never used."""
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(1, "it belongs to another user", str(folder))


def _find_group_id(group: str) -> int | None:
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigurationError(
            f"`daemon.group` names {group!r}, which is not a group of this machine.",
            "The daemon was not started.",
        ) from None


class ChainHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest event that is vouched for."""

    seq: int
    chain: str
    """Its chain value, hex."""

    @property
    def value(self) -> bytes:
        """The chain value."""
        return bytes.fromhex(self.chain)


def read_chain_head(home: Home) -> ChainHead | None:
    """The head, None when there is no file; raises HoustonError when it is damaged."""
    try:
        data = home.head_file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise HoustonError(
            f"{home.head_file} cannot be read ({problem.strerror}).",
            "Nothing was opened.",
            "Move it away, then: houston verify",
        ) from None
    try:
        head = msgspec.json.decode(data, type=ChainHead)
        sound = (
            data == _encode_chain_head(head)
            and len(head.value) == 32
            and head.value.hex() == head.chain
        )
    except (msgspec.MsgspecError, ValueError):
        sound = False
    if not sound:
        raise HoustonError(
            f"{home.head_file} is damaged.", "Nothing was opened.", "houston verify"
        ) from None
    return head


def write_chain_head(home: Home, seq: int, chain: bytes) -> None:
    """Replace the file atomically and durably; raises OSError."""
    point("recorder.head.before")
    with atomic_file.open_atomically(
        home.head_file,
        before_rename=lambda _: point("recorder.head.synced"),
        after_rename=lambda: point("recorder.head.named"),
    ) as file:
        file.write(_encode_chain_head(ChainHead(seq, chain.hex())))


def _encode_chain_head(head: ChainHead) -> bytes:
    return msgspec.json.encode(head) + b"\n"
