"""`houston daemon start`, `stop`, `restart` and `install-service`.

Parses flags, calls the package that does the work, and prints the result. `restart` hands a daemon
that systemd runs back to systemctl. `install-service` writes or removes the unit file;
`service.systemd_service` makes its text. `service.daemon_control` starts and stops a daemon;
`daemon_status_commands` shows its state.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from houston_daemon.service.daemon_control import (
    RunningDaemon,
    StoppedDaemon,
    find_answering_daemon,
    start_daemon,
    stop_running_daemon,
)
from houston_daemon.service.home_setup import kept_out_warning
from houston_daemon.service.systemd_service import (
    SystemdUnit,
    is_bwrap_setuid,
    is_systemd_answering,
    own_unit,
    systemctl_command,
    systemd_version,
    will_be_restarted,
)
from houston_shared import command_output
from houston_shared.atomic_file import write_atomically
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError, unwritable_as_error
from houston_shared.home_lock import find_running_daemon
from houston_shared.store.presence_queries import login_name


def add_daemon_start_arguments(parser: argparse.ArgumentParser) -> None:
    """`--foreground`, `--json`."""
    add_json_option(parser)
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="stay here and show the log; Ctrl-C drains and ends",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`: what was done, as one object."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_daemon_start(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Start it; exit code 0 also when it runs already with the same configuration."""
    if arguments.foreground:
        return _run_in_foreground(loaded, arguments.json)
    _say_started(start_daemon(loaded), loaded, arguments.json)
    return int(ExitCode.DONE)


def _say_started(launched: RunningDaemon, loaded: LoadedConfiguration, as_json: bool) -> None:
    """The daemon that now runs, and how the one before it ended where it died."""
    if as_json:
        command_output.print_json_line(
            {"state": "running", "home": str(loaded.home.path), "pid": launched.pid}
            | {"since": launched.since or None, "before": launched.before}
        )
    elif launched.since:
        command_output.print_line(f"already running (pid {launched.pid}, since {launched.since})")
    else:
        command_output.print_line(f"running on {loaded.home.path} (pid {launched.pid})")
        if launched.before:
            command_output.print_line(f"  {launched.before}")
    if not launched.since and (warning := kept_out_warning(loaded)):
        command_output.print_note(f"warning: {warning}")
    if loaded.home.run.parent != loaded.home.path:
        command_output.print_note(
            f"its sockets are in {loaded.home.run}: the home's path is too long for them"
        )


def _run_in_foreground(loaded: LoadedConfiguration, as_json: bool) -> int:
    from houston_daemon.service.daemon_process import serve_home

    if running := find_answering_daemon(loaded):
        _say_started(running, loaded, as_json)
        return int(ExitCode.BUSY if own_unit() else ExitCode.DONE)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return serve_home(loaded, None, foreground=True)


def add_daemon_stop_arguments(parser: argparse.ArgumentParser) -> None:
    """`--keep-engine`, `--json`."""
    add_json_option(parser)
    text = "keep engines running, for at most [daemon] engine_orphan_seconds"
    parser.add_argument("--keep-engine", action="store_true", help=text)
    # What the unit calls after the daemon's end (ExecStopPost).
    parser.add_argument("--service-ended", action="store_true", help=argparse.SUPPRESS)


