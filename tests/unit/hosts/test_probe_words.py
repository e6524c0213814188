"""What is said of a machine that closes user namespaces: which setting, and what opens them."""

from pathlib import Path

import pytest

from houston_daemon.hosts.sandbox import sandboxed_process


def test_the_setting_that_closes_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Path("/proc/sys/kernel/pid_max").read_text().strip()
    switches = {"kernel.pid_max": (now, "7"), "kernel.no_such_setting": ("0", "1")}
    monkeypatch.setattr(sandboxed_process, "_SWITCHES", switches)
    trouble = sandboxed_process._explain_failure("bwrap: No permissions to create a new namespace")
    assert "kernel.pid_max is set against it" in trouble.cause
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
