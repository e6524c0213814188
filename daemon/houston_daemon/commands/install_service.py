"""`houston daemon install-service`: writes the systemd unit of this home's daemon."""

import argparse
import getpass
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from houston_daemon.service.systemd import answers, systemctl, version
from houston_daemon.service.unit import Unit, setuid_bwrap
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError

SYSTEM_FOLDER = Path("/etc/systemd/system")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--user`, `--system`, `--print`, `--remove`, `--name`."""
    manager = parser.add_mutually_exclusive_group()
    manager.add_argument(
        "--user", action="store_true", help="for your own systemd (this is the default)"
    )
    manager.add_argument("--system", action="store_true", help="for the system's; needs root")
    parser.add_argument(
        "--print", "--dry-run", action="store_true", dest="print", help="show it, write nothing"
    )
    parser.add_argument("--remove", action="store_true", help="remove it instead")
    parser.add_argument(
        "--name", default="houston", metavar="NAME", help="name of the unit, one for each home"
    )


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write, show or remove the unit; the next commands are printed, run only before a removal."""
    if not re.fullmatch(r"[\w.@:-]+", arguments.name):
        raise HoustonError(
            f"{arguments.name!r} is no name of a unit: letters, digits and - _ . @ : only.",
            code=ExitCode.USAGE,
        )
    name = f"{arguments.name.removesuffix('.service')}.service"
    file = _folder(arguments.system) / name
    if arguments.remove:
        return _remove(file, arguments.system)
    if "\n" in str(loaded.home.path):
        raise HoustonError(
            f"The home {str(loaded.home.path)!r} has a line break, which no unit can hold.",
            "No unit was installed.",
            "Name a --home without one.",
            ExitCode.CONFIGURATION,
        )
    unit = Unit(
        loaded=loaded,
        name=name,
        system=arguments.system,
        user=os.environ.get("SUDO_USER", "") or getpass.getuser(),
        python=sys.executable,
        environment=os.environ,
        systemd=version(),
        setuid_bwrap=setuid_bwrap(),
    )
    if arguments.print:
        out.line(unit.text().rstrip("\n"))
        out.note(f"# to be written to {file}")
        _next(out.note, arguments.system, name, unit.user)
        return int(ExitCode.DONE)
    _refuse_other(file, unit)
    _write(file, unit.text())
    out.line(f"wrote {file}")
    _next(out.line, arguments.system, name, unit.user)
    return int(ExitCode.DONE)


def _folder(system: bool) -> Path:
    if system:
        return SYSTEM_FOLDER
    configuration = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(configuration or Path.home() / ".config") / "systemd" / "user"


def _refuse_other(file: Path, unit: Unit) -> None:
    """A unit of that name for another home is not overwritten."""
    if not file.exists():
        return
    there = [line for line in file.read_text().splitlines() if line.startswith("Description=")]
    if there != [line for line in unit.text().splitlines() if line.startswith("Description=")]:
        raise HoustonError(
            f"{file} is there already, and not for this home.",
            "It was left as it is.",
            "Name another with --name, or remove it with --remove.",
        )


def _write(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.chmod(0o644)
        beside.replace(file)
    except OSError as problem:
        raise HoustonError(
            f"{file} cannot be written: {problem.strerror}.",
            "No unit was installed.",
            "Use --user, or run it as root; --print shows the unit.",
        ) from None


def _next(say: Callable[[str], None], system: bool, name: str, user: str) -> None:
    control = "systemctl" if system else "systemctl --user"
    say("next:")
    say(f"  {control} daemon-reload")
    say(f"  {control} enable --now {name}")
    if not system:
        say(f"  loginctl enable-linger {user}    (so that it runs on after you log out)")


def _remove(file: Path, system: bool) -> int:
    """Stop and disable first: systemd does neither for a unit whose file is gone."""
    if not file.exists():
        out.line(f"there is no {file}")
        return int(ExitCode.DONE)
    disable = systemctl((system, file.name), "disable", "--now", file.name)
    reload = systemctl((system, file.name), "daemon-reload")
    if answers(system):
        _disable(disable, file)
    else:
        out.note(f"systemd does not answer here; where it does, first: {' '.join(disable)}")
    try:
        file.unlink()
    except OSError as problem:
        raise HoustonError(f"{file} cannot be removed: {problem.strerror}.") from None
    out.line(f"removed {file}")
    out.line(f"next:\n  {' '.join(reload)}")
    return int(ExitCode.DONE)


def _disable(command: list[str], file: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise HoustonError(
            f"`{' '.join(command)}` failed: {why}.",
            f"{file} was not removed: what it started may run on.",
            "Mend that, or remove the file by hand.",
        )
    out.line(f"stopped and disabled {file.name}")
