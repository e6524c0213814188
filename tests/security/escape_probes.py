"""What an agent might try, one small script each, in bash or (`PYTHON + …`) in Python.

A probe exits with 0 when it got what it wanted, and with anything else when it was refused. Names
in braces are places and numbers of the ground that `escapes.py` lays out. What must not have
changed outside is looked at after every probe, whatever it said.
"""

PYTHON = """#python
import ctypes, errno, fcntl, os, pty, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def got(what):
    try:
        what()
    except OSError as problem:
        print(problem)
        sys.exit(1)
    sys.exit(0)
def kernel(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""

FILES = {
    "the database": "cat {home}/houston.db",
    "a key": "cat {home}/keys/api",
    "the home by its name in /proc": "cat /proc/[0-9]*/root{home}/houston.db | grep -q .",
    "the home through a link": "ln -sf {home}/houston.db $TMPDIR/l && cat $TMPDIR/l",
    "the home through a second name": "ln {home}/houston.db $TMPDIR/h",
    "the home by going up": "cat ../../../../../../../../..{home}/houston.db",
    "the home as a working folder of anybody": "cat /proc/[0-9]*/cwd/keys/api | grep -q .",
    "another rollout's files": "cat {root}/rollouts/other/workspace/secret",
    "who else has rollouts": "ls {root}/rollouts | grep -q .",
    "its own shadow repository": "ls {root}/rollouts/r1/shadow",
    "a change to its history": "echo x >{root}/rollouts/r1/shadow/HEAD",
    "a change to its terminal's log": "echo forged >>{root}/rollouts/r1/terminals/main/log.0",
    "its terminal's pipe": "echo 'echo in' >{root}/rollouts/r1/terminals/main/shell",
    "its command file": "echo x >/run/houston/command",
    "the task's solutions": "cat {task}/evaluate.py",
    "the machine's /tmp": "test -e {marker}",
    "password hashes": "cat /etc/shadow",
    # The Python that python3 starts is mapped, wherever it lies; an evaluator's task is too.
    "the user's folder": "ls -A {user} /root | grep -Ev ':$|^[.]pyenv$|^task$' | grep .",
    "everybody's folders": "ls -A /home | grep -v ^agent$ | grep -q .",
    "sockets of services": "ls -d /run/docker.sock /var/run/docker.sock /run/dbus /run/systemd"
    " /run/containerd /run/user /tmp/.X11-unix /tmp/tmux-* 2>/dev/null | grep -q .",
    "settings of the daemon": "env | grep -E 'OUTSIDE_KEY|SSH_AUTH_SOCK|DBUS_|DISPLAY|XDG_RUN'",
    "the system's programs": "echo x >/usr/bin/houston-x || echo x >/bin/houston-x",
    "the system's settings": "echo x >/etc/houston-x",
    "the root folder": "touch /houston-x || mkdir /houston-y",
    "the folder of devices": "touch /dev/houston-x",
    "descriptors that nobody meant to give": PYTHON
    + """
def ours(name):  # Python's own look at the folder is closed by now
    try:
        os.fstat(int(name))
    except OSError:
        return False
    return int(name) > 2
