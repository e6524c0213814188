"""What the doctor says of a machine's disk, descriptors, sockets and folders."""

import os
import resource
from pathlib import Path

import pytest

from houston_daemon.commands import doctor_commands
from houston_daemon.commands.doctor_commands import DoctorCheck
from houston_daemon.hosts.guard.control_groups import CgroupFolders
from houston_daemon.service import home_setup
from houston_daemon.service.check_findings import CheckFinding
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import DaemonSettings
from houston_shared.home import Home

MOUNTS = "21 1 0:20 / / {options} - {kind} /dev/vda rw\n"


def loaded(home: Path, rollouts: int = 64) -> LoadedConfiguration:
    return LoadedConfiguration(
        Configuration(daemon=DaemonSettings(max_rollouts=rollouts)), Home(home), "defaults"
    )


def only(check: DoctorCheck, on: LoadedConfiguration, name: str) -> CheckFinding:
    (finding,) = [finding for finding in check(on) if finding.name == name]
    assert finding.state == "ok" or finding.next, "who finds something says what to do"
    return finding


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("ext4", "ok"),
        ("xfs", "ok"),
        ("overlay", "ok"),
        ("nfs4", "fail"),
        ("lustre", "fail"),
        ("fuse.sshfs", "fail"),
        ("fuse.unheard_of", "warn"),
    ],
)
def test_a_home_on_each_kind_of_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
) -> None:
    monkeypatch.setattr(doctor_commands, "filesystem_type", lambda path: kind)
    finding = only(doctor_commands.check_home, loaded(tmp_path), "home")
    assert (finding.state, kind in finding.text) == (state, True)


def test_options_of_a_mount_are_read(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(options="rw,noexec,nosuid", kind="tmpfs"))
    assert "noexec" in home_setup.mount_options(tmp_path, mounts)


def test_a_temporary_folder_in_which_nothing_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_commands.tempfile, "gettempdir", lambda: str(tmp_path))
    assert only(doctor_commands.check_temporary_folder, loaded(tmp_path), "tmp").state == "ok"
    monkeypatch.setattr(doctor_commands, "mount_options", lambda folder: {"noexec"})
    assert only(doctor_commands.check_temporary_folder, loaded(tmp_path), "tmp").state == "warn"
    monkeypatch.setattr(doctor_commands.tempfile, "gettempdir", lambda: "/proc")
    assert only(doctor_commands.check_temporary_folder, loaded(tmp_path), "tmp").state == "fail"


@pytest.mark.parametrize("booted", [True, False], ids=["by systemd", "without systemd"])
def test_without_control_groups_it_says_what_gives_some(
    booted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        doctor_commands, "find_cgroup_folders", lambda: CgroupFolders("watchdog", {})
    )
    monkeypatch.setattr(
        doctor_commands, "RUNNING_SYSTEMD", tmp_path if booted else tmp_path / "none"
    )
    finding = only(doctor_commands.check_process_limits, loaded(tmp_path), "limits")
    assert finding.state == "warn" and "watchdog" in finding.text
    assert ("houston daemon install-service" in finding.next) is booted


def test_open_files_for_every_rollout_and_console(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert only(doctor_commands.check_descriptor_limit, loaded(tmp_path, 1), "files").state == "ok"
    if hard != resource.RLIM_INFINITY:
        finding = only(doctor_commands.check_descriptor_limit, loaded(tmp_path, hard), "files")
        assert finding.state == "warn"
        assert "ulimit" in finding.next


@pytest.mark.parametrize("length", [10, 200])
def test_sockets_of_a_long_home_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    home = Path("/srv") / ("h" * length)
    assert only(doctor_commands.check_socket_folder, loaded(home), "sockets").state == "ok"
    monkeypatch.setattr("houston_shared.home.TEMPORARY", "/nowhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    expected = "ok" if length < 100 else "fail"
    assert only(doctor_commands.check_socket_folder, loaded(home), "sockets").state == expected


@pytest.mark.parametrize(("free", "files", "state"), [(1, 0, "warn"), (9_000, 9, "warn")])
def test_a_disk_without_bytes_or_without_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, files: int, state: str
) -> None:
    class Used:
        def __init__(self) -> None:
            self.free = free * 1_000_000

    real = os.statvfs(tmp_path)
    counts = os.statvfs_result([*real[:5], max(files, 1), files, files, *real[8:]])
    monkeypatch.setattr(doctor_commands.shutil, "disk_usage", lambda folder: Used())
    monkeypatch.setattr(doctor_commands.os, "statvfs", lambda folder: counts)
    assert only(doctor_commands.check_home, loaded(tmp_path), "space").state == state


def test_the_clock_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor_commands.check_clock, loaded(tmp_path), "clock").state in ("ok", "warn")
    monkeypatch.setattr(doctor_commands, "_is_clock_synchronised", lambda: True)
    assert only(doctor_commands.check_clock, loaded(tmp_path), "clock").state == "ok"
    monkeypatch.setattr(doctor_commands.time, "time", lambda: 0.0)
    assert only(doctor_commands.check_clock, loaded(tmp_path), "clock").state == "fail"


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        pytest.param("podman version 4.3.1", "ok", "podman version 4.3.1 makes them", id="works"),
        pytest.param("", "warn", "neither podman nor docker works here", id="refuses"),
        pytest.param(None, "warn", "neither podman nor docker works here", id="none"),
    ],
)
def test_what_makes_images_is_asked_and_not_only_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, state: str, said: str
) -> None:
    if answer is not None:
        program = tmp_path / "podman"
        program.write_text(f"#!/bin/sh\necho '{answer}'\nexit {int(not answer)}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = only(doctor_commands.check_image_engine, loaded(tmp_path), "images")
    assert (finding.state, said in finding.text) == (state, True)
