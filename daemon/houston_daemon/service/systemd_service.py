"""Everything about systemd: systemctl, sd_notify(3) and the unit of a daemon.

Asks systemctl for its version and whether a restart is under way; tells systemd READY, STATUS,
WATCHDOG and longer timeouts, if systemd started this process; makes the text of the unit, in which
comments explain each line. Terminals and engines are processes of the unit's group that outlive a
restart (KillMode=process, OOMPolicy=continue, Delegate); the hardening is as strict as bubblewrap
and a shared home allow. `commands.daemon_commands` installs the unit.
"""

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.force_exit import shutdown_seconds
from houston_shared.config import LoadedConfiguration

UNIT_VARIABLE = "HOUSTON_SERVICE"
"""Environment variable in which a daemon finds its unit: `user houston.service`."""
SYSTEMCTL_SECONDS = 10.0


def systemd_version() -> int:
    """Version of systemd here; 0 when there is none."""
    words = _systemctl_output(["systemctl", "--version"]).split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def is_systemd_answering(system: bool) -> bool:
    """Whether the system's manager, or this user's, can be asked from here."""
    return bool(
        _systemctl_output(systemctl_command((system, ""), "show", "--property=Version")).strip()
    )


def own_unit() -> tuple[bool, str] | None:
    """Whether the system's manager runs this process, and its unit; None without a unit."""
    manager, _, name = os.environ.get(UNIT_VARIABLE, "").partition(" ")
    return (manager == "system", name) if name else None


def will_be_restarted() -> bool:
    """Whether the unit that has just ended will be started again, by systemd or a restart.

    Called by the unit itself after its end (ExecStopPost), where systemd says how it ended.
    """
    unit = own_unit()
    if unit is None:
        return False
    if os.environ.get("SERVICE_RESULT", "success") != "success":
        return True
    jobs = _systemctl_output(systemctl_command(unit, "list-jobs", "--no-legend", "--plain"))
    rows = [line.split() for line in jobs.splitlines()]
    return any(row[1:2] == [unit[1]] and row[2:3] in (["restart"], ["start"]) for row in rows)


def systemctl_command(unit: tuple[bool, str], *words: str) -> list[str]:
    """A systemctl command to the manager of a unit."""
    return ["systemctl", *(() if unit[0] else ("--user",)), *words]


def _systemctl_output(command: list[str]) -> str:
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=SYSTEMCTL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout if process.returncode == 0 else ""


_sent_states: dict[str, str] = {}
"""What was said last, by variable: what has not changed is not said again."""


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear from us (half its limit), None when it does not."""
    limit = os.environ.get("WATCHDOG_USEC", "")
    watched_pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    return int(limit) / 2_000_000 if limit.isdigit() and watched_pid == str(os.getpid()) else None


def feed_watchdog() -> None:
    """Say that the daemon lives; only what has just proved it may call this."""
    if watchdog_seconds() is not None:
        notify_systemd("WATCHDOG=1")


def send_changed_state(assignment: str) -> None:
    """Send `STATUS=…` or the like, when it is another than last; again where it was not heard."""
    name, _, value = assignment.partition("=")
    if _sent_states.get(name) != value and notify_systemd(assignment):
        _sent_states[name] = value


def extend_timeout(seconds: float) -> None:
    """What is under way (a start, a stop) may take so much longer, from now."""
    notify_systemd(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")


def notify_systemd(state: str) -> bool:
    """Send `READY=1`, `STOPPING=1`, …; several assignments, a line each. Whether it was sent."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)  # a systemd that does not read must not hold the daemon up
            out.sendto(state.encode(), address)
    except OSError as problem:
        LOGGER.warning("systemd could not be told %s: %s", state.partition("\n")[0], problem)
        return False
    return True


WATCHDOG_SECONDS = 60
DELEGATE_SUBGROUP_SINCE = 254
"""First systemd that puts a service's processes into a group below its own (DelegateSubgroup)."""
NO_RESTART_EXIT_CODES = "2 65 66 75 78"
"""Exit codes that a restart does not mend: usage, damage, a file that is not there, another daemon,
configuration."""

