"""A small container image for tests: bash, a few programs, and the libraries they need."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

PROGRAMS = (
    "bash", "sh", "script", "cat", "chmod", "cp", "env", "id", "ls", "mkdir", "rm", "stty", "tail",
    "touch", "tr", "true", "tty",
)  # fmt: skip
"""What sessions, the tests of a task and a script of the tests here run."""
MARK = "made of a few programs\n"
"""Content of `/etc/small-image`, which no machine has."""


def make_root(folder: Path) -> Path:
    """The files of the image, below `folder`."""
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program, name
        _copy(Path(program), folder / "usr/bin" / name)
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            _copy(Path(library), folder / library.lstrip("/"))
    (folder / "bin").symlink_to("usr/bin")
    for empty in ("etc", "root", "tmp", "opt"):
        (folder / empty).mkdir()
    (folder / "etc/small-image").write_text(MARK)
    return folder


def make_tar(root: Path, file: Path) -> Path:
    """The same as one file, as `podman export` writes it."""
    with tarfile.open(file, "w") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name)
    return file


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(source.resolve(), target)