def run_daemon_stop(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Stop it; exit code 0 also when none runs."""
    if arguments.service_ended and will_be_restarted():
        command_output.print_line("engines keep running: the daemon is started again")
        return int(ExitCode.DONE)
    halted = stop_running_daemon(loaded, keep_engine=arguments.keep_engine)
    if arguments.json:
        command_output.print_json_line(
            {"state": "stopped", "home": str(loaded.home.path), "pid": halted.pid or None}
            | {"forced": halted.forced, "engines": halted.engines}
        )
    else:
        _say_stopped(halted, loaded)
    return int(ExitCode.DONE)


def _say_stopped(halted: StoppedDaemon, loaded: LoadedConfiguration) -> None:
    """One line about what was ended."""
    if not halted.pid:
        command_output.print_line(f"no daemon runs on {loaded.home.path}")
    elif halted.forced:
        command_output.print_line(
            f"killed (pid {halted.pid}): {halted.forced}; nothing that was stored is lost"
        )
    elif halted.stood:
        command_output.print_line(
            f"stopped (pid {halted.pid}): a signal had frozen it; it was resumed and drained"
        )
    else:
        command_output.print_line(f"stopped (pid {halted.pid})")
    for engine in halted.engines:
        command_output.print_line(f"ended engine {engine}, which an earlier daemon had left")


def add_daemon_restart_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    add_json_option(parser)


def run_daemon_restart(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Stop the daemon if one runs, then start it."""
    owner = find_running_daemon(loaded.home)
    if owner and owner.service:
        return _restart_unit(owner.service, arguments.json)
    _refuse_other_users(loaded)
    halted = stop_running_daemon(loaded, keep_engine=True)
    if not arguments.json:
        _say_stopped(halted, loaded)
    _say_started(start_daemon(loaded), loaded, arguments.json)
    return int(ExitCode.DONE)


def _refuse_other_users(loaded: LoadedConfiguration) -> None:
    """An operator may stop the daemon, but only the home's owner can start it again."""
    try:
        owner = loaded.home.path.stat().st_uid
    except FileNotFoundError:
        return
    if owner != os.geteuid():
        name = login_name(owner)
        raise HoustonError(
            f"Only {name}, who owns the home {loaded.home.path}, can start its daemon.",
            "It was not restarted: it would have been stopped and not started again.",
            f"Ask {name} to restart it (as root: su {name} -c 'houston daemon restart --home "
            f"{loaded.home.path}').",
        )


def _restart_unit(service: str, as_json: bool) -> int:
    """A daemon that systemd runs stays its own: started from here it would be nobody's."""
    manager, _, name = service.partition(" ")
    command = systemctl_command((manager == "system", name), "restart", name)
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as problem:
        code, reason = 1, problem.strerror
    else:
        reason = f"exit code {code}"
    if code:
        raise HoustonError(
            f"The daemon runs as {name}, and `{' '.join(command)}` failed ({reason}).",
            "It was not restarted by this command.",
            " ".join(command),
        )
    if as_json:
        command_output.print_json_line({"state": "running", "unit": name})
    else:
        command_output.print_line(f"restarted {name}")
    return int(ExitCode.DONE)


SYSTEM_UNIT_FOLDER = Path("/etc/systemd/system")


def add_daemon_install_service_arguments(parser: argparse.ArgumentParser) -> None:
    """`--user`, `--system`, `--print`, `--remove`, `--name`."""
    manager = parser.add_mutually_exclusive_group()
    manager.add_argument("--user", action="store_true", help="for your own systemd (the default)")
    manager.add_argument(
        "--system", action="store_true", help="for the system's systemd; needs root"
    )

    parser.add_argument(
        "--print", "--dry-run", action="store_true", dest="print", help="show it, write nothing"
    )
    parser.add_argument("--remove", action="store_true", help="remove it instead")
    parser.add_argument(
        "--name", default="houston", metavar="NAME", help="name of the unit, one for each home"
    )


def run_daemon_install_service(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write, show or remove the unit; the next commands are printed, run only before a removal."""
    if not re.fullmatch(r"[\w.@:-]+", arguments.name):
        raise UsageError(
            f"{arguments.name!r} is not a valid unit name: use only letters, digits and - _ . @ :"
        )
    name = f"{arguments.name.removesuffix('.service')}.service"
    file = _unit_folder(arguments.system) / name
    if arguments.remove:
        return _remove_unit(file, arguments.system)
    if "\n" in str(loaded.home.path):
        raise HoustonError(
            f"The home {str(loaded.home.path)!r} has a line break, which a unit cannot contain.",
            "No unit was installed.",
            "Name a --home without one.",
            ExitCode.CONFIGURATION,
        )
    unit = SystemdUnit(
        loaded=loaded,
        name=name,
        system=arguments.system,
        user=os.environ.get("SUDO_USER", "") or login_name(os.getuid()),
        python=sys.executable,
        environment=os.environ,
        systemd=systemd_version(),
        setuid_bwrap=is_bwrap_setuid(),
    )
    if arguments.print:
        command_output.print_line(unit.text().rstrip("\n"))
        command_output.print_note(f"# to be written to {file}")
        _say_next_commands(command_output.print_note, arguments.system, name, unit.user)
        return int(ExitCode.DONE)
    _refuse_other_home(file, unit)
    _write_unit(file, unit.text())
    command_output.print_line(f"wrote {file}")
    _say_next_commands(command_output.print_line, arguments.system, name, unit.user)
    return int(ExitCode.DONE)


def _unit_folder(system: bool) -> Path:
    if system:
        return SYSTEM_UNIT_FOLDER
    configuration = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(configuration or Path.home() / ".config") / "systemd" / "user"


def _refuse_other_home(file: Path, unit: SystemdUnit) -> None:
    """A unit of that name for another home is not overwritten."""
    if not file.exists():
        return
    described = [line for line in file.read_text().splitlines() if line.startswith("Description=")]
    if described != [line for line in unit.text().splitlines() if line.startswith("Description=")]:
        raise HoustonError(
            f"{file} already exists, and is not for this home.",
            "It was left as it is.",
            "Name another with --name, or remove it with --remove.",
        )


def _write_unit(file: Path, text: str) -> None:
    with unwritable_as_error(
        file, "No unit was installed.", "Use --user, or run it as root; --print shows the unit."
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode(), mode=0o644)


def _say_next_commands(say: Callable[[str], None], system: bool, name: str, user: str) -> None:
    control = "systemctl" if system else "systemctl --user"
    say("next:")
    say(f"  {control} daemon-reload")
    say(f"  {control} enable --now {name}")
    if not system:
        say(f"  loginctl enable-linger {user}    (so that it keeps running after you log out)")


def _remove_unit(file: Path, system: bool) -> int:
    """Stop and disable first: systemd does neither for a unit whose file is gone."""
    if not file.exists():
        command_output.print_line(f"there is no {file}")
        return int(ExitCode.DONE)
    disable = systemctl_command((system, file.name), "disable", "--now", file.name)
    reload = systemctl_command((system, file.name), "daemon-reload")
    if is_systemd_answering(system):
        _disable_unit(disable, file)
    else:
        command_output.print_note(
            f"systemd does not answer here; where it runs, disable the unit first:"
            f" {' '.join(disable)}"
        )
    try:
        file.unlink()
    except OSError as problem:
        raise HoustonError(f"{file} cannot be removed: {problem.strerror}.") from None
    command_output.print_line(f"removed {file}")
    command_output.print_line(f"next:\n  {' '.join(reload)}")
    return int(ExitCode.DONE)


def _disable_unit(command: list[str], file: Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise HoustonError(
            f"`{' '.join(command)}` failed: {reason}.",
            f"{file} was not removed: what it started may still be running.",
            "Fix that, or remove the file by hand.",
        )
    command_output.print_line(f"stopped and disabled {file.name}")
