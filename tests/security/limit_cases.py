"""What an agent's program may use up, each with the limit that must stop it and say so."""

from dataclasses import dataclass

from houston_daemon.hosts.resource_limits import ResourceLimits

LIMITS = ResourceLimits(processes=150, memory=300 << 20, file=48 << 20, workspace=64 << 20)


@dataclass(frozen=True)
class Case:
    """One program."""

    command: str
    kind: str
    """The limit that it meets; empty where the program is told itself and nobody is ended."""
    says: str = ""
    """What its output says."""
    groups_only: bool = False
    """Too fast for a watchdog as root on a machine that others use."""


_EAT = "x = []\nfor i in range(128): x.append(b'1' * (64 << 20)); time.sleep(0.05)"
_HOLD = """
for i in range(20):
    f = open(f'u{i}', 'wb'); os.unlink(f.name); keep.append(f)
    f.write(b'1' * (16 << 20)); f.flush(); time.sleep(0.5)
"""

CASES = {
    "a fork bomb": Case("bomb() { bomb | bomb & }; bomb; sleep 3", "processes", groups_only=True),
    "a shell that starts on and on": Case(
        "for i in {1..400}; do sleep 1000 & done; sleep 3", "processes"
    ),
    "threads": Case(
        'python3 -c "import threading, time\nfor i in range(400):'
        ' threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\ntime.sleep(3)"',
        "processes",
    ),
    "children that nobody asks about": Case(
        'python3 -c "import os, time\nfor i in range(400): os.fork() or os._exit(0)\n'
        'time.sleep(3)"',
        "processes",
    ),
    "8 GB of memory": Case(f'python3 -c "import time\n{_EAT}"', "memory"),
    "files in shared memory": Case(
        "for i in {1..14}; do head -c 30M /dev/zero >/dev/shm/$i; done; sleep 3", "memory"
    ),
    "memory that children share": Case(
        'python3 -c "import mmap, time\nx = mmap.mmap(-1, 2 << 30)\nfor i in range(128):'
        " x.write(b'1' * (16 << 20)); time.sleep(0.1)\"",
        "memory",
    ),
    "memory that is files without a folder": Case(
        "python3 -c \"import os, time\nfiles = [os.memfd_create('x') for i in range(64)]\n"
        "for f in files: os.write(f, b'1' * (32 << 20)); time.sleep(0.2)\"",
        "memory",
    ),
    "a sparse file of 100 GB": Case("truncate -s 100G big", "file size"),
    "a real one, by a program that looks": Case(
        "python3 -c \"open('big', 'wb').write(bytes(100 << 20))\"", "", "File too large"
    ),
    "many files": Case(
        "for i in {1..60}; do head -c 16M /dev/zero >f$i; sleep 0.3; done", "workspace"
    ),
    "files without names": Case(f'python3 -c "import os, time\nkeep = []{_HOLD}"', "workspace"),
    "names without content": Case(
        'python3 -c "\nimport time\nfor i in range(400_000):'
        ' open(str(i), str(chr(120))).close(); i % 800 or time.sleep(0.1)"',
        "workspace",
    ),
}
