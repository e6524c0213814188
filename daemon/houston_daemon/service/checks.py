"""What `houston doctor` looks at: one check each, with what it found and what to do next."""

import asyncio
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from houston_daemon.engines.install import engine_path, has_nvidia_gpu
from houston_daemon.engines.model import INSTALL_LOCAL, missing, model_path
from houston_daemon.hosts.guard.cgroup_places import places
from houston_daemon.hosts.sandbox import seccomp
from houston_daemon.hosts.sandbox.probe import probe
from houston_daemon.hosts.sandbox.profile import Sandbox
from houston_daemon.service import host_checks, machine_checks, tool_checks
from houston_daemon.service.engine_places import address_of, refusal
from houston_daemon.service.finding import Check, Finding, ok
from houston_daemon.service.role_checks import check_roles, warning
from houston_shared import lock
from houston_shared.config import Loaded
from houston_shared.errors import HoustonError
from houston_shared.store import opening
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader

OLDEST = (3, 11)
MENDED = (3, 51, 3)
"""The first SQLite without the WAL reset bug."""


def python(_: Loaded) -> Iterator[Finding]:
    """The interpreter; 3.11 at least, and Linux."""
    said = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST:
        yield Finding("python", "fail", said, "Use Python 3.11 or newer.")
    elif sys.platform != "linux":
        yield Finding("python", "fail", f"{said} on {sys.platform}", "Run the daemon on Linux.")
    else:
        yield ok("python", said)


def sqlite(_: Loaded) -> Iterator[Finding]:
    """SQLite: WAL's reset bug (3.7.0 to 3.51.2) needs two connections that write or checkpoint.

    Houston has one that does either, and the home's lock keeps a second daemon out.
    """
    version = sqlite3.sqlite_version
    safe = sqlite3.sqlite_version_info >= MENDED
    note = "" if safe else "; its WAL reset bug needs two writers, Houston has one"
    options = {row[0] for row in sqlite3.connect(":memory:").execute("PRAGMA compile_options")}
    if "ENABLE_FTS5" not in options:
        yield Finding("sqlite", "fail", f"{version} without FTS5", "Use a Python with FTS5.")
    elif sqlite3.threadsafety == 0:
        yield Finding("sqlite", "fail", f"{version} without threads", "Use another Python.")
    else:
        yield ok("sqlite", version + note)


def programs(_: Loaded) -> Iterator[Finding]:
    """tmux and git; Java for ScienceWorld only."""
    for name, required, why in (
        ("tmux", True, "terminals"),
        ("git", True, "tasks with repositories"),
        ("java", False, "the scienceworld environment"),
    ):
        path = shutil.which(name)
        if path:
            yield ok(name, _version(name) or path)
        else:
            package = "default-jre-headless" if name == "java" else name
            state: Literal["fail", "warn"] = "fail" if required else "warn"
            yield Finding(name, state, f"not here ({why})", f"apt install {package}")


def sandbox(_: Loaded) -> Iterator[Finding]:
    """bubblewrap, by a real spawn."""
    place = Path("/tmp")
    trial = Sandbox(kind="bubblewrap", workspace=place, home=place, temporary=place)
    problem = asyncio.run(probe(trial))
    if problem:
        yield Finding("sandbox", "fail", problem.cause, problem.next)
    else:
        without = "" if seccomp.here() else "; no filter of system calls for this architecture"
        yield ok("sandbox", f"bubblewrap started a process{without}")


def roles(loaded: Loaded) -> Iterator[Finding]:
    """Whether who is named in `[roles]` exists, and is let in."""
    try:
        check_roles(loaded)
    except HoustonError as problem:
        yield Finding("roles", "fail", problem.cause, problem.next)
        return
    if said := warning(loaded):
        yield Finding("roles", "warn", said)
    else:
        yield ok("roles", f"group: {loaded.config.daemon.group or 'none, the owner alone'}")


def limits(_: Loaded) -> Iterator[Finding]:
    """What holds rollouts to their limits of processes and memory."""
    mechanism = places().mechanism
    if mechanism == "watchdog":
        said = "by a watchdog, once a second: no control groups may be made here"
        step = "Run the daemon where cgroups are delegated, as in a systemd unit with Delegate=yes."
        yield Finding("limits", "warn", said, step)
    else:
        yield ok("limits", f"by the kernel ({mechanism})")


def model(_: Loaded) -> Iterator[Finding]:
    """The small model, and what runs it."""
    path = model_path()
    if path:
        yield ok("model", str(path))
    else:
        yield Finding("model", "warn", "not fetched", "houston doctor --fetch-model")
    if lacking := missing():
        said = f"the embedded engine cannot run without {', '.join(lacking)}"
        yield Finding("local", "warn", said, INSTALL_LOCAL)
    else:
        yield ok("local", "torch and transformers are installed")
    engine = engine_path()
    if engine:
        yield ok("vllm", str(engine))
    else:
        yield Finding("vllm", "warn", "not installed", "houston doctor --install-engine")


def engines(loaded: Loaded) -> Iterator[Finding]:
    """Engines of the configuration that live at a URL."""
    for name, engine in sorted(loaded.config.engines.items()):
        if not engine.url:
            continue
        try:
            why = refusal(address_of(engine.url))
        except HoustonError as problem:
            why = problem.cause
        step = f"Start it, or correct `engines.{name}.url`."
        found = f"{engine.url} answers"
        yield Finding(f"engine {name}", "warn", why, step) if why else ok(f"engine {name}", found)


def waiting(loaded: Loaded) -> Iterator[Finding]:
    """What the workers of a running daemon say of their engines: an open port proves little."""
    if lock.holder(loaded.home) is None or not opening.written(loaded.home):
        return
    with Reader(loaded.home) as reader:
        found = reader.run(rollouts.waiting())
    for one in found:
        yield Finding(
            f"engine {one.engine}", "warn", one.said, "houston rollout list --state running"
        )


def gpu(_: Loaded) -> Iterator[Finding]:
    """The GPU, where there is one; none is needed."""
    if not has_nvidia_gpu():
        yield ok("gpu", "none: models run on the CPU")
        return
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    said = _output(query)
    if said:
        yield ok("gpu", said.replace("\n", "; "))
    else:
        yield Finding("gpu", "warn", "nvidia-smi gave no answer", "Look at the driver.")


ALL: tuple[Check, ...] = (
    python,
    sqlite,
    machine_checks.home,
    machine_checks.temporary,
    machine_checks.sockets,
    machine_checks.descriptors,
    machine_checks.clock,
    machine_checks.redacted,
    roles,
    programs,
    sandbox,
    limits,
    model,
    engines,
    waiting,
    tool_checks.search,
    gpu,
    host_checks.hosts,
)


def _version(program: str) -> str:
    flag = {"tmux": "-V", "java": "-version"}.get(program, "--version")
    return (_output([program, flag]).splitlines() or [""])[0]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else ""
