"""What comes from another machine is unpacked: files, folders and links, in one place only."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from houston_daemon.hosts.ssh.remote_access import unpack_workspace


def packed(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar file of (name, type, link or content)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.uid, member.gid, member.mode = kind, 4711, 4711, 0o644
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
                continue
            member.linkname = text
            tar.addfile(member)
    file.seek(0)
    return file


def test_links_are_links_whatever_they_name(tmp_path: Path) -> None:
    into = tmp_path / "into"
    unpack_workspace(
        packed(("a", tarfile.REGTYPE, "x"), ("l", tarfile.SYMTYPE, "/etc/passwd")), into
    )
    assert ((into / "a").read_text(), os.readlink(into / "l")) == ("x", "/etc/passwd")
    assert (into / "a").stat().st_uid == os.getuid()


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_nothing_else_is_made(tmp_path: Path, kind: bytes) -> None:
    into = tmp_path / "into"
    unpack_workspace(packed(("odd", kind, "/etc/passwd"), ("a", tarfile.REGTYPE, "x")), into)
    assert [path.name for path in into.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, ".."), ("l/out", tarfile.REGTYPE, "x")],
    ],
)
def test_nothing_is_written_beside_it(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    with pytest.raises(tarfile.TarError):
        unpack_workspace(packed(*members), tmp_path / "into")
    assert not (tmp_path / "out").exists()
