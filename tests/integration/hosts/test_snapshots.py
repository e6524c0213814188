"""Snapshots: every file of the workspace, what changed, and back again; nothing is ever locked."""

import asyncio
import contextlib
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pygit2
import pytest

from houston_daemon.hosts.snapshots.shadow_repository import LARGE_FILE_BYTES, ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_shared.errors import HoustonError

Made = dict[str, tuple[str, bytes, bool]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
async def shadow(workspace: Path, tmp_path: Path) -> AsyncIterator[ShadowRepository]:
    made = ShadowRepository(workspace, tmp_path / "shadow")
    yield made
    await made.close()


def contents(folder: Path) -> Made:
    """Every entry below a folder: kind, content or target, executable."""
    found: Made = {}
    for place, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(place, name)
            key = os.fsdecode(os.path.relpath(path, os.fsencode(folder)))
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path), False)
            elif os.path.isdir(path):
                found[key] = ("folder", b"", False)
            else:
                data = Path(os.fsdecode(path)).read_bytes()
                found[key] = ("file", data, bool(os.stat(path).st_mode & 0o100))
    return found


def _git(folder: Path, *arguments: str) -> bytes:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder)


def _fill(workspace: Path) -> None:
    """One of everything that an agent may leave behind."""
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").write_text("print(1)\n")
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("src/a.py")
    (workspace / "broken").symlink_to("/etc/shadow")
    (workspace / "binary").write_bytes(bytes(range(256)) * 10)
    (workspace / ".gitignore").write_text("ignored\n*.log\n")
    (workspace / "ignored").write_text("ignored by git, not by us\n")
    (workspace / "x.log").write_text("also\n")
    (workspace / "empty folder" / "inner").mkdir(parents=True)
    (workspace / "empty").touch()
    (workspace / "Grüße 🚀.txt").write_text("ü\n")
    (workspace / os.fsdecode(b"latin-\xe4")).write_text("not utf-8\n")
    (workspace / "%houston%x").write_text("our own sign\n")
    (workspace / "new\nline").write_text("n\n")
    clone = workspace / "clone"
    clone.mkdir()
    (clone / "tracked").write_text("t\n")
    _git(clone, "init", "-q")
    _git(clone, "add", ".")
    _git(clone, "commit", "-qm", "first")
    for name in ("git~1", ".GIT"):
        (workspace / name).mkdir()
        (workspace / name / "config").write_text("odd\n")


