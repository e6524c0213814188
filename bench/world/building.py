"""Builds the workspaces that the benchmarks of snapshots look at, and compares two folders."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

PER_FOLDER = 500
BLOCK = 1 << 20


def many_files(folder: Path, count: int, size: int = 400) -> None:
    """`count` text files of about `size` bytes, 500 in each folder."""
    for number in range(count):
        file = folder / f"d{number // PER_FOLDER:04d}" / f"f{number % PER_FOLDER:03d}.txt"
        if number % PER_FOLDER == 0:
            file.parent.mkdir(parents=True)
        file.write_text((f"{number} " * size)[:size])


def big(folder: Path, files: int, megabytes: int) -> None:
    """A research workspace of `files` files and `megabytes` MB.

    Nested clones with their `.git`, ignored files and folders, links, empty folders, programs, odd
    names, files of 1 MB and checkpoints of 100 MB (or a tenth of the whole, if that is less).
    """
    folder.mkdir(parents=True)
    made = _clones(folder) + _oddities(folder)
    blob = random.Random(7).randbytes(BLOCK)
    medium = megabytes // 5
    for number in range(medium):
        _write(folder / "data" / f"part-{number:04d}.bin", blob, number, BLOCK)
    large = min(100, max(17, megabytes // 10))
    for number in range((megabytes - medium) // large):
        _write(folder / "checkpoints" / f"step-{number}.pt", blob, number, large * BLOCK)
        made += 1
    many_files(folder / "tree", files - medium - made, 2000)


def _write(file: Path, blob: bytes, number: int, size: int) -> None:
    """A file of its own content: one block that hardly compresses, marked by the file's number."""
    file.parent.mkdir(exist_ok=True)
    with file.open("wb") as output:
        for at in range(0, size, BLOCK):
            output.write(number.to_bytes(8, "big") + at.to_bytes(8, "big") + blob[16:])


def _clones(folder: Path) -> int:
    origin = folder / "third_party" / "origin"
    many_files(origin, 1200)
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=origin, check=True)
    for name in ("clone-a", "clone-b"):
        target = folder / "third_party" / name
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", origin, target], check=True)
    return sum(1 for _ in paths(folder))


def _oddities(folder: Path) -> int:
    before = sum(1 for _ in paths(folder))
    (folder / ".gitignore").write_text("*.log\nignored/\nnode_modules/\n*.pt\n")
    many_files(folder / "ignored" / "node_modules", 1000)
    (folder / "runs" / "empty" / "deeper").mkdir(parents=True)
    (folder / "link").symlink_to("tree")
    (folder / "broken link").symlink_to("nowhere/at all")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "name with ünicode\nand a line.txt").write_text("odd\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/latin-\xe9.txt")).write_text("odd\n")
    (folder / "nothing").write_text("")
    return sum(1 for _ in paths(folder)) - before


def paths(folder: Path) -> Iterator[str]:
    """Every file, link and empty folder below `folder`, relative to it."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        links = [name for name in folders if (here / name).is_symlink()]
        if not folders and not files:
            yield f"{here.relative_to(folder)}/"
        for name in (*files, *links):
            yield str((here / name).relative_to(folder))


def differences(one: Path, other: Path) -> dict[str, list[str]]:
    """What `other` lacks, has beyond, or has otherwise than `one`: content, kind, executable."""
    left, right = set(paths(one)), set(paths(other))
    changed = [path for path in left & right if not _same(one / path, other / path)]
    return {
        "missing": sorted(left - right),
        "beyond": sorted(right - left),
        "different": sorted(changed),
    }


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    if one.is_dir():
        return other.is_dir()
    left, right = one.stat(), other.stat()
    if left.st_size != right.st_size or (left.st_mode ^ right.st_mode) & 0o100:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(4 * BLOCK):
            if block != second.read(4 * BLOCK):
                return False
    return True