KEPT_VARIABLES = ("PATH", "HOUSTON_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Variables beside the configuration's without which a service would look in other folders."""


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """What a unit is made of."""

    loaded: LoadedConfiguration
    name: str
    """File name, `houston.service`."""
    system: bool
    """For the system's manager instead of the user's."""
    user: str
    """Who it runs as; of a system unit only."""
    python: str
    """Absolute path of the interpreter that has Houston."""
    environment: Mapping[str, str]
    systemd: int
    """Version of systemd; 0 when it is not known."""
    setuid_bwrap: bool
    """Whether bubblewrap needs to gain privileges (old kernels)."""

    def text(self) -> str:
        """The unit file."""
        lines = [*_unit_section(self), "", *_service_section(self), "", *_install_section(self)]
        return "\n".join(lines) + "\n"


def _unit_section(unit: SystemdUnit) -> list[str]:
    home = unit.loaded.home.path
    lines = [
        "# Written by `houston daemon install-service`, which overwrites it.",
        "[Unit]",
        f"Description=Houston on {_escape_value(str(home))}",
        # Five starts within ten minutes that fail: then it waits for a person.
        "StartLimitIntervalSec=600",
        "StartLimitBurst=5",
    ]
    if unit.system:
        lines += ["After=network-online.target", "Wants=network-online.target"]
        lines += [f"RequiresMountsFor={_quote_word(str(home))}"]
    return lines


def _service_section(unit: SystemdUnit) -> list[str]:
    start = _exec_line(unit, "daemon", "start", "--foreground")
    after = _exec_line(unit, "daemon", "stop", "--service-ended")
    stop_seconds = int(shutdown_seconds(unit.loaded)) + 10
    lines = [
        "[Service]",
        "# The process that is started is the daemon itself; it says READY, STATUS and WATCHDOG.",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={start}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "# Ends the engines, unless the daemon is to be started again.",
        f"ExecStopPost=-{after}",
        f"WorkingDirectory=-{_escape_value(str(unit.loaded.home.path))}",
        *(
            f"Environment={_quote_word(f'{name}={value}')}"
            for name, value in _unit_environment(unit)
        ),
        "# Keys of engines (`api_key_env`): NAME=value lines in a file that only its owner reads.",
        f"EnvironmentFile=-{_escape_value(str(unit.loaded.home.path / 'service.env'))}",
        "Restart=on-failure",
        "RestartSec=2",
        f"RestartPreventExitStatus={NO_RESTART_EXIT_CODES}",
        "TimeoutStartSec=60",
        f"TimeoutStopSec={stop_seconds}",
        f"WatchdogSec={WATCHDOG_SECONDS}",
        "# Terminals and engines outlive the daemon; workers end with it by themselves.",
        "KillMode=process",
        "OOMPolicy=continue",
        "TasksMax=infinity",
        "LimitNOFILE=65536",
        "UMask=0077",
        "# Groups that limit rollouts are made below the unit's own.",
        "Delegate=yes",
    ]
    lines += ["DelegateSubgroup=daemon"] * (unit.systemd >= DELEGATE_SUBGROUP_SINCE)
    lines += ["NoNewPrivileges=yes", "RestrictRealtime=yes"] * (not unit.setuid_bwrap)
    lines += [f"User={_escape_value(unit.user)}"] * unit.system
    return lines


def _install_section(unit: SystemdUnit) -> list[str]:
    target = "multi-user.target" if unit.system else "default.target"
    return ["[Install]", f"WantedBy={target}"]


def _exec_line(unit: SystemdUnit, *words: str) -> str:
    argv = [unit.python, "-m", "houston_shared.command", *words]
    argv += ["--home", str(unit.loaded.home.path)]
    if unit.loaded.file:
        argv += ["--config", unit.loaded.file]
    return " ".join(_quote_word(word).replace("$", "$$") for word in argv)


def _unit_environment(unit: SystemdUnit) -> list[tuple[str, str]]:
    """PATH as it is here (tmux, bwrap, Java), the configuration that came from variables, and the
    folders of models, sandboxes and configuration that this user's shell names.
    """
    manager = "system" if unit.system else "user"
    chosen = {
        name: value
        for name, value in unit.environment.items()
        if name.startswith("HOUSTON__") or name in KEPT_VARIABLES
    }
    return sorted({**chosen, UNIT_VARIABLE: f"{manager} {unit.name}"}.items())


def _quote_word(text: str) -> str:
    """A word as systemd reads it (systemd.syntax(7)): quoted where it must be."""
    plain = all(letter.isalnum() or letter in "/._-=:+@," for letter in text)
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n")
    return text if plain and text else f'"{escaped}"'


def _escape_value(text: str) -> str:
    """Text of which systemd takes every sign as it is; a line's end it could not have."""
    return text.replace("%", "%%")


def is_bwrap_setuid() -> bool:
    """Whether this machine's bubblewrap is setuid root."""
    bwrap = shutil.which("bwrap")
    return bool(bwrap) and bool(Path(os.path.realpath(str(bwrap))).stat().st_mode & stat.S_ISUID)
