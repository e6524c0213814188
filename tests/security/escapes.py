"""Lays out the ground, runs every probe in a sandbox, and looks at the ground after each.

Run as a program of its own, so that it can become another user first:
`python -m tests.security.escapes PLACE UID [IMAGE]` prints {"failed": {name: [what …]}, "ran": n}.
With the tar file of an image the sandbox has its programs, and no probe in Python is run.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from houston_daemon.hosts import process_table
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import ResourceLimits
from houston_daemon.hosts.sandbox import seccomp_filter
from houston_daemon.hosts.terminals.tmux_server import find_tmux_socket
from tests.security.escape_probes import (
    NOT_FOR_EVALUATORS,
    NOT_FOR_TERMINALS,
    PROBES,
    SUCCEED_OUTSIDE,
)

KERNEL_FILES = (
    "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
    "/sys/fs/cgroup/pids/release_agent",
)  # fmt: skip

OWN_IN_AN_IMAGE = {
    "its command file", "the root folder", "the system's programs", "the system's settings",
}  # fmt: skip
"""What a rollout may change where it has a copy of an image, as an agent: it is its own."""
_NO_SUCH_PROGRAM = 127


@dataclass
class Ground:
    """What lies outside the sandbox, and must be afterwards as it was."""

    place: Path
    outside: subprocess.Popen[bytes]
    listeners: list[socket.socket]
    words: dict[str, object]
    host: LocalHost
    watched: dict[str, str] = field(default_factory=dict)

    def state(self) -> dict[str, str]:
        """Contents and facts that no probe may change."""
        found = {str(path): _digest(path) for path in map(Path, KERNEL_FILES)}
        for path in sorted(self.place.rglob("*")):
            private = path.is_relative_to(self.host.folder / "private")
            moving = path.is_relative_to(self.host.folder / "terminals")
            own = path.is_relative_to(self.host.folder / "image")
            if not (private or moving or own or path.is_relative_to(self.host.workspace)):
                found[str(path)] = _digest(path)
        terminal = self.host.folder / "terminals" / "main"
        found["log"] = str(any(line == b"forged\n" for line in _lines(terminal)))
        sink = (terminal / "sink.pid").read_text()
        found["sink"] = f"{sink} {process_table.read_process_stat(int(sink)) is not None}"
        found["outside"] = str(self.outside.poll())
        for number, listener in enumerate(self.listeners):
            found[f"listener {number}"] = str(_asked(listener))
        left = [*Path("/dev/shm").glob("houston-x"), *Path("/").glob("houston-*")]
        found["left"] = str(left)
        return found


def _lines(terminal: Path) -> Iterator[bytes]:
    for segment in terminal.glob("log.*"):
        yield from segment.read_bytes().splitlines(keepends=True)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "there"
    except OSError as problem:
        return str(problem)


def _asked(listener: socket.socket) -> bool:
    try:
        listener.accept()
    except BlockingIOError:
        return False
    return True


@contextlib.asynccontextmanager
async def laid_out(place: Path, image: Path | None = None) -> Iterator[Ground]:
    """A home, another rollout, a process with a secret, listeners of every kind, a terminal."""
    home, root, task = place / "home", place / "root", place / "task"
    for folder in (home / "keys", home / "run", task):
        folder.mkdir(parents=True)
    for file in (home / "houston.db", home / "keys" / "api", task / "evaluate.py"):
        file.write_text("secret")
    nap = f"{os.getpid()}"
    words = {
        "home": home, "root": root, "task": task, "user": Path.home(), "nap": nap,
        "ptrace": {"x86_64": 101, "aarch64": 117}[platform.machine()],
        "clone": {"x86_64": 56, "aarch64": 220}[platform.machine()],
        "personality": {"x86_64": 135, "aarch64": 92}[platform.machine()],
        "abstract": f"houston-probe-{nap}", "calls": _calls(), "mount": _calls()["mount"],
    }  # fmt: skip
    most = ResourceLimits(processes=500, memory=1 << 30, file=1 << 26, workspace=1 << 28)
    settings = {"sandbox": "bubblewrap", "network": False, "hidden": (home,), "limits": most}
    settings |= {"image": image}
    host, other = LocalHost(root, "r1", **settings), LocalHost(root, "other", **settings)
    outside = _outside(f"7{nap}")
    with contextlib.ExitStack() as held:
        marker = held.enter_context(tempfile.NamedTemporaryFile(prefix="houston-marker-"))
        listeners = [held.enter_context(one) for one in _listen(home, str(words["abstract"]))]
        for rollout in (host, other):
            await rollout.prepare(None)
            await rollout.snapshots.take("start")
        (other.workspace / "secret").write_text("secret")
        await host.terminal("main", create=True)
        words |= {
            "marker": marker.name, "pid": outside.pid,
            "tmux": find_tmux_socket(host.folder / "terminals"),
            "port": listeners[2].getsockname()[1], "port6": listeners[3].getsockname()[1],
        }  # fmt: skip
        try:
            yield Ground(place, outside, listeners, words, host)
        finally:
            outside.kill()
            outside.wait()
            for rollout in (host, other):
                await rollout.destroy_terminals()
                await rollout.close()


def _calls() -> dict[str, int]:
    column = seccomp_filter.ARCHITECTURES[platform.machine()].column
    return {
        name: n
        for name, pair in seccomp_filter.SYSCALL_NUMBERS.items()
        if (n := pair[column]) is not None
    }


def _listen(home: Path, abstract: str) -> list[socket.socket]:
    by_path, without = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    by_path.bind(str(home / "run" / "control"))
    without.bind("\0" + abstract)
    internet = [socket.create_server(("127.0.0.1", 0))]
    internet.append(socket.create_server(("::1", 0), family=socket.AF_INET6))
    found = [by_path, without, *internet]
    for listener in found:
        listener.listen()
        listener.setblocking(False)
    return found


async def attempt_all(place: Path, image: Path | None) -> dict[str, object]:
    """Every probe in every kind of sandbox; what it got and what it changed."""
    failed: dict[str, list[str]] = {}
    ran = 0
    os.environ["OUTSIDE_KEY"] = "secret"
    async with laid_out(place, image) as ground:
        for name in SUCCEED_OUTSIDE:
            if said := await asyncio.to_thread(_trouble_outside, name, ground):
                failed.setdefault(name, []).append(f"finds nothing outside: {said}")
        for listener in ground.listeners:
            while _asked(listener):
                pass
        ground.watched = ground.state()
        for name in PROBES:
            if image is not None and PROBES[name].startswith("#python"):
                continue
            for way, (code, said) in (await _attempt(name, ground)).items():
                ran += code != _NO_SUCH_PROGRAM
                allowed = image is not None and name in OWN_IN_AN_IMAGE and way != "evaluator"
                if code == 0 and not allowed:
                    failed.setdefault(name, []).append(f"{way}: {said[-300:]}")
            now = ground.state()
            changed = [
                key for key in now | ground.watched if now.get(key) != ground.watched.get(key)
            ]
            if changed:
                failed.setdefault(name, []).append(f"changed {changed}")
                ground.watched = now
    return {"failed": failed, "ran": ran}


def _outside(nap: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", nap], env={**os.environ, "OUTSIDE_KEY": "secret"})


def _trouble_outside(name: str, ground: Ground) -> str:
    """Why a probe does not get without a sandbox what it wants; empty when it does."""
    done = subprocess.run(_argv(name, ground), capture_output=True, timeout=30)
    return repr(done.stderr) if done.returncode else ""


def _script(name: str, ground: Ground) -> str:
    text = PROBES[name]
    for word, value in ground.words.items():
        text = text.replace("{" + word + "}", str(value))
    return text.replace("{{", "{").replace("}}", "}")


def _argv(name: str, ground: Ground) -> list[str]:
    text = _script(name, ground)
    if text.startswith("#python"):
        return ["python3", "-c", text]
    os.environ.setdefault("TMPDIR", str(ground.place))
    return ["bash", "-c", text]


async def _attempt(name: str, ground: Ground) -> dict[str, tuple[int | None, str]]:
    host, found = ground.host, {}
    argv = _argv(name, ground)
    for way, writable in (("agent", True), ("evaluator", False)):
        if writable or name not in NOT_FOR_EVALUATORS:
            task = () if writable else (Path(str(ground.words["task"])),)
            done = await host.spawn(argv, seconds=20, writable=writable, extra_read=task)
            found[way] = (done.exit_code, (done.stdout + done.stderr).decode("utf-8", "replace"))
    if name not in NOT_FOR_TERMINALS:
        script = host.workspace / "probe"
        script.write_text(argv[2])
        terminal = await host.terminal("main", create=True)
        start = await terminal.run(f"{'python3' if argv[0] == 'python3' else 'bash'} ./probe")
        status = await terminal.wait(20, asyncio.Event())
        found["session"] = (status.exit_code, "\n".join(await terminal.lines(start)))
    return found


def main() -> None:
    """Become the user, then try everything."""
    place, user = Path(sys.argv[1]), int(sys.argv[2])
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        os.environ["HOME"] = str(place)
    os.environ["PATH"] = "/usr/bin:/bin"  # the system's own programs, none that start others
    image = Path(sys.argv[3]) if sys.argv[3:] else None
    print(json.dumps(asyncio.run(attempt_all(place, image))))


if __name__ == "__main__":
    main()
