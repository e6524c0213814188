"""Tries whether this machine can do what a task asks of it, and says what to do when not."""

import asyncio
import shutil

from houston_daemon.hosts import spawn
from houston_daemon.hosts.enclosure import Enclosure
from houston_daemon.hosts.sandbox import Sandbox
from houston_shared.errors import ExitCode, HoustonError

_OPEN = Enclosure()
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
            f"bubblewrap may not open a user namespace here ({said}).",
            _EFFECT,
            "Allow it (sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
            f"kernel.apparmor_restrict_unprivileged_userns=0), {_WITHOUT}.",
            ExitCode.CONFIGURATION,
        )
    return HoustonError(
        f"bubblewrap could not start a process: {said or 'it gave no reason'}.",
        _EFFECT,
        f"Mend what it names, {_WITHOUT}.",
        ExitCode.CONFIGURATION,
    )
