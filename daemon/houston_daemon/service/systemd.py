"""What is asked of systemd through systemctl: its version, whether a restart is under way."""

import os
import subprocess

MARK = "HOUSTON_SERVICE"
"""Environment variable in which a daemon finds its unit: `user houston.service`."""
SECONDS = 10.0


def version() -> int:
    """Version of systemd here; 0 when there is none."""
    words = _said(["systemctl", "--version"]).split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def answers(system: bool) -> bool:
    """Whether the system's manager, or this user's, can be asked from here."""
    return bool(_said(systemctl((system, ""), "show", "--property=Version")).strip())


def own_unit() -> tuple[bool, str] | None:
    """Whether the system's manager runs this process, and its unit; None without a unit."""
    manager, _, name = os.environ.get(MARK, "").partition(" ")
    return (manager == "system", name) if name else None


def comes_again() -> bool:
    """Whether the unit that has just ended will be started again, by systemd or a restart.

    Called by the unit itself after its end (ExecStopPost), where systemd says how it ended.
    """
    unit = own_unit()
    if unit is None:
        return False
    if os.environ.get("SERVICE_RESULT", "success") != "success":
        return True
    jobs = _said(systemctl(unit, "list-jobs", "--no-legend", "--plain"))
    rows = [line.split() for line in jobs.splitlines()]
    return any(row[1:2] == [unit[1]] and row[2:3] in (["restart"], ["start"]) for row in rows)


def systemctl(unit: tuple[bool, str], *words: str) -> list[str]:
    """A systemctl command to the manager of a unit."""
    return ["systemctl", *(() if unit[0] else ("--user",)), *words]


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
