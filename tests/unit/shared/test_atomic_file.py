"""A folder that is made whole or not at all: where it may be, and how the making may end."""

import errno
from pathlib import Path

import pytest

from houston_shared.atomic_file import fill_folder_atomically


@pytest.fixture(params=["new", "empty", "link"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that may be made: below one that is not there, empty with a mode, a link to one."""
    if request.param == "new":
        return tmp_path / "above" / "new"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty").chmod(0o2770)
    (tmp_path / "link").symlink_to("empty")
    return tmp_path / request.param


def state_of(folder: Path) -> tuple[bool, int, list[str]]:
    """Whether it is a link; mode; what is in it."""
    mode = folder.stat().st_mode if folder.exists() else 0
    return folder.is_symlink(), mode, [each.name for each in folder.glob("*")]


def fill(folder: Path, text: str, ending: BaseException | None = None) -> None:
    with fill_folder_atomically(folder) as filled:
        (filled / "inner").mkdir()
        (filled / "inner" / "file").write_text(text)
        assert not (folder / "inner").exists()
        if ending:
            raise ending


def test_what_was_made_is_there_whole(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    link, mode, _ = state_of(folder)
    fill(folder, "x")
    expected = mode or (tmp_path / "plain").stat().st_mode
    assert state_of(folder) == (link, expected, ["inner"])
    assert (folder / "inner" / "file").read_text() == "x"
    assert not any(tmp_path.rglob(".*")), "nothing is left beside"


@pytest.mark.parametrize(
    "ending", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt(), SystemExit(143)], ids=repr
)
def test_after_an_exception_all_is_as_it_was(
    folder: Path, ending: BaseException, tmp_path: Path
) -> None:
    before = state_of(folder)
    with pytest.raises(type(ending)):
        fill(folder, "x", ending)
    assert state_of(folder) == before
    assert not any(tmp_path.rglob(".*"))


def test_of_two_at_once_the_first_to_end_stays(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not empty"), fill_folder_atomically(folder) as later:
        (later / "file").touch()
        fill(folder, "first")
    assert [each.name for each in folder.iterdir()] == ["inner"]
    assert (folder / "inner" / "file").read_text() == "first"
    assert not any(tmp_path.rglob(".*"))
