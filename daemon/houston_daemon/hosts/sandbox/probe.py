"""Tries whether this machine can do what a task asks of it, and says what to do when not."""

import asyncio
import shutil
from pathlib import Path

from houston_daemon.hosts.sandbox import spawn
from houston_daemon.hosts.sandbox.enclosure import Enclosure
from houston_daemon.hosts.sandbox.profile import Sandbox
from houston_shared.errors import ExitCode, HoustonError

_OPEN = Enclosure()
_SWITCHES = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "15000"),
}
"""Setting: (value that closes user namespaces, value that opens them)."""
_EFFECT = "No rollout was started on this machine."
_WITHOUT = 'or set sandbox = "none" in the task file (provenance cannot be promised then)'


async def probe(sandbox: Sandbox, enclosure: Enclosure = _OPEN) -> HoustonError | None:
    """Spawn a real process the way a rollout would; None when it works."""
    needed = {"tmux": "tmux", "bash": "bash"}
    if sandbox.kind == "bubblewrap":
        needed |= {"bwrap": "bubblewrap", "script": "bsdutils"}
    for program, package in needed.items():
        if shutil.which(program) is None:
            way = f"apt install {package}"
            step = f"{way}, {_WITHOUT}." if program == "bwrap" else f"{way}."
            return HoustonError(
                f"{program} is not installed.", _EFFECT, step, ExitCode.CONFIGURATION
            )
    if sandbox.kind == "none":
        return None
    argv = await asyncio.to_thread(
        sandbox.wrap, ["true"], dies_with_parent=True, enclosure=enclosure
    )
    done = await spawn.run_to_end(argv, token=None, seconds=20, stop=None, output_limit=10_000)
    if done.exit_code == 0:
        return None
    return _explain(done.stderr.decode("utf-8", "replace").strip())


def _explain(said: str) -> HoustonError:
    closed = ("No permissions to create", "Operation not permitted", "uid map", "namespace")
    if any(words in said for words in closed):
        return HoustonError(
            f"bubblewrap may not open a user namespace here: {_closed_by(said)}.",
            _EFFECT,
            f"Allow it ({_opened_by()}), {_WITHOUT}.",
            ExitCode.CONFIGURATION,
        )
    return HoustonError(
        f"bubblewrap could not start a process: {said or 'it gave no reason'}.",
        _EFFECT,
        f"Mend what it names, {_WITHOUT}.",
        ExitCode.CONFIGURATION,
    )


def _switched_off() -> dict[str, str]:
    """Kernel settings that close user namespaces to us now, with the value that opens them."""
    found: dict[str, str] = {}
    for setting, (closed, opened) in _SWITCHES.items():
        try:
            value = Path("/proc/sys", setting.replace(".", "/")).read_text().strip()
        except OSError:
            continue  # this kernel has no such setting
        if value == closed:
            found[setting] = opened
    return found


def _closed_by(said: str) -> str:
    names = ", ".join(f"{name} is set against it" for name in _switched_off())
    return f"{names} ({said})" if names else said


def _opened_by() -> str:
    off = _switched_off() or {name: opened for name, (_, opened) in _SWITCHES.items()}
    return " or ".join(f"sysctl {name}={opened}" for name, opened in off.items())
