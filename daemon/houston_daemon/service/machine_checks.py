"""What `houston doctor` looks at beneath Houston: disk, clock, descriptors, sockets, /tmp."""

import ctypes
import os
import pwd
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.service.filesystem import NETWORK, kind, options
from houston_daemon.service.finding import Finding, ok
from houston_shared.config import Loaded
from houston_shared.redaction import SHORTEST
from houston_shared.secret_values import install, redactor, rules, too_short

FREE_MB = 2_000
"""Less free space than this is a warning: a long rollout with terminals fills it."""
FREE_INODES = 100_000
"""Fewer are a warning: workspaces and their snapshots are many small files."""
EARLIEST = 1_735_689_600
"""2025-01-01: a clock before this was never set."""
CONSOLES = 100
FDS_OF_A_CONSOLE, FDS_OF_A_ROLLOUT, FDS_BESIDE = 4, 6, 200
"""Descriptors that the daemon holds at most for each, and for all the rest."""
_TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""
_TIMEX_BYTES = 256


def home(loaded: Loaded) -> Iterator[Finding]:
    """The home: on a disk of this machine, writable, with room for bytes and files."""
    path = loaded.home.path
    nearest = next(place for place in (path, *path.parents) if place.exists())
    found = kind(path)
    if (owner := _other_owner(nearest)) and nearest == path:
        yield _guest(path, owner)
    elif found in NETWORK:
        yield Finding("home", "fail", f"{path} on {found}", "Name a --home on a local disk.")
    elif not _writable(nearest):
        yield Finding("home", "fail", f"{path} cannot be written", "Name another --home.")
    elif found.startswith("fuse"):
        step = "Make sure that it is no network file system: locks must hold on it."
        yield Finding("home", "warn", f"{path} on {found}", step)
    else:
        yield ok("home", f"{path} on {found}")
    yield _room(nearest)


def _other_owner(folder: Path) -> str:
    """Whose it is, where that is neither this user nor root."""
    uid = folder.stat().st_uid
    if os.geteuid() in (0, uid):
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _guest(path: Path, owner: str) -> Finding:
    """For a member of the group: what is checked here is its owner's to mend."""
    if os.access(path, os.R_OK | os.X_OK):
        return ok("home", f"{path} is {owner}'s, and this user may read it")
    step = f"Ask {owner} to set `daemon.group` to a group of yours."
    return Finding("home", "fail", f"{path} is {owner}'s, and closed to this user", step)


def _room(folder: Path) -> Finding:
    free, files = shutil.disk_usage(folder).free // 1_000_000, os.statvfs(folder)
    said = f"{free:,} MB free"
    if files.f_files:  # some file systems (btrfs) do not count them
        said += f", {files.f_favail:,} inodes"
    if free < FREE_MB or (files.f_files and files.f_favail < FREE_INODES):
        return Finding("space", "warn", said, "Make room: rollouts pause when it is full.")
    return ok("space", said)


def clock(_: Loaded) -> Iterator[Finding]:
    """The clock: set, and synchronised as far as the kernel knows."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    if time.time() < EARLIEST:
        yield Finding("clock", "fail", now, "Set the clock of this machine.")
    elif _synchronised():
        yield ok("clock", f"{now}, synchronised")
    else:
        step = "Run an NTP client (systemd-timesyncd, chrony); order is kept without one."
        yield Finding("clock", "warn", f"{now}, not known to be synchronised", step)


def _synchronised() -> bool:
    """What adjtimex(2) says; it is asked and changes nothing (modes is 0)."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = int(ctypes.CDLL(None, use_errno=True).adjtimex(timex))
    return state not in (-1, _TIME_ERROR)


def descriptors(loaded: Loaded) -> Iterator[Finding]:
    """Open files: enough for every rollout and a hundred consoles (the soft limit is raised)."""
    rollouts = loaded.config.daemon.max_rollouts
    needed = FDS_BESIDE + FDS_OF_A_ROLLOUT * rollouts + FDS_OF_A_CONSOLE * CONSOLES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    said = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    if hard != resource.RLIM_INFINITY and hard < needed:
        step = f"Raise it to {needed:,} at least: ulimit -Hn, or LimitNOFILE= in its unit."
        yield Finding("files", "warn", f"at most {said} open files", step)
    else:
        yield ok("files", f"at most {said} open files; {needed:,} for {rollouts} rollouts")


def sockets(loaded: Loaded) -> Iterator[Finding]:
    """Where the sockets are: an ipc path ends at 107 bytes."""
    run = loaded.home.run
    if run.parent == loaded.home.path:
        yield ok("sockets", str(run))
    elif next(loaded.home.run_places(), None) is None and loaded.home.noted_run is None:
        step = "Set XDG_RUNTIME_DIR to a short folder of yours, or name a shorter --home."
        yield Finding("sockets", "fail", "no folder with a short enough path", step)
    else:
        yield ok("sockets", f"{run} (the home's path is too long for them)")


def redacted(loaded: Loaded) -> Iterator[Finding]:
    """Secrets of this shell's environment, and those that are too short to be taken out of text."""
    install(loaded.config)
    said = f"{len(redactor().names)} variables of this environment are redacted"
    if short := too_short(os.environ, rules(loaded.config)):
        step = f"Use values of at least {SHORTEST} characters, or name them in `secrets.ignore`."
        yield Finding("secrets", "warn", f"{said}; too short for it: {', '.join(short)}", step)
    else:
        yield ok("secrets", said)


def temporary(_: Loaded) -> Iterator[Finding]:
    """The folder for temporary files: writable, and programs may run in it."""
    folder = Path(tempfile.gettempdir())
    if not _writable(folder):
        yield Finding("tmp", "fail", f"{folder} cannot be written", "Set TMPDIR to another.")
    elif "noexec" in options(folder):
        step = "Set TMPDIR to another folder where builds (pip, triton) run what they made."
        yield Finding("tmp", "warn", f"{folder} is mounted noexec", step)
    else:
        yield ok("tmp", str(folder))


def _writable(folder: Path) -> bool:
    """Whether a file can be made in `folder` (asking is not enough on read-only mounts)."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
