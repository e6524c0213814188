"""One network for all sessions of a rollout: a loopback only, on which they reach each other.

A network namespace lives as long as a process in it, so one process per rollout does nothing but
hold it; it outlives the daemon as terminals do. Others join through `nsenter`, as root or as the
user who made it. Evaluators have a network of their own: they run what the agent wrote and may read
the solutions. Where joining is impossible every sandbox has its own loopback, as before.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts import processes
from houston_daemon.hosts.processes import MARK, ProcessKey
from houston_daemon.hosts.sandbox.enclosure import Enclosure

_SECONDS = 5.0
_CHECK = '[ "$(readlink /proc/self/ns/net)" = "$1" ] || exit 125; shift; exec "$@"'
"""Between the look at the holder and the joining its number could have become another's."""


@dataclass(frozen=True, slots=True)
class _Held:
    holder: ProcessKey
    space: str
    """The namespace, as readlink of /proc/<pid>/ns/net shows it."""


def joining(note: Path, mark: str, shell: Sequence[str], enclosure: Enclosure) -> list[str]:
    """The words before a sandbox's command that put it into the rollout's network.

    note: where the holder is remembered; mark: what it carries in its environment to be found by.
    shell: bubblewrap's arguments for a sandbox with a network of its own, without a command.
    Empty where this machine cannot do it.
    """
    program = shutil.which("nsenter")
    if program is None or not mark:
        return []
    held = _known(note) or _made(note, mark, shell, enclosure)
    if held is None:
        return []
    spaces = [f"--net=/proc/{held.holder.pid}/ns/net"]
    if os.getuid():
        user = f"--user=/proc/{held.holder.pid}/ns/user"
        spaces = [user, "--preserve-credentials", *spaces]
    return [program, *spaces, "--", "/bin/sh", "-c", _CHECK, "joined", held.space]


def _known(note: Path) -> _Held | None:
    """The holder that was noted, if it still is that process and in that network."""
    try:
        held = msgspec.json.decode(note.read_bytes(), type=_Held)
    except (FileNotFoundError, msgspec.DecodeError):  # none, or cut off by a power cut
        return None
    alive = processes.is_alive(held.holder) and _space(held.holder.pid) == held.space
    return held if alive else None


def _made(note: Path, mark: str, shell: Sequence[str], enclosure: Enclosure) -> _Held | None:
    """Start a holder and note it; None when it does not come up as it should."""
    if shutil.which("setsid") is None:
        return None
    told, tell = os.pipe()
    command = [*shell, "--info-fd", str(tell), "--", "sleep", "infinity"]
    try:
        subprocess.run(
            ["setsid", "--fork", *enclosure.around(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), MARK: mark},
            pass_fds=(tell,),
            cwd="/",
            check=True,
        )
        os.close(tell)
        pid = _child(told)
    except subprocess.CalledProcessError:
        os.close(tell)
        pid = 0
    finally:
        os.close(told)
    held = _Held(processes.key_of(pid), _space(pid))
    if held.holder == processes.NOBODY or held.space in ("", _space(os.getpid())):
        return None
    note.parent.mkdir(parents=True, exist_ok=True)
    beside = note.with_name(f"{note.name}.new")
    beside.write_bytes(msgspec.json.encode(held))
    beside.replace(note)
    return held


def _child(descriptor: int) -> int:
    """The pid in what bubblewrap says on its information descriptor; 0 when it says nothing."""
    deadline, said = time.monotonic() + _SECONDS, b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        chunk = os.read(descriptor, 4096)
        said += chunk
        if not chunk or b"}" in chunk:
            break
    try:
        return int(json.loads(said)["child-pid"])
    except (ValueError, KeyError):
        return 0


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115
    except OSError:
        return ""