left = [os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd") if ours(n)]
print(left)
sys.exit(not left)
""",
}

PROCESSES = {
    "a process outside": "kill -0 {pid} && kill -9 {pid}",
    "names of processes outside": "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x '[7]{nap}'",
    "settings of processes outside": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep OUTSIDE_KEY",
    "the log's writer": "pkill -f log[.]0",
    "its own first process": "kill -9 1 && sleep 0.2 && kill -0 1 && false",
    "tracing a process outside": PYTHON + "got(lambda: kernel({ptrace}, 16, {pid}, 0, 0))",
    "tracing its first process": PYTHON + "got(lambda: kernel({ptrace}, 16, 1, 0, 0))",
    "seizing its first process": PYTHON + "got(lambda: kernel({ptrace}, 0x4206, 1, 0, 0))",
    "a secret in the memory of its first process": PYTHON
    + """
memory = open("/proc/1/environ", "rb").read()
for line in open("/proc/1/maps"):
    place, rights = line.split()[:2]
    if "r" in rights and "[v" not in line:
        start, end = (int(part, 16) for part in place.split("-"))
        with open("/proc/1/mem", "rb") as file:
            file.seek(start)
            memory += file.read(end - start)
print(len(memory))
sys.exit(not (b"OUTSIDE" + b"_KEY" in memory or len(memory) < 100000))
""",
    "more than it has, from its first process": PYTHON
    + """
keys = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
def rights(pid):
    lines = open(f"/proc/{{pid}}/status").read().splitlines()
    return [line.split() for line in lines if line.split(":")[0] in keys]
spaces = ("mnt", "pid", "net", "ipc", "uts", "user")
def places(pid):
    links = [os.readlink(f"/proc/{{pid}}/ns/{{name}}") for name in spaces]
    return [*links, os.stat(f"/proc/{{pid}}/root").st_ino, os.stat(f"/proc/{{pid}}/root").st_dev]
held = [os.readlink(f"/proc/1/fd/{{n}}") for n in os.listdir("/proc/1/fd") if int(n) > 2]
odd = [name for name in held if not name.startswith("anon_inode:[event")]
print(odd)
same = rights(1) == rights("self") and places(1) == places("self")
sys.exit(same and not odd)
""",
    "a handle on a process outside": PYTHON + "got(lambda: os.pidfd_open({pid}))",
    "a better place in the queue": PYTHON + "got(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))",
    "real time": PYTHON + "got(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))",
    "never to be ended for memory": "echo -1000 >/proc/self/oom_score_adj",
    "larger files than allowed": "ulimit -f unlimited",
    "rights through a program's owner": "grep -Eq 'NoNewPrivs:.*0' /proc/self/status",
    "another user": PYTHON + "got(lambda: os.setresuid(12345, 12345, 12345))",
    "any capability": "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status"
    " | grep -qv 0000000000000000",
    "a forged end of its command": "printf '\\033]7771;e;%032d;0\\007' 0; exit 1",
}

TERMINALS = {
    "keys typed into its own terminal": PYTHON
    + 'got(lambda: fcntl.ioctl(pty.openpty()[1], 0x5412, b"x"))',
    "keys typed into the pane": PYTHON
    + 'got(lambda: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x"))',
    "a console's selection": PYTHON + 'got(lambda: fcntl.ioctl(pty.openpty()[1], 0x541C, b"x"))',
    "the tmux server": PYTHON + 'got(lambda: socket.socket(socket.AF_UNIX).connect("{tmux}"))',
    "other terminals of the machine": "ls /dev/pts | grep -Ev '^(ptmx|[012])$' | grep -q .",
}

NETWORK = {
    "the daemon's socket": PYTHON
    + 'got(lambda: socket.socket(socket.AF_UNIX).connect("{home}/run/control"))',
    "a socket without a path": PYTHON
    + 'got(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + "{abstract}"))',
    "a port of the machine": PYTHON
    + 'got(lambda: socket.create_connection(("127.0.0.1", {port}), 3))',
    "a port of the machine by IPv6": PYTHON
    + 'got(lambda: socket.create_connection(("::1", {port6}), 3))',
    "the cloud's metadata": PYTHON
    + 'got(lambda: socket.create_connection(("169.254.169.254", 80), 3))',
    "a name": PYTHON
    + "got(lambda: socket.socket(2, socket.SOCK_DGRAM).sendto(b'x' * 12, ('9.9.9.9', 53)))",
    "the world by IPv6": PYTHON
    + "got(lambda: socket.socket(10, socket.SOCK_DGRAM).sendto(b'x', ('2620:fe::fe', 53)))",
    "raw packets": PYTHON + "got(lambda: socket.socket(17, socket.SOCK_RAW, 0x0300))",
    "raw IPv4": PYTHON + "got(lambda: socket.socket(2, socket.SOCK_RAW, 1))",
    "raw IPv6": PYTHON + "got(lambda: socket.socket(10, socket.SOCK_RAW, 58))",
    "the hypervisor": PYTHON + "got(lambda: socket.socket(40, socket.SOCK_STREAM))",
    "the kernel's cryptography": PYTHON + "got(lambda: socket.socket(38, 5))",
    "the loopback's state": PYTHON
    + 'got(lambda: fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 0, b"")))',
}

KERNEL = {
    "the name of the machine": "echo x >/proc/sys/kernel/hostname",
    "what runs when a program crashes": "echo '|/bin/false' >/proc/sys/kernel/core_pattern",
    "what runs when a module is missing": "echo /bin/false >/proc/sys/kernel/modprobe",
    "the emergency keys": "echo h >/proc/sysrq-trigger",
    "the kernel's messages": "head -c 1 /dev/kmsg || head -c 1 /proc/kmsg",
    "memory of the machine": "head -c 1 /dev/mem || head -c 1 /proc/kcore | grep -q .",
    "disks": "head -c 1 /dev/vda || head -c 1 /dev/sda || head -c 1 /dev/nvme0n1",
    "a device made by itself": "mknod $TMPDIR/d b 254 0 && head -c 1 $TMPDIR/d",
    "a processor switched off": "echo 0 >/sys/devices/system/cpu/cpu1/online",
    "the agent of empty groups": "echo /bin/false >/sys/fs/cgroup/pids/release_agent",
    "another control group": "echo $$ >/sys/fs/cgroup/pids/cgroup.procs"
    " || echo $$ >/sys/fs/cgroup/cgroup.procs",
    "groups mounted anew": PYTHON
    + "got(lambda: kernel({mount}, b'x', os.environ['TMPDIR'].encode(), b'cgroup2', 0, 0))",
    "a folder mounted": "mount -t tmpfs x $TMPDIR",
    "a read-only folder made writable": PYTHON
    + "got(lambda: kernel({mount}, b'x', b'/usr', 0, 32 | 4096, 0))",
    "a new user namespace": "unshare -U true",
    "one by clone": PYTHON + "got(lambda: kernel({clone}, 0x10000011, 0, 0, 0, 0))",
    "one by clone3": PYTHON + "got(lambda: kernel(435, (ctypes.c_uint64 * 11)(0x10000000), 88))",
    "the namespaces of its first process": "nsenter -t 1 -m -n true",
    "another root folder": "chroot / true",
    "calls the x32 way": PYTHON
    + "got(lambda: kernel(0x40000000 | 39) if os.uname().machine == 'x86_64' else kernel(-1))",
    "another personality": PYTHON + "got(lambda: kernel({personality}, 0x0400000))",
}

CALLS = """
left = []
for name, number in {calls}.items():
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != errno.EPERM:
        left.append((name, ctypes.get_errno()))
print(left)
sys.exit(not left)
"""
"""Every call of the filter's table must be refused by the filter, before the kernel looks at it."""

PROBES: dict[str, str] = {
    **FILES,
    **PROCESSES,
    **TERMINALS,
    **NETWORK,
    **KERNEL,
    "any call of the table": PYTHON + CALLS,
}

SUCCEED_OUTSIDE = (
    "the database", "a key", "the home through a link", "another rollout's files",
    "who else has rollouts", "its own shadow repository", "the task's solutions",
    "the machine's /tmp", "settings of the daemon", "names of processes outside",
    "settings of processes outside", "a handle on a process outside", "the tmux server",
    "the daemon's socket", "a socket without a path", "a port of the machine",
)  # fmt: skip
"""Harmless ones that get what they want without a sandbox: so they would notice an escape."""

NOT_FOR_EVALUATORS = ("the task's solutions",)
"""An evaluator is given the task's folder, read-only."""
NOT_FOR_TERMINALS = ("its own first process",)
"""Ending it ends the session, as it should."""
