"""A long home's sockets lie where its daemon wrote, and never in a stranger's folder."""

import grp
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from houston_daemon.service.home_setup import prepare_socket_folder
from houston_shared.errors import HoustonError
from houston_shared.home import IPC_PATH_LIMIT, Home


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose sockets are within the limit (pytest's own may not be)."""
    with tempfile.TemporaryDirectory(prefix="houston-test-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose own path is too long, and a temporary folder of the test's own."""
    made = Home(short / ("long" * 30))
    made.path.mkdir()
    (short / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(short / "t"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return made


def runtime(short: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Path:
    folder = short / name
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def test_a_client_with_another_environment_finds_the_daemon(
    home: Home, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cron, systemd and SSH set XDG_RUNTIME_DIR differently, or not at all."""
    prepare_socket_folder(home, "")
    chosen = home.run
    assert chosen.parent == short / "t"
    assert (chosen.stat().st_mode & 0o777, chosen.stat().st_uid) == (0o700, os.geteuid())
    runtime(short, monkeypatch, "xdg")
    assert Home(home.path).run == chosen
    prepare_socket_folder(home, "")
    assert home.run == chosen, "the next daemon keeps it"


def test_what_was_noted_is_left_when_it_has_gone(
    home: Home, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime folder ends with its login."""
    login = runtime(short, monkeypatch, "xdg")
    prepare_socket_folder(home, "")
    home.run.rmdir()
    login.rmdir()
    prepare_socket_folder(home, "")
    assert home.run.parent == short / "t"
    assert home.run.is_dir()


UNUSABLE: dict[str, Callable[[Path], str]] = {
    "not there": lambda tmp: str(tmp / "nowhere"),
    "relative": lambda tmp: "nowhere",
    "too long": lambda tmp: str(tmp / ("far" * 20)),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_runtime_folder_that_cannot_be_used_is_passed_over(
    case: str, home: Home, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = UNUSABLE[case](short)
    if case == "too long":
        Path(named).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", named)
    monkeypatch.chdir(short)
    prepare_socket_folder(home, "")
    assert home.run.parent == short / "t"
    assert len(os.fsencode(home.run / "control.sock")) <= IPC_PATH_LIMIT
    assert not (short / "nowhere").exists(), "nothing is made where nothing was"


def test_a_copied_home_does_not_use_the_folder_of_the_other(home: Home) -> None:
    prepare_socket_folder(home, "")
    copy = Home(home.path.with_name("copy" * 30))
    copy.path.mkdir()
    copy.run_note.write_bytes(home.run_note.read_bytes())
    assert copy.run != home.run
    prepare_socket_folder(copy, "")
    assert copy.noted_run == copy.run


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_of_somebody_else_is_refused(home: Home, short: Path, kind: str) -> None:
    theirs = short / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    place = next(home.run_places())
    if kind == "link":
        place.symlink_to(theirs)
    else:
        theirs.rename(place)
    with pytest.raises(HoustonError, match="not a folder of this user"):
        prepare_socket_folder(home, "")
    assert home.noted_run is None


def test_annotators_of_the_group_can_get_there(
    home: Home, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime folder of a login is closed to them; the one for temporary files is not."""
    closed = runtime(short, monkeypatch, "xdg")
    closed.chmod(0o700)
    prepare_socket_folder(home, grp.getgrgid(os.getegid()).gr_name)
    assert home.run.parent == Path("/tmp"), "the test's folders are closed, too"
    home.run.rmdir()
    assert home.run_note.stat().st_mode & 0o044 == 0o044
