"""An edit changes the lines it names and no other byte."""

import os
from pathlib import Path

import pytest

from houston_daemon.environments.workstation.confined_paths import PathRefused
from tests.unit.environments.conftest import Files

EDITS = [
    ("replace one", b"a\nb\nc\n", 2, 2, "B", b"a\nB\nc\n"),
    ("replace by more", b"a\nb\nc\n", 2, 2, "1\n2\n", b"a\n1\n2\nc\n"),
    ("replace all", b"a\nb\n", 1, 2, "x", b"x\n"),
    ("remove", b"a\nb\nc\n", 2, 3, "", b"a\n"),
    ("remove all", b"a\n", 1, 1, "", b""),
    ("insert before", b"a\nb\n", 2, 1, "x", b"a\nx\nb\n"),
    ("insert first", b"a\n", 1, 0, "x", b"x\na\n"),
    ("append", b"a\n", 2, 1, "x", b"a\nx\n"),
    ("append without last feed", b"a", 2, 1, "x", b"a\nx"),
    ("into empty", b"", 1, 0, "x\n", b"x\n"),
    ("last line without feed", b"a\nb", 2, 2, "x", b"a\nx"),
    ("middle without last feed", b"a\nb", 1, 1, "x", b"x\nb"),
    ("CRLF", b"a\r\nb\r\n", 1, 1, "x\ny", b"x\r\ny\r\nb\r\n"),
    ("invalid UTF-8 elsewhere", b"\xff\xfe\nb\n\x80", 2, 2, "x", b"\xff\xfe\nx\n\x80"),
    ("umlauts", "ä\nö\n".encode(), 1, 1, "ü", "ü\nö\n".encode()),
]


@pytest.mark.parametrize(
    ("_", "before", "start", "end", "content", "after"), EDITS, ids=[row[0] for row in EDITS]
)
async def test_edits(
    files: Files, _: str, before: bytes, start: int, end: int, content: str, after: bytes
) -> None:
    (files.root / "a").write_bytes(before)
    edited = await files("edit_file", path="a", start=start, end=end, content=content)
    assert edited.success, edited.error
    assert (files.root / "a").read_bytes() == after
    assert edited.change == "edited"
    assert files.actions.take_written_paths() == ["a"]


REFUSED = [
    ("beyond the end", b"a\nb\n", 3, 3, "2 lines; lines 3 to 3 are not in it"),
    ("half beyond", b"a\nb\n", 2, 5, "not in it"),
    ("far insert", b"a\n", 5, 4, "start=2, end=1 appends"),
    ("end before start", b"a\nb\n", 2, 0, "end = start - 1 inserts"),
    ("empty file", b"", 1, 1, "0 lines"),
    ("binary", b"a\0b\n", 1, 1, "binary"),
]


@pytest.mark.parametrize(
    ("_", "before", "start", "end", "why"), REFUSED, ids=[row[0] for row in REFUSED]
)
async def test_refused_edits_change_nothing(
    files: Files, _: str, before: bytes, start: int, end: int, why: str
) -> None:
    (files.root / "a").write_bytes(before)
    failed = await files("edit_file", path="a", start=start, end=end, content="x")
    assert not failed.success
    assert why in failed.error
    assert (files.root / "a").read_bytes() == before


async def test_an_edit_shows_its_place(files: Files) -> None:
    (files.root / "a").write_text("".join(f"{n}\n" for n in range(1, 101)))
    await files("open_file", path="a")
    edited = await files("edit_file", path="a", start=50, end=51, content="new")
    assert "50 new" in edited.content
    assert edited.first_line == 45
    assert edited.total_lines == 99


async def test_blind_edits_are_told_apart(files: Files) -> None:
    path = files.root / "a"
    path.write_text("a\nb\n")
    unseen = await files("edit_file", path="a", start=1, end=1, content="x")
    seen = await files("edit_file", path="a", start=1, end=1, content="y")
    path.write_text("changed behind its back\n")
    behind = await files("edit_file", path="a", start=1, end=1, content="z")
    await files("open_file", path="a")
    looked = await files("edit_file", path="a", start=1, end=1, content="w")
    assert [one.blind for one in (unseen, seen, behind, looked)] == [True, False, True, False]


async def test_create_writes_folders_and_tells_a_new_file_from_a_replaced_one(files: Files) -> None:
    first = await files("create_file", filename="deep/er/a.txt", content="one\ntwo\n")
    second = await files("create_file", filename="deep/er/a.txt", content="")
    assert (first.change, second.change) == ("created", "replaced")
    assert first.content == "1 one\n2 two"
    assert (files.root / "deep/er/a.txt").read_text() == ""
    assert not second.blind


async def test_create_keeps_the_mode_of_a_program(files: Files) -> None:
    path = files.root / "run.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    replaced = await files("create_file", filename="run.sh", content="#!/bin/sh\nls\n")
    assert replaced.blind
    assert os.stat(path).st_mode & 0o777 == 0o755


@pytest.mark.parametrize("where", ["../out", "/etc/out", "link/out", "folder"])
async def test_create_stays_inside(files: Files, where: str) -> None:
    (files.root / "link").symlink_to("..")
    (files.root / "folder").mkdir()
    with pytest.raises(PathRefused):
        await files("create_file", filename=where, content="x")
    assert not (files.root.parent / "out").exists()


async def test_writing_through_a_link_inside_changes_its_target(files: Files) -> None:
    (files.root / "real").write_text("a\n")
    (files.root / "link").symlink_to("real")
    edited = await files("edit_file", path="link", start=1, end=1, content="b")
    assert edited.path == "real"
    assert (files.root / "link").is_symlink()
    assert (files.root / "real").read_text() == "b\n"


async def test_nothing_half_written_is_left_behind(files: Files, workspace: Path) -> None:
    await files("create_file", filename="a", content="x")
    await files("edit_file", path="a", start=1, end=1, content="y")
    assert os.listdir(workspace) == ["a"]
