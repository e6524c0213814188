"""A container's image as files: what of it is unpacked, and what an evaluator's copy lacks."""

import io
import logging
import stat
import tarfile
from pathlib import Path

import pytest

from houston_daemon.hosts.sandbox import image_files
from houston_shared.errors import HoustonError

MEMBERS = {
    **{f"./usr/bin/{name}": 0o755 for name in ("bash", "script", "tty")},
    "./dev/null0": 0o644,
    "app/dev/main.py": 0o644,
    "./usr/lib/p/dev/x": 0o644,
    "./etc/shadow": 0o000,
}


def test_only_the_images_own_devices_are_left_out(tmp_path: Path) -> None:
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as tar:
        for name, mode in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, 1
            tar.addfile(member, io.BytesIO(b"x"))
    image_files.unpack_image(image, tmp_path / "root")
    there = {
        f"{path.relative_to(tmp_path / 'root')}": path.stat().st_mode
        for path in (tmp_path / "root").rglob("*")
        if path.is_file()
    }
    wanted = {name.removeprefix("./") for name in MEMBERS} - {"dev/null0"}
    assert there.keys() == wanted
    assert there["etc/shadow"] & stat.S_IRUSR, "an evaluator's copy can be made"


REFUSED = "cp: cannot open '/w/secret' for reading: Permission denied"
"""What cp of coreutils 9.1 says."""
COPIES = {
    "what may not be read is left out": (REFUSED, ""),
    "a full disk is a failure": (
        "cp: error writing '/c/x': No space left on device",
        "No space left",
    ),
    "so are both": (f"{REFUSED}\ncp: error writing '/c/x': No space left on device", "No space"),
}
LEFT_OUT = {
    "a path that is too long": "cannot stat '/w/long': File name too long",
    "a file that vanished": "cannot stat '/w/gone': No such file or directory",
    "a file that became a link": "cannot open '/w/l': Too many levels of symbolic links",
    "a folder that became a file": "cannot access '/w/f': Not a directory",
    "a file that became another": "skipping file '/w/f', as it was replaced while being copied",
}
COPIES |= {f"{name} is left out": (f"{REFUSED}\ncp: {line}", "") for name, line in LEFT_OUT.items()}
KILLED = "a copy that was killed is a failure"
COPIES[KILLED] = (REFUSED, "Permission denied")


@pytest.mark.parametrize("case", COPIES)
def test_a_copy_without_what_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """The tests may run as root, whom nothing refuses: cp is a script that says so."""
    words, cause = COPIES[case]
    program = tmp_path / "cp"
    ends = "kill -9 $$" if case == KILLED else "exit 1"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\n{ends}\n")
    program.chmod(0o755)
    monkeypatch.setattr(image_files.shutil, "which", lambda name: str(program))
    if cause:
        with pytest.raises(HoustonError, match=cause):
            image_files.copy_readable(tmp_path, tmp_path / "copy")
    else:
        with caplog.at_level(logging.WARNING):
            (tmp_path / "copy").mkdir()
            image_files.copy_readable(tmp_path, tmp_path / "copy")
        assert "/w/secret" in caplog.text


def test_a_workspace_that_is_gone_has_no_copy(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="cannot be copied for the evaluator: it is gone"):
        image_files.copy_readable(tmp_path / "gone", tmp_path / "copy")
