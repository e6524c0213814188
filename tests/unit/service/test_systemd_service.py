"""The systemd unit: right for systemd, and right for what must outlive a restart."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.service.systemd_service import UNIT_VARIABLE, SystemdUnit, will_be_restarted
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import DaemonSettings
from houston_shared.home import Home
from tests.support.station import Station


def unit(home: str = "/srv/houston", **changes: Any) -> SystemdUnit:
    source = changes.pop("source", "defaults")
    settings: dict[str, Any] = {
        "loaded": LoadedConfiguration(
            Configuration(daemon=DaemonSettings(drain_seconds=10)), Home(Path(home)), source
        ),
        "name": "houston.service",
        "system": False,
        "user": "ada",
        "python": "/opt/houston/bin/python",
        "environment": {"PATH": "/usr/bin", "HOUSTON__DAEMON__GROUP": "lab", "SECRET": "x"},
        "systemd": 252,
        "setuid_bwrap": False,
    }
    return SystemdUnit(**{**settings, **changes})


def lines(made: SystemdUnit) -> dict[str, str]:
    """Keys and values; of a key given twice the last."""
    pairs = [line.partition("=") for line in made.text().splitlines() if "=" in line]
    return {key: value for key, _, value in pairs}


def test_terminals_and_engines_outlive_the_daemon_and_the_daemon_its_crashes() -> None:
    found = lines(unit())
    assert found["Type"] == "notify"
    assert found["KillMode"] == "process", "only the daemon itself is ever signalled"
    assert found["OOMPolicy"] == "continue", "an agent out of memory ends nothing else"
    assert found["Restart"] == "on-failure"
    assert {"65", "75", "78"} <= set(found["RestartPreventExitStatus"].split())
    assert int(found["TimeoutStopSec"]) > 10, "systemd waits longer than the daemon takes"
    assert found["Delegate"] == "yes"
    assert found["UMask"] == "0077"
    assert int(found["WatchdogSec"]) > 0


def test_what_bubblewrap_needs_stays_open() -> None:
    text = unit().text()
    for closed in ("PrivateTmp", "ProtectSystem", "RestrictNamespaces", "ProtectKernel", "Private"):
        assert closed not in text
    assert "NoNewPrivileges=yes" in text
    assert "NoNewPrivileges" not in unit(setuid_bwrap=True).text()


def test_it_starts_this_houston_on_this_home_with_this_configuration() -> None:
    found = lines(unit(source="/etc/houston.toml"))
    words = shlex.split(found["ExecStart"])
    assert words[:3] == ["/opt/houston/bin/python", "-m", "houston_shared.command"]
    assert words[words.index("--home") + 1] == "/srv/houston"
    assert words[words.index("--config") + 1] == "/etc/houston.toml"
    assert "--foreground" in words, "the process that systemd starts is the daemon"
    text = unit().text()
    assert "Environment=HOUSTON__DAEMON__GROUP=lab" in text
    assert "SECRET" not in text, "keys are never written into a unit"


@pytest.mark.parametrize(("systemd", "there"), [(252, False), (254, True), (0, False)])
def test_its_processes_lie_below_its_group_where_systemd_can(systemd: int, there: bool) -> None:
    assert ("DelegateSubgroup=daemon" in unit(systemd=systemd).text()) is there


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
@pytest.mark.parametrize("home", ["/srv/houston", '/srv/a b%c$d"e', "/srv/ünï"])
@pytest.mark.parametrize("system", [False, True])
def test_systemd_finds_nothing_wrong(tmp_path: Path, home: str, system: bool) -> None:
    file = tmp_path / "houston.service"
    user = "root" if system else ""
    file.write_text(unit(home, system=system, user=user, python=sys.executable).text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "houston" in line]
    assert (done.returncode, said) == (0, [])


@pytest.fixture
def managed(station: Station, tmp_path: Path) -> Station:
    station.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return station


def test_it_is_written_where_systemd_looks_and_removed_again(
    managed: Station, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "systemd" / "user" / "houston.service"
    printed = managed.run("daemon", "install-service", "--print")
    shown = printed.stdout
    assert not file.exists(), "showing writes nothing"
    assert str(file) in printed.stderr
    assert "enable --now" in printed.stderr
    assert "no such" not in shown
    said = managed.run("daemon", "install-service").stdout
    assert file.read_text() == shown
    assert "systemctl --user enable --now houston.service" in said
    assert "enable-linger" in said
    managed.run("daemon", "install-service")
    assert managed.run("daemon", "install-service", "--remove").stdout.startswith("removed")
    assert not file.exists()
    assert "there is no" in managed.run("daemon", "install-service", "--remove").stdout


def test_a_line_break_is_never_turned_into_something_else(managed: Station) -> None:
    managed.environment["HOUSTON__CONSOLE__NAME"] = "Ada\nExecStart=/bin/false"
    shown = managed.run("daemon", "install-service", "--print").stdout
    assert 'Environment="HOUSTON__CONSOLE__NAME=Ada\\nExecStart=/bin/false"' in shown
    managed.environment["HOUSTON_HOME"] += "\nhome"
    said = managed.run("daemon", "install-service", "--print", code=78).stderr
    assert "has a line break, which a unit cannot contain. No unit was installed." in said


@pytest.mark.parametrize("works", [True, False])
def test_a_unit_is_stopped_before_its_file_goes(
    managed: Station, tmp_path: Path, works: bool
) -> None:
    """systemctl is played by a script that notes whether the unit was there when it was asked."""
    managed.run("daemon", "install-service")
    file = tmp_path / "config" / "systemd" / "user" / "houston.service"
    program = tmp_path / "systemctl"
    program.write_text(
        f'#!/bin/sh\n[ "$2" = show ] && echo Version=252 && exit 0\n'
        f'[ "$2" = disable ] || exit 0\n[ -f {file} ] && echo "$@" >> {tmp_path}/asked\n'
        f"echo no such bus >&2; exit {int(not works)}\n"
    )
    program.chmod(0o755)
    managed.environment["PATH"] = f"{tmp_path}:{managed.environment['PATH']}"
    done = managed.run("daemon", "install-service", "--remove", code=int(not works))
    assert (tmp_path / "asked").read_text() == "--user disable --now houston.service\n"
    assert file.exists() is not works
    assert ("stopped and disabled" if works else "no such bus") in done.stdout + done.stderr


def test_it_keeps_the_folders_that_variables_name() -> None:
    kept = {name: f"/srv/{name}" for name in ("HOUSTON_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    text = unit(environment={"PATH": "/usr/bin", "SECRET": "x", **kept}).text()
    for name, value in kept.items():
        assert f"Environment={name}={value}\n" in text
    assert "SECRET" not in text


def test_a_unit_of_another_home_is_left_alone(managed: Station, tmp_path: Path) -> None:
    managed.run("daemon", "install-service")
    other = ["daemon", "install-service", "--home", str(tmp_path / "other")]
    refused = managed.run(*other, code=1)
    assert "--name" in refused.stderr
    assert "wrote" in managed.run(*other, "--name", "houston-other").stdout
    assert managed.run("daemon", "install-service", "--name", "../x", code=2).stderr


@pytest.mark.parametrize(
    ("mark", "result", "jobs", "again"),
    [
        ("user houston.service", "success", "12 houston.service restart running", True),
        ("user houston.service", "success", "12 houston.service start waiting", True),
        ("user houston.service", "success", "12 houston.service stop running", False),
        ("user houston.service", "success", "12 other.service restart running", False),
        ("user houston.service", "success", "", False),
        ("user houston.service", "watchdog", "", True),
        ("user houston.service", "exit-code", "", True),
        ("", "success", "12 houston.service restart running", False),
    ],
)
def test_engines_are_ended_only_when_the_daemon_does_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, result: str, jobs: str, again: bool
) -> None:
    """What systemd says after the daemon's end; systemctl is played by a script."""
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\n[ \"$2\" = list-jobs ] && echo '{jobs}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVICE_RESULT", result)
    monkeypatch.setenv(UNIT_VARIABLE, mark)
    assert will_be_restarted() is again
