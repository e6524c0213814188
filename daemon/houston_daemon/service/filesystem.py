"""What kind of file system a folder lies on: flock and SQLite's WAL need one of this machine."""

from pathlib import Path

from houston_shared.errors import ConfigurationError
from houston_shared.home import Home

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.ceph", "9p", "wekafs", "orangefs"}
    | {"fuse.juicefs", "fuse.gcsfuse", "fuse.rclone", "fuse.goofys", "gfs2", "ocfs2", "coda"}
)
"""Types whose locks or shared memory do not hold across machines."""
MOUNTS = Path("/proc/self/mountinfo")


def kind(path: Path, mounts: Path = MOUNTS) -> str:
    """Type of the file system of `path` (of its nearest existing parent), e.g. `ext4`."""
    return _mount(path, mounts)[0]


def options(path: Path, mounts: Path = MOUNTS) -> frozenset[str]:
    """Options that the file system of `path` is mounted with, e.g. `noexec`."""
    return _mount(path, mounts)[1]


def _mount(path: Path, mounts: Path) -> tuple[str, frozenset[str]]:
    """Type and options of the mount that `path` lies on, from proc_pid_mountinfo(5)."""
    target = str(_existing(path))
    best, found = "", ("unknown", frozenset[str]())
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        point = fields[4].encode().decode("unicode_escape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, (after.split()[0], frozenset(fields[5].split(",")))
    return found


def refuse_network(home: Home) -> None:
    """Raise ConfigurationError when the home lies on a network file system."""
    if (found := kind(home.path)) in NETWORK:
        raise ConfigurationError(
            f"The home {home.path} lies on {found}, where locks and SQLite's log do not hold.",
            "Nothing was started.",
            "Name a --home on a disk of this machine.",
        )


def _existing(path: Path) -> Path:
    """The nearest folder of `path` that exists, without links."""
    while not path.exists():
        path = path.parent
    return path.resolve()
