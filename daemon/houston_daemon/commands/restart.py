"""`houston daemon restart`: stop and start; engines run on, rollouts go on where they were."""

import argparse
import os
import pwd
import subprocess

from houston_daemon.commands import start, stop
from houston_daemon.service.halt import halt
from houston_daemon.service.launch import launch
from houston_daemon.service.systemd import systemctl
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.lock import holder


def arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond the common flags."""


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Stop the daemon if one runs, then start it."""
    owner = holder(loaded.home)
    if owner and owner.service:
        return _by_systemd(owner.service)
    _refuse_others(loaded)
    stop.say(halt(loaded, keep_engine=True), loaded)
    start.say(launch(loaded), loaded)
    return int(ExitCode.DONE)


def _refuse_others(loaded: Loaded) -> None:
    """An operator may stop the daemon, but only the home's owner can start it again."""
    try:
        owner = loaded.home.path.stat().st_uid
    except FileNotFoundError:
        return
    if owner != os.geteuid():
        name = _login(owner)
        raise HoustonError(
            f"Only {name}, whose home {loaded.home.path} is, can start its daemon.",
            "It was not restarted: it would have been stopped and not started again.",
            f"Ask {name} to restart it (as root: su {name} -c 'houston daemon restart --home "
            f"{loaded.home.path}').",
        )


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _by_systemd(service: str) -> int:
    """A daemon that systemd runs stays its own: started from here it would be nobody's."""
    manager, _, name = service.partition(" ")
    command = systemctl((manager == "system", name), "restart", name)
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as problem:
        code, why = 1, problem.strerror
    else:
        why = f"exit code {code}"
    if code:
        raise HoustonError(
            f"The daemon runs as {name}, and `{' '.join(command)}` failed ({why}).",
            "It was not restarted by this command.",
            " ".join(command),
        )
    out.line(f"restarted {name}")
    return int(ExitCode.DONE)
