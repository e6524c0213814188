"""Where groups may be made, on machines of many kinds; and real groups of both versions."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from houston_daemon.hosts.guard import control_groups
from houston_daemon.hosts.guard.control_groups import find_cgroup_folders
from houston_daemon.hosts.resource_limits import ResourceLimits

V2 = "30 25 0:26 / {root} rw - cgroup2 cgroup2 rw\n"
V1 = (
    "31 25 0:27 / {root}/pids rw - cgroup cgroup rw,pids\n"
    "32 25 0:28 / {root}/memory rw - cgroup cgroup rw,memory\n"
)
PART = "30 25 0:26 /docker/abc {root} rw - cgroup2 cgroup2 rw\n"

MACHINES = {
    # name: (mounts, own groups, {folder: files with contents}, mechanism, folder under root)
    "delegated, the daemon in a leaf of its unit": (
        V2, "0::/unit/daemon",
        {"unit": "memory pids", "unit/daemon": ""}, "cgroup2", "unit",
    ),
    "a user's slice that gives controllers": (
        V2, "0::/user/app/scope",
        {"user": "memory pids", "user/app": "cpu memory pids", "user/app/scope": ""},
        "cgroup2", "user/app",
    ),
    "the root of all": (V2, "0::/", {".": "memory pids"}, "cgroup2", "."),
    "controllers that nobody gives": (V2, "0::/unit", {"unit": ""}, "watchdog", ""),
    "only a part of the tree, mounted as the whole": (
        PART, "0::/docker/abc/daemon", {".": "memory pids", "daemon": ""}, "cgroup2", ".",
    ),
    "version 1": (
        V1, "2:pids:/a\n3:memory:/a", {"pids/a": "", "memory/a": ""}, "cgroup1", "pids/a",
    ),
    "version 1 with a path that is not mounted": (
        V1, "2:pids:/docker/x\n3:memory:/docker/x", {"pids": "", "memory": ""}, "cgroup1", "pids",
    ),
    "version 1 without memory": (V1, "2:pids:/", {"pids": ""}, "watchdog", ""),
    "nothing": ("", "0::/", {}, "watchdog", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_the_best_place_is_found(name: str, tmp_path: Path) -> None:
    mounts, own, folders, mechanism, where = MACHINES[name]
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    root.mkdir()
    for folder, gives in folders.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "cgroup.procs").write_text("")
        (root / folder / "cgroup.controllers").write_text(gives)
        (root / folder / "cgroup.subtree_control").write_text(gives)
        if folder != ".":
            (root / folder / "cgroup.type").write_text("domain")
    (proc / "mountinfo").write_text(mounts.format(root=root))
    (proc / "cgroup").write_text(own + "\n")
    found = find_cgroup_folders(proc)
    assert found.mechanism == mechanism
    if mechanism == "cgroup2":
        assert found.folders == {"all": root / where}
    elif mechanism == "cgroup1":
        assert found.folders["pids"] == root / where


def _tree() -> Path | None:
    """A version 2 tree of this machine in which this user may make groups."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4])
        if " - cgroup2 " in line and os.access(point / "cgroup.procs", os.W_OK):
            return point
    return None


@pytest.mark.skipif(_tree() is None, reason="no cgroup of version 2 may be made here")
def test_a_group_of_version_2_is_joined_ended_and_removed(tmp_path: Path) -> None:
    tree = _tree()
    assert tree is not None
    folder = tree / f"houston-test-{os.getpid()}"
    note = tmp_path / "limits" / "r.json"
    groups = control_groups.ControlGroups(
        note, control_groups.CgroupNote("cgroup2", {"all": str(folder)})
    )
    groups.save()
    folder.mkdir()
    child = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            'echo $$ >"$1"; sleep 60 & exec sleep 60',
            "join",
            *map(str, groups.procs_files),
        ]
    )
    try:
        while len(groups.pids()) < 2:
            assert child.poll() is None
        again = control_groups.find_groups(note)
        assert again is not None and child.pid in again.pids()
        assert again.end()
    finally:
        child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not folder.exists() and not note.exists()


BEGUN = {
    # name: (what all may use, as each that begins says it, and what holds then), in bytes; 0: none
    "a lower one comes later": ([900, 100], "900"),
    "a higher one comes later": ([100, 900], "900"),
    "one that was just made": ([100], "100"),
    "one without a limit comes later": ([900, 0], "max"),
}


@pytest.mark.parametrize("name", BEGUN)
def test_a_rollout_that_begins_never_lowers_what_all_may_use(name: str, tmp_path: Path) -> None:
    limits, holds = BEGUN[name]
    around = tmp_path / "around"
    for number, together in enumerate(limits):
        about = control_groups.CgroupNote(
            "cgroup2", {"all": str(around / f"r{number}")}, around=str(around)
        )
        groups = control_groups.ControlGroups(tmp_path / "note", about)
        groups.limit(ResourceLimits(together=together))
    assert (around / "memory.max").read_text() == holds


def test_groups_whose_limits_the_kernel_refuses_keep_those_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version 1 does where more is used than the new limit allows."""
    folder, note = tmp_path / "group", tmp_path / "limits" / "r.json"
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    (folder / "memory.max").mkdir()  # nothing can be written into it
    about = control_groups.CgroupNote("cgroup2", {"all": str(folder)})
    control_groups.ControlGroups(note, about).save()
    groups = control_groups.find_or_make_groups(note, "r", ResourceLimits(memory=100))
    assert groups.procs_files == [folder / "cgroup.procs"]
    assert control_groups.find_groups(note) is not None


def test_a_group_that_may_not_be_made_leaves_the_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree was there a moment ago; its limits cannot be set."""
    gone = control_groups.CgroupFolders("cgroup2", {"all": tmp_path / "gone"})
    monkeypatch.setattr(control_groups, "find_cgroup_folders", lambda: gone)
    note = tmp_path / "limits" / "r.json"
    groups = control_groups.find_or_make_groups(note, "name", ResourceLimits())
    assert (groups.mechanism, groups.procs_files) == ("watchdog", [])
    found = control_groups.find_groups(note)
    assert found is not None and found.mechanism == "watchdog"
    assert groups.end() and not note.exists()
