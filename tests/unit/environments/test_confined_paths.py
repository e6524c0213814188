"""No path of the agent reaches a file outside its workspace, whatever it links to."""

import os
import socket
import threading
from pathlib import Path

import pytest

from houston_daemon.environments.workstation.confined_paths import ConfinedFolder, PathRefused


@pytest.fixture
def inside(workspace: Path) -> ConfinedFolder:
    (workspace.parent / "secret").write_text("secret")
    (workspace.parent / "outside").mkdir()
    (workspace.parent / "outside" / "key").write_text("secret")
    (workspace / "a.txt").write_text("mine")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "b.txt").write_text("mine")
    links = {
        "near": "a.txt",
        "folder/up": "../a.txt",
        "absolute": "/workspace/a.txt",
        "to_folder": "folder",
        "out": "../secret",
        "out_absolute": str(workspace.parent / "secret"),
        "out_folder": "../outside",
        "etc": "/etc",
        "loop": "loop",
        "round": "folder/../round",
        "dangling": "nothing",
        "two_steps": "folder/escape",
        "folder/escape": "../../secret",
    }
    for name, target in links.items():
        (workspace / name).symlink_to(target)
    os.mkfifo(workspace / "pipe")
    return ConfinedFolder(workspace)


GOOD = [
    ("a.txt", "a.txt"),
    ("./a.txt", "a.txt"),
    ("folder/../a.txt", "a.txt"),
    ("/workspace/a.txt", "a.txt"),
    ("/workspace//folder/./b.txt", "folder/b.txt"),
    ("near", "a.txt"),
    ("absolute", "a.txt"),
    ("folder/up", "a.txt"),
    ("to_folder/b.txt", "folder/b.txt"),
]


@pytest.mark.parametrize(("path", "where"), GOOD)
def test_paths_inside_are_found(inside: ConfinedFolder, path: str, where: str) -> None:
    with inside.file(path) as (found, place):
        assert os.read(found, 10) == b"mine"
        assert place.path == where


BAD = [
    ("../secret", "leads out"),
    ("folder/../../secret", "leads out"),
    ("/etc/passwd", "outside the workspace"),
    ("/workspace/../secret", "leads out"),
    ("/workspacex/a.txt", "outside the workspace"),
    ("out", "leads out"),
    ("out_absolute", "outside the workspace"),
    ("out_folder/key", "leads out"),
    ("etc/passwd", "outside the workspace"),
    ("two_steps", "leads out"),
    ("loop", "too many links"),
    ("round", "too many links"),
    ("dangling", "There is no"),
    ("missing", "There is no"),
    ("missing/b", "There is no"),
    ("a.txt/b", "no folder"),
    ("folder", "is a folder"),
    ("pipe", "no regular file"),
    ("a\0b", "NUL"),
    ("x" * 300, "too long"),
]


@pytest.mark.parametrize(("path", "why"), BAD, ids=[repr(path)[:30] for path, _ in BAD])
def test_paths_outside_are_refused(inside: ConfinedFolder, path: str, why: str) -> None:
    with pytest.raises(PathRefused, match=why), inside.file(path):
        pytest.fail("opened")


def test_a_socket_is_refused(workspace: Path, inside: ConfinedFolder) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(workspace / "s"))
        with pytest.raises(PathRefused), inside.file("s"):
            pytest.fail("opened")


def test_the_workspaces_own_path_is_understood(workspace: Path, inside: ConfinedFolder) -> None:
    """Without a sandbox the agent sees the real path."""
    with inside.file(str(workspace / "a.txt")) as (_, place):
        assert place.path == "a.txt"


def test_swapping_a_folder_for_a_link_never_leads_out(
    workspace: Path, inside: ConfinedFolder
) -> None:
    """The race that a check before the open would lose."""
    (workspace / "swap").mkdir()
    (workspace / "swap" / "key").write_text("mine")
    (workspace / "trap").symlink_to("../outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            os.rename(workspace / "swap", workspace / "kept")
            os.rename(workspace / "trap", workspace / "swap")
            os.rename(workspace / "swap", workspace / "trap")
            os.rename(workspace / "kept", workspace / "swap")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[bytes] = set()
    refused = 0
    try:
        for _ in range(3_000):
            try:
                with inside.file("swap/key") as (found, _place):
                    seen.add(os.read(found, 10))
            except PathRefused:
                refused += 1
    finally:
        done.set()
        swapping.join()
    assert b"secret" not in seen
    assert seen or refused
    assert len(os.listdir("/proc/self/fd")) < 100
