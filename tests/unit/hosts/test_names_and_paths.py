"""Names survive a git tree, no path leads out of the workspace, no variable out of the sandbox."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile
from houston_daemon.hosts.snapshots import git_objects
from houston_daemon.hosts.untrusted_files import NoFollowFolder
from houston_shared.errors import HoustonError

_ODD = [".git", ".GIT", ".Git ", ".git.", "git~1", "GIT~2", ".git::$INDEX_ALLOCATION", "%houston%"]
_ODD += [".g\u200cit", os.fsdecode(b"\xff\xfe"), "%houston%2Egit"]


@pytest.mark.parametrize("name", _ODD)
def test_a_refused_name_is_escaped_and_comes_back(name: str) -> None:
    stored = git_objects.to_tree_name(name)
    assert stored.startswith("%houston%") and ".git" not in stored.lower() and stored.encode()
    assert git_objects.from_tree_name(stored) == name


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "legit~1x", "a b", "ü", "100%"])
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert git_objects.to_tree_name(name) == name


@given(st.binary(min_size=1).filter(lambda b: b"/" not in b and b"\0" not in b))
def test_every_name_comes_back(raw: bytes) -> None:
    name = os.fsdecode(raw)
    assert git_objects.from_tree_name(git_objects.to_tree_name(name)) == name
    assert git_objects.printable_path(name).encode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (inside / "folder" / "file").write_text("mine")
    (inside / "out").symlink_to(tmp_path / "outside")
    (inside / "up").symlink_to("..")
    (inside / "secret").symlink_to(tmp_path / "outside" / "secret")
    return inside


@pytest.mark.parametrize("path", ["out/secret", "up/outside/secret", "secret", "../outside/secret"])
def test_a_link_is_no_way_out(path: str, place: Path) -> None:
    with NoFollowFolder(place) as inside:
        with pytest.raises(OSError):
            inside.open(path, os.O_RDONLY)
        with pytest.raises(OSError):
            inside.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for again in range(2):  # a failure leaves nothing half open
            descriptor = inside.open("folder/file", os.O_RDONLY)
            assert os.read(descriptor, 10) == b"mine", again
            os.close(descriptor)


def test_removing_a_link_leaves_what_it_points_to(place: Path) -> None:
    with NoFollowFolder(place) as inside:
        for path in ("out", "secret", "folder", "not there", "not/there"):
            inside.remove(path)
    assert sorted(path.name for path in place.iterdir()) == ["up"]
    assert (place.parent / "outside" / "secret").read_text() == "secret"


def test_folders_are_made_on_the_way_and_links_cleared_from_it(place: Path) -> None:
    with NoFollowFolder(place) as inside:
        inside.clear_way("out/a/b")
        inside.make_link("out/a/b", b"target")
        inside.make_folder("x/y/z")
    assert os.readlink(place / "out" / "a" / "b") == "target"
    assert (place / "x" / "y" / "z").is_dir()
    assert [path.name for path in (place.parent / "outside").iterdir()] == ["secret"]


@pytest.mark.parametrize("values", [{"A": "x\0--bind\0/\0/tmp/in"}, {"A\0--bind\0/\0/tmp/in": "x"}])
def test_a_variable_cannot_become_an_argument_of_the_sandbox(
    values: dict[str, str], tmp_path: Path
) -> None:
    sandbox = SandboxProfile(
        "bubblewrap", tmp_path / "workspace", tmp_path / "home", tmp_path / "tmp"
    )
    with pytest.raises(HoustonError, match="NUL"):
        sandbox.wrap(["true"], environment=values)
    assert not [*tmp_path.rglob("settings-*")]