async def test_a_restore_equals_what_was_taken(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    _fill(workspace)
    taken = await shadow.take("first")
    assert restore_snapshot(shadow.folder, taken.commit, tmp_path / "again") == []
    assert contents(tmp_path / "again") == contents(workspace)
    _git(tmp_path / "again" / "clone", "fsck", "--strict")
    _git(tmp_path / "again" / "clone", "diff", "--exit-code")


async def test_a_workspace_goes_back_in_place(shadow: ShadowRepository, workspace: Path) -> None:
    _fill(workspace)
    before = contents(workspace)
    taken = await shadow.take("first")
    (workspace / "src" / "a.py").write_text("print(2)\n")
    (workspace / "run.sh").chmod(0o644)
    (workspace / "link").unlink()
    (workspace / "link").mkdir()
    (workspace / "link" / "deep").write_text("x")
    (workspace / "ignored").unlink()
    (workspace / "ignored").mkdir()
    (workspace / "empty folder" / "inner" / "not").write_text("x")
    (workspace / "new" / "folder").mkdir(parents=True)
    (workspace / "new" / "folder" / "file").write_text("x")
    await shadow.take("second")
    assert restore_snapshot(shadow.folder, taken.commit, workspace) == []
    assert contents(workspace) == before


async def test_git_reads_the_shadow_repository(shadow: ShadowRepository, workspace: Path) -> None:
    _fill(workspace)
    await shadow.take("first")
    (workspace / "src" / "a.py").write_text("print(2)\n")
    await shadow.take("second")
    _git(shadow.folder, "fsck", "--full")
    assert _git(shadow.folder, "log", "--format=%s").split() == [b"second", b"first"]


CHANGES = {
    "a file is added": ("n", None, b"one\ntwo\n", ("added", 2, 0)),
    "a line is changed": ("f", b"1\n2\n3\n", b"1\nx\n3\n", ("changed", 1, 1)),
    "a file is removed": ("f", b"1\n2\n", None, ("removed", 0, 2)),
    "same size, same second": ("f", b"aaa\n", b"bbb\n", ("changed", 1, 1)),
    "binary": ("b", b"\0\1", b"\0\2", ("changed", 0, 0)),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_is_described(name: str, shadow: ShadowRepository, workspace: Path) -> None:
    path, before, after, expected = CHANGES[name]
    if before is not None:
        (workspace / path).write_bytes(before)
    first = await shadow.take("first")
    if after is None:
        (workspace / path).unlink()
    else:
        (workspace / path).write_bytes(after)
    taken = await shadow.take("second")
    assert taken.commit != first.commit
    (file,) = taken.files
    assert (file.path, (file.kind, file.added, file.removed)) == (path, expected)
    if name == "binary":
        assert (file.diff, file.note) == ("", "binary")
    else:
        assert "@@" in file.diff
        if after:
            assert "+" + after.split(b"\n")[1 if b"x" in after else 0].decode() in file.diff


async def test_nothing_changed_is_the_same_snapshot(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    _fill(workspace)
    first = await shadow.take("first")
    os.utime(workspace / "src" / "a.py")
    again = await shadow.take("again")
    assert (again.commit, again.files) == (first.commit, ())
    await shadow.close()
    later = ShadowRepository(workspace, tmp_path / "shadow")
    after = await later.take("after a restart")
    assert (after.commit, after.files) == (first.commit, ())
    await later.close()


async def test_a_lost_or_broken_manifest_costs_time_and_nothing_else(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    _fill(workspace)
    first = await shadow.take("first", mark=True)
    for damage in (b"", b"\xff\x00garbage", None):
        manifest = tmp_path / "shadow" / "manifest"
        manifest.unlink(missing_ok=True)
        if damage is not None:
            manifest.write_bytes(damage)
        later = ShadowRepository(workspace, tmp_path / "shadow")
        assert (await later.take("again")).commit == first.commit
        await later.close()


async def test_modes_links_and_kinds_are_changes(shadow: ShadowRepository, workspace: Path) -> None:
    (workspace / "f").write_text("x\n")
    (workspace / "g").write_text("x\n")
    await shadow.take("first")
    (workspace / "f").chmod(0o755)
    (workspace / "g").unlink()
    (workspace / "g").symlink_to("f")
    notes = {file.path: file.note for file in (await shadow.take("second")).files}
    assert notes == {"f": "now executable", "g": "symbolic link"}


async def test_a_long_diff_and_many_files_are_cut_and_say_so(
    shadow: ShadowRepository, workspace: Path
) -> None:
    await shadow.take("first")
    (workspace / "long").write_text("".join(f"line {n}\n" for n in range(10_000)))
    for n in range(230):
        (workspace / f"many-{n:03d}").write_text("x\n")
    taken = await shadow.take("second", hints=["many-229"])
    assert (len(taken.files), taken.more) == (200, 31)
    assert [file.path for file in taken.files[:2]] == ["many-229", "long"]
    long = taken.files[1]
    assert long.added == 10_000 and len(long.diff.encode()) < 16 * 1024 + 100
    assert "[diff cut here: " in long.diff


async def test_large_files_are_recorded_and_stored_at_marks(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(LARGE_FILE_BYTES + 1)
    (workspace / "weights").write_bytes(data)
    (workspace / "weights").chmod(0o755)
    plain = await shadow.take("plain")
    assert [(f.path, f.kind, f.note) for f in plain.files] == [("weights", "added", "large")]
    assert restore_snapshot(shadow.folder, plain.commit, tmp_path / "plain") == ["weights"]
    marked = await shadow.take("mark", mark=True)
    assert marked.commit != plain.commit and marked.files == ()
    assert (await shadow.take("still")).commit == marked.commit
    (workspace / "weights").write_bytes(b"small now\n")
    changed = await shadow.take("changed")
    assert [(f.path, f.kind) for f in changed.files] == [("weights", "changed")]
    assert restore_snapshot(shadow.folder, marked.commit, tmp_path / "marked") == []
    assert contents(tmp_path / "marked")["weights"] == ("file", data, True)
    stored = next((tmp_path / "shadow" / "large").iterdir())
    assert stored.stat().st_nlink == 1


SET_BACK = {
    "written in place": 'dd if=/dev/urandom of="$0" bs=1M count=17 conv=notrunc status=none',
    "another file of its name": 'rm "$0"; head -c 17M /dev/urandom > "$0"',
}


@pytest.mark.parametrize("how", SET_BACK)
async def test_a_large_file_whose_time_was_set_back_has_changed(
    how: str, shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    """As archives and builds do that are to be the same each time; its copy is no old one."""
    large = workspace / "weights"
    large.write_bytes(bytes(17 << 20))
    os.utime(large, (1e9, 1e9))
    first = await shadow.take("first", mark=True)
    await asyncio.to_thread(subprocess.run, ["bash", "-c", SET_BACK[how], str(large)], check=True)
    os.utime(large, (1e9, 1e9))
    data = large.read_bytes()
    second = await shadow.take("second", mark=True)
    assert [(file.path, file.kind) for file in second.files] == [("weights", "changed")]
    assert restore_snapshot(shadow.folder, second.commit, tmp_path / "back") == []
    assert (tmp_path / "back" / "weights").read_bytes() == data
    assert restore_snapshot(shadow.folder, first.commit, workspace) == []
    assert large.read_bytes() == bytes(17 << 20)


async def test_a_file_with_holes_costs_what_it_holds(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    size, at = 40 << 30, 30 << 30
    with (workspace / "holes").open("wb") as file:
        file.write(b"begin")
        file.seek(at)
        file.write(b"middle")
        file.truncate(size)
    with (workspace / "nothing").open("wb") as file:
        file.truncate(size)
    marked = await shadow.take("mark", mark=True)
    kept = list((tmp_path / "shadow" / "large").iterdir())
    assert [path.stat().st_size for path in kept] == [size, size]
    assert sum(path.stat().st_blocks * 512 for path in kept) < 1 << 20
    assert restore_snapshot(shadow.folder, marked.commit, tmp_path / "back") == []
    back = tmp_path / "back" / "holes"
    assert (back.stat().st_size, back.stat().st_blocks * 512 < 1 << 20) == (size, True)
    with back.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(at)
        assert file.read(7) == b"middle\0"


async def test_one_mark_copies_so_much_and_names_the_rest(workspace: Path, tmp_path: Path) -> None:
    made = ShadowRepository(
        workspace, tmp_path / "shadow", max_copied_bytes=LARGE_FILE_BYTES + 1_000_000
    )
    for name in ("a", "b"):
        (workspace / name).write_bytes(name.encode() * (LARGE_FILE_BYTES + 1))
    marked = await made.take("mark", mark=True)
    notes = [file.note for file in marked.files]
    assert notes == ["large", "large; not kept: too large to copy at this mark"]
    assert (await made.take("untouched")).commit == marked.commit
    again = await made.take("mark", mark=True)
    assert restore_snapshot(made.folder, again.commit, tmp_path / "back") == []
    assert restore_snapshot(made.folder, marked.commit, tmp_path / "first") == ["b"]
    await made.close()


async def test_an_unstored_large_file_that_still_lies_there_is_kept(
    shadow: ShadowRepository, workspace: Path
) -> None:
    (workspace / "weights").write_bytes(b"w" * (LARGE_FILE_BYTES + 1))
    taken = await shadow.take("first")
    (workspace / "other").write_text("x")
    assert restore_snapshot(shadow.folder, taken.commit, workspace) == []
    assert [path.name for path in workspace.iterdir()] == ["weights"]


async def test_files_being_written_do_not_disturb(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    script = "while :; do head -c 2000000 /dev/urandom; done > growing"
    writer = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=workspace, start_new_session=True
    )
    try:
        for n in range(5):
            (workspace / "steady").write_text(f"{n}\n")
            taken = await shadow.take(f"step {n}", mark=n == 4)
            assert "steady" in {file.path for file in taken.files}
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        await writer.wait()
    restore_snapshot(shadow.folder, taken.commit, tmp_path / "back")
    assert (tmp_path / "back" / "steady").read_text() == "4\n"
    assert (tmp_path / "back" / "growing").exists()


async def test_what_cannot_be_kept_is_named(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "run").mkdir()
    os.mkfifo(workspace / "run" / "pipe")
    (workspace / "f").write_text("x\n")
    taken = await shadow.take("first")
    assert restore_snapshot(shadow.folder, taken.commit, tmp_path / "back") == ["pipe", "run/pipe"]
    assert sorted(contents(tmp_path / "back")) == ["f", "run"], "the folder can be kept"


async def test_a_file_that_cannot_be_looked_at_is_not_gone(
    shadow: ShadowRepository, workspace: Path
) -> None:
    """A process with too many open files sees nothing: no snapshot, and none without files."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "f").write_text("x\n")
    await shadow.take("first")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(6):
        lowest = os.dup(0)
        os.close(lowest)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
            (workspace / "sub" / "f").touch()
            with contextlib.suppress(HoustonError):
                assert (await shadow.take("starved")).files == ()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (await shadow.take("later")).files == ()


async def test_links_lead_nowhere(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "file").write_text("mine\n")
    taken = await shadow.take("first")
    (workspace / "folder" / "file").unlink()
    (workspace / "folder").rmdir()
    (workspace / "folder").symlink_to(outside)
    second = await shadow.take("second")
    assert not [file for file in second.files if "secret" in file.path + file.diff]
    assert restore_snapshot(shadow.folder, taken.commit, workspace) == []
    assert (workspace / "folder" / "file").read_text() == "mine\n"
    assert sorted(contents(outside)) == ["secret"]


async def test_a_file_in_place_of_a_folder_and_back(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "b" / "c").write_text("1")
    first = await shadow.take("folder")
    (workspace / "a" / "b" / "c").unlink()
    (workspace / "a" / "b").rmdir()
    (workspace / "a" / "b").write_text("2")
    second = await shadow.take("file")
    assert {(f.path, f.kind) for f in second.files} == {("a/b/c", "removed"), ("a/b", "added")}
    for commit, name in ((first.commit, "one"), (second.commit, "two")):
        assert restore_snapshot(shadow.folder, commit, tmp_path / name) == []
    assert (tmp_path / "one" / "a" / "b" / "c").read_text() == "1"
    assert (tmp_path / "two" / "a" / "b").read_text() == "2"
    assert restore_snapshot(shadow.folder, first.commit, workspace) == []
    assert contents(workspace) == contents(tmp_path / "one")


async def test_an_unknown_commit_is_refused(shadow: ShadowRepository, tmp_path: Path) -> None:
    await shadow.take("first")
    for commit in ("0" * 40, "nonsense", ""):
        with pytest.raises(HoustonError, match="cannot be restored"):
            restore_snapshot(shadow.folder, commit, tmp_path / "x")


async def test_an_empty_workspace_is_a_snapshot_too(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "f").write_text("x")
    await shadow.take("one")
    (workspace / "f").unlink()
    empty = await shadow.take("none")
    assert restore_snapshot(shadow.folder, empty.commit, tmp_path / "back") == []
    assert contents(tmp_path / "back") == {}


_TAKER = """
import asyncio, sys
from pathlib import Path
from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository

async def main():
    place = Path(sys.argv[1])
    shadow = ShadowRepository(place / "workspace", place / "shadow")
    print("up", flush=True)
    n = 0
    while True:
        n += 1
        for file in range(20):
            (place / "workspace" / f"f{file}").write_text(f"{n} {file}\\n" * 500)
        await shadow.take(f"step {n}", mark=n % 3 == 0)

asyncio.run(main())
"""


async def test_a_kill_in_the_middle_locks_nothing_and_loses_no_snapshot(
    workspace: Path, tmp_path: Path
) -> None:
    dice = random.Random(7)
    for _ in range(12):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _TAKER, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        await asyncio.wait_for(child.stdout.readline(), 30)
        await asyncio.sleep(dice.uniform(0.01, 0.2))
        child.kill()
        await child.wait()
        assert not list((tmp_path / "shadow").rglob("*.lock"))
        later = ShadowRepository(workspace, tmp_path / "shadow")
        (workspace / "after").write_text(str(dice.random()))
        taken = await later.take("after the kill")
        assert "after" in {file.path for file in taken.files}
        assert restore_snapshot(later.folder, taken.commit, tmp_path / f"back-{taken.commit}") == []
        assert contents(tmp_path / f"back-{taken.commit}") == contents(workspace)
        await later.close()
    _git(tmp_path / "shadow", "fsck", "--full")


async def test_the_loop_goes_on_while_a_snapshot_is_taken(
    shadow: ShadowRepository, workspace: Path
) -> None:
    for n in range(3000):
        (workspace / f"f{n}").write_text(f"{n}\n" * 50)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    beating = asyncio.create_task(beat())
    await shadow.take("first")
    beating.cancel()
    assert beats > 10


CUTS = {
    "the newest commit is empty": lambda shadow, commit: _object(shadow, commit),
    "its tree is empty": lambda shadow, commit: _object(
        shadow, shadow_repo(shadow)[commit].tree_id
    ),
    "a file's content is empty": lambda shadow, _: _object(shadow, _blob(b"kept\n")),
    "a large copy is cut": lambda shadow, _: next((shadow.folder / "large").iterdir()),
}


def shadow_repo(shadow: ShadowRepository) -> pygit2.Repository:
    return pygit2.Repository(str(shadow.folder))


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _object(shadow: ShadowRepository, oid: object) -> Path:
    return shadow.folder / "objects" / str(oid)[:2] / str(oid)[2:]


@pytest.mark.parametrize("name", CUTS)
async def test_after_a_power_cut_the_next_snapshot_is_whole(
    name: str, shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "kept").write_text("kept\n")
    with (workspace / "large").open("wb") as file:
        file.truncate(LARGE_FILE_BYTES + 1)
    taken = await shadow.take("before", mark=True)
    await shadow.close()
    broken = CUTS[name](shadow, taken.commit)
    broken.chmod(0o600)
    os.truncate(broken, 0)
    (shadow.folder / "boot").write_text("of an earlier start of the machine")
    again = ShadowRepository(workspace, shadow.folder)
    taken = await again.take("after", mark=True)
    assert restore_snapshot(again.folder, taken.commit, tmp_path / "restored") == []
    assert (tmp_path / "restored" / "kept").read_text() == "kept\n"
    assert (tmp_path / "restored" / "large").stat().st_size == LARGE_FILE_BYTES + 1
    await again.close()


@pytest.mark.parametrize("kept_bytes", [0, 4096], ids=["to nothing", "in its middle"])
async def test_a_content_that_a_power_cut_took_is_all_that_is_lost(
    kept_bytes: int, shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    data = random.Random(3).randbytes(9_000).hex().encode()
    (workspace / "log").write_bytes(data)
    (workspace / "kept").write_text("kept\n")
    before = await shadow.take("before", mark=True)
    await shadow.close()
    broken = _object(shadow, _blob(data))
    broken.chmod(0o600)
    os.truncate(broken, kept_bytes)
    (shadow.folder / "boot").write_text("of an earlier start of the machine")
    # Nobody has opened it since: not the worker either, which looks first as a rule.
    assert restore_snapshot(shadow.folder, before.commit, tmp_path / "restored") == ["log"]
    assert (tmp_path / "restored" / "kept").read_text() == "kept\n"
    (workspace / "log").write_bytes(data + b"more\n")
    (workspace / "new").write_text("new\n")
    again = ShadowRepository(workspace, shadow.folder)
    after = await again.take("after", since=before.commit)
    told = {file.path: file.note for file in after.files}
    assert told == {"log": "its content before was lost in a power cut", "new": ""}
    await again.close()
    assert restore_snapshot(shadow.folder, after.commit, tmp_path / "whole") == []
    assert contents(tmp_path / "whole") == contents(workspace)


async def test_no_room_is_no_workspace_without_files(
    shadow: ShadowRepository, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "small.txt").write_text("x" * 100)
    (workspace / "longer.bin").write_bytes(b"x" * 9_000)
    taken = await shadow.take("start", mark=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))  # as a disk that is almost full
    try:
        with pytest.raises(HoustonError, match="into cannot be written: File too large"):
            restore_snapshot(tmp_path / "shadow", taken.commit, tmp_path / "into", workspace)
        (tmp_path / "given").mkdir()
        with pytest.raises(HoustonError, match="given cannot be written: File too large"):
            restore_snapshot(tmp_path / "shadow", taken.commit, tmp_path / "given", workspace)
        (workspace / "new.bin").write_bytes(random.Random(2).randbytes(4_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
        with pytest.raises(HoustonError, match=r"cannot be used: (?!no reason)"):
            await shadow.take("no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "into").exists(), "half of it would be in the way of another try"
    assert list((tmp_path / "given").iterdir()) == []
    with pytest.raises(HoustonError, match="Repository not found"):
        restore_snapshot(tmp_path / "freed", taken.commit, workspace)
    assert len(list(workspace.iterdir())) == 3, "what somebody has there stays"
    assert restore_snapshot(tmp_path / "shadow", taken.commit, tmp_path / "into") == []
