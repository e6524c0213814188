"""The systemd unit of a daemon, as text; what each line is for stands beside it.

Terminals and engines are processes of the unit's group that must outlive a restart of the daemon:
only its main process is ever signalled (KillMode=process), one of them running out of memory does
not end the rest (OOMPolicy=continue), and the group is the daemon's to divide (Delegate). The
hardening is what bubblewrap and a home shared with a group leave room for: no private mounts, no
masked /proc, no closed namespaces.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.service.forcing import leaving_seconds
from houston_daemon.service.systemd import MARK
from houston_shared.config import Loaded

WATCHDOG_SECONDS = 60
SUBGROUP_SINCE = 254
"""First systemd that puts a service's processes into a group below its own (DelegateSubgroup)."""
FINAL_CODES = "2 65 75 78"
"""Exit codes that a restart does not mend: usage, damage, another daemon, configuration."""

KEPT = ("PATH", "HOUSTON_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Variables beside the configuration's without which a service would look in other folders."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit is made of."""

    loaded: Loaded
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
        lines = [*_unit(self), "", *_service(self), "", *_install(self)]
        return "\n".join(lines) + "\n"


def _unit(unit: Unit) -> list[str]:
    home = unit.loaded.home.path
    lines = [
        "# Written by `houston daemon install-service`, which overwrites it.",
        "[Unit]",
        f"Description=Houston on {_value(str(home))}",
        # Five starts within ten minutes that fail: then it waits for a person.
        "StartLimitIntervalSec=600",
        "StartLimitBurst=5",
    ]
    if unit.system:
        lines += ["After=network-online.target", "Wants=network-online.target"]
        lines += [f"RequiresMountsFor={_word(str(home))}"]
    return lines


def _service(unit: Unit) -> list[str]:
    start = _command(unit, "daemon", "start", "--foreground")
    after = _command(unit, "daemon", "stop", "--service-ended")
    stop_seconds = int(leaving_seconds(unit.loaded)) + 10
    lines = [
        "[Service]",
        "# The process that is started is the daemon itself; it says READY, STATUS and WATCHDOG.",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={start}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "# Ends the engines, unless the daemon is to be started again.",
        f"ExecStopPost=-{after}",
        f"WorkingDirectory=-{_value(str(unit.loaded.home.path))}",
        *(f"Environment={_word(f'{name}={value}')}" for name, value in _variables(unit)),
        "# Keys of engines (`api_key_env`): NAME=value lines in a file that only its owner reads.",
        f"EnvironmentFile=-{_value(str(unit.loaded.home.path / 'service.env'))}",
        "Restart=on-failure",
        "RestartSec=2",
        f"RestartPreventExitStatus={FINAL_CODES}",
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
    lines += ["DelegateSubgroup=daemon"] * (unit.systemd >= SUBGROUP_SINCE)
    lines += ["NoNewPrivileges=yes", "RestrictRealtime=yes"] * (not unit.setuid_bwrap)
    lines += [f"User={_value(unit.user)}"] * unit.system
    return lines


def _install(unit: Unit) -> list[str]:
    wanted = "multi-user.target" if unit.system else "default.target"
    return ["[Install]", f"WantedBy={wanted}"]


def _command(unit: Unit, *words: str) -> str:
    argv = [unit.python, "-m", "houston_shared.command", *words]
    argv += ["--home", str(unit.loaded.home.path)]
    if unit.loaded.source != "defaults":
        argv += ["--config", unit.loaded.source]
    return " ".join(_word(word).replace("$", "$$") for word in argv)


def _variables(unit: Unit) -> list[tuple[str, str]]:
    """PATH as it is here (tmux, bwrap, Java), the configuration that came from variables, and the
    folders of models, sandboxes and configuration that this user's shell names.
    """
    manager = "system" if unit.system else "user"
    chosen = {
        name: value
        for name, value in unit.environment.items()
        if name.startswith("HOUSTON__") or name in KEPT
    }
    return sorted({**chosen, MARK: f"{manager} {unit.name}"}.items())


def _word(text: str) -> str:
    """A word as systemd reads it (systemd.syntax(7)): quoted where it must be."""
    plain = all(letter.isalnum() or letter in "/._-=:+@," for letter in text)
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n")
    return text if plain and text else f'"{escaped}"'


def _value(text: str) -> str:
    """Text of which systemd takes every sign as it is; a line's end it could not have."""
    return text.replace("%", "%%")


def setuid_bwrap() -> bool:
    """Whether this machine's bubblewrap is setuid root."""
    found = shutil.which("bwrap")
    return bool(found) and bool(Path(os.path.realpath(str(found))).stat().st_mode & stat.S_ISUID)
