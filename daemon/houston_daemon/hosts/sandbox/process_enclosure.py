"""The commands that run before bubblewrap: control groups, file size, Landlock, shared network.

All later processes inherit their settings, and if a step fails, nothing is started. A few words of
shell join the groups and open filter and settings; a short Python program scopes abstract sockets
where the sandbox shares the machine's network; `nsenter` joins the one loopback network of a
rollout's sessions. `sandbox_profile` defines what a sandbox may see.
"""

import ctypes
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from houston_daemon.hosts import process_table
from houston_daemon.hosts.process_table import MARK_VARIABLE, ProcessKey
from houston_shared import atomic_file

FILTER_DESCRIPTOR = 8
"""The descriptor of the filter; a terminal's pipe is 9."""
SETTINGS_DESCRIPTOR = 7
"""The descriptor of further arguments for bubblewrap."""
_ULIMIT_BLOCK_BYTES = 512
"""POSIX: `ulimit -f` counts in blocks of this many bytes."""
_ENCLOSE_SCRIPT = (
    'set -e; [ "$1" = 0 ] || ulimit -f "$1"; [ -z "$2" ] || exec 8<"$2"; '
    '[ -z "$3" ] || { exec 7<"$3"; rm -f -- "$3"; }; n=$4; shift 4; '
    'while [ "$n" -gt 0 ]; do echo $$ >"$1"; shift; n=$((n - 1)); done; exec "$@"'
)

_TASK_LIMIT_SCRIPT = 'ulimit -u "$1"; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a process is given before it becomes the sandbox."""

    doors: tuple[Path, ...] = ()
    """`cgroup.procs` of the groups to join."""
    file_bytes: int = 0
    """Most bytes of one file; 0 for no limit."""
    filter: Path | None = None
    """The seccomp program, None for none."""
    settings: Path | None = None
    """Arguments that no command line may show, each ended by NUL; removed when it is opened."""

    tasks: int = 0
    """Most processes and threads of one sandbox of an ordinary user; 0 where groups limit them."""

    def inside(self, command: Sequence[str]) -> list[str]:
        """The argument list that runs `command` in a sandbox and limits its processes and threads.

        If set outside, the limit would count all processes of the user (ucounts, Linux 5.14); in
        the sandbox' user namespace, it counts those in there. For root it counts nothing.
        """
        if not self.tasks or not os.getuid():
            return list(command)
        return ["/bin/bash", "-c", _TASK_LIMIT_SCRIPT, "limit", str(self.tasks), *command]

    def around(self, command: Sequence[str]) -> list[str]:
        """The argument list that starts `command` enclosed."""
        if not (self.doors or self.file_bytes or self.filter or self.settings):
            return list(command)
        blocks = str(-(-self.file_bytes // _ULIMIT_BLOCK_BYTES))
        filter_file = str(self.filter or "")
        settings = str(self.settings or "")
        head = ["/bin/sh", "-c", _ENCLOSE_SCRIPT, "enclose", blocks, filter_file, settings]
        return [*head, str(len(self.doors)), *map(str, self.doors), *command]


_LANDLOCK_ABI = 6
_CREATE_RULESET = 444
_VERSION_FLAG = 1
_LANDLOCK_PROGRAM = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ruleset = (ctypes.c_uint64 * 3)(0, 0, 1)  # no files, no ports; LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
descriptor = libc.syscall(444, ruleset, 24, 0)
if descriptor < 0 or libc.prctl(38, 1, 0, 0, 0) or libc.syscall(446, descriptor, 0):
    sys.exit(f"landlock: {os.strerror(ctypes.get_errno())}")
os.close(descriptor)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Numbers of landlock_create_ruleset and landlock_restrict_self are the same everywhere; 38 is
PR_SET_NO_NEW_PRIVS, which an ordinary user must have set."""


def landlock_command() -> list[str]:
    """The words before bubblewrap's that scope abstract sockets; empty if the kernel does not
    support it."""
    return [sys.executable, "-I", "-S", "-c", _LANDLOCK_PROGRAM] if _can_scope_sockets() else []


@lru_cache(maxsize=1)
def _can_scope_sockets() -> bool:
    program = shutil.which("bwrap")
    if program is None or Path(program).stat().st_mode & stat.S_ISUID:
        return False  # it needs the rights that its owner's bit gives
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return int(version) >= _LANDLOCK_ABI


_HOLDER_START_SECONDS = 5.0
_JOIN_CHECK = '[ "$(readlink /proc/self/ns/net)" = "$1" ] || exit 125; shift; exec "$@"'
"""Between the look at the holder and the joining its number could have become another's."""


@dataclass(frozen=True, slots=True)
class _NetworkHolder:
    holder: ProcessKey
    space: str
    """The namespace, as readlink of /proc/<pid>/ns/net shows it."""


def network_join_command(
    note: Path, mark: str, shell: Sequence[str], enclosure: Enclosure
) -> list[str]:
    """The words before a sandbox's command that put it into the rollout's network.

    note: where the holder is remembered; mark: what it carries in its environment to be found by.
    shell: bubblewrap's arguments for a sandbox with a network of its own, without a command.
    Empty where this machine cannot do it.
    """
    program = shutil.which("nsenter")
    if program is None or not mark:
        return []
    network = _find_noted_holder(note) or _start_holder(note, mark, shell, enclosure)
    if network is None:
        return []
    spaces = [f"--net=/proc/{network.holder.pid}/ns/net"]
    if os.getuid():
        user = f"--user=/proc/{network.holder.pid}/ns/user"
        spaces = [user, "--preserve-credentials", *spaces]
    return [program, *spaces, "--", "/bin/sh", "-c", _JOIN_CHECK, "joined", network.space]


def _find_noted_holder(note: Path) -> _NetworkHolder | None:
    """The holder that was noted, if it still is that process and in that network."""
    network = atomic_file.read_json_file(note, _NetworkHolder, FileNotFoundError)
    if network is None or not process_table.is_alive(network.holder):
        return None
    return network if _network_namespace(network.holder.pid) == network.space else None


def _start_holder(
    note: Path, mark: str, shell: Sequence[str], enclosure: Enclosure
) -> _NetworkHolder | None:
    """Start a holder and note it; None when it does not come up as it should."""
    if shutil.which("setsid") is None:
        return None
    read_end, tell = os.pipe()
    command = [*shell, "--info-fd", str(tell), "--", "sleep", "infinity"]
    try:
        subprocess.run(
            ["setsid", "--fork", *enclosure.around(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), MARK_VARIABLE: mark},
            pass_fds=(tell,),
            cwd="/",
            check=True,
        )
        os.close(tell)
        pid = _read_child_pid(read_end)
    except subprocess.CalledProcessError:
        os.close(tell)
        pid = 0
    finally:
        os.close(read_end)
    network = _NetworkHolder(process_table.process_key(pid), _network_namespace(pid))
    if network.holder == process_table.NO_PROCESS or network.space in (
        "",
        _network_namespace(os.getpid()),
    ):
        return None
    note.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_atomically(note, msgspec.json.encode(network), durable=False)
    return network


def _read_child_pid(descriptor: int) -> int:
    """The pid in what bubblewrap says on its information descriptor; 0 when it says nothing."""
    deadline, received = time.monotonic() + _HOLDER_START_SECONDS, b""
    while (seconds_left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], seconds_left)[0]:
            break
        chunk = os.read(descriptor, 4096)
        received += chunk
        if not chunk or b"}" in chunk:
            break
    try:
        return int(json.loads(received)["child-pid"])
    except (ValueError, KeyError):
        return 0


def _network_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115
    except OSError:
        return ""
