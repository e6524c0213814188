"""What is said of a machine that closes user namespaces: which setting, and what opens them."""

from pathlib import Path

import pytest

from houston_daemon.hosts import system_packages
from houston_daemon.hosts.sandbox import sandboxed_process


def test_the_setting_that_closes_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Path("/proc/sys/kernel/pid_max").read_text().strip()
    switches = {"kernel.pid_max": (now, "7"), "kernel.no_such_setting": ("0", "1")}
    monkeypatch.setattr(sandboxed_process, "_SWITCHES", switches)
    trouble = sandboxed_process._explain_failure("bwrap: No permissions to create a new namespace")
    assert "kernel.pid_max forbids it" in trouble.cause
    assert "sysctl kernel.pid_max=7" in trouble.next and "no_such" not in trouble.next


def test_without_such_a_setting_all_that_could_be_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = {name: ("never", opened) for name, (_, opened) in sandboxed_process._SWITCHES.items()}
    monkeypatch.setattr(sandboxed_process, "_SWITCHES", never)
    trouble = sandboxed_process._explain_failure("bwrap: setting up uid map: Permission denied")
    for name in (
        "kernel.unprivileged_userns_clone=1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
        "user.max_user_namespaces=15000",
    ):
        assert name in trouble.next


ASKING = {
    "root": (True, 0, False, "apt install tmux"),
    "a user with sudo": (True, 1000, True, "sudo apt install tmux"),
    "a user without": (True, 1000, False, "Ask an administrator for: apt install tmux"),
    "another distribution": (False, 1000, True, "Install tmux with this machine's package manager"),
}


@pytest.mark.parametrize("who", ASKING)
def test_who_may_not_install_is_not_told_to(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian, uid, sudo, advice = ASKING[who]
    for name, there in (("apt-get", debian), ("sudo", sudo)):
        if there:
            (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(system_packages, "APT", tmp_path / "apt-get")
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: uid)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system_packages.advise_install("tmux") == advice
