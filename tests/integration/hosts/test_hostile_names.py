"""What an agent may name, nest or set, and what a power cut leaves, ends neither watch nor host."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.hosts import process_table, rollout_workspace, untrusted_files
from houston_daemon.hosts.guard import resource_usage
from houston_daemon.hosts.guard.control_groups import CgroupNote, ControlGroups
from houston_daemon.hosts.guard.limit_guard import LimitGuard
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import ResourceLimits
from houston_daemon.hosts.sandbox import sandboxed_process
from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_shared.errors import HoustonError
from tests.support.small_disk import fill, mounted

from .conftest import MakeHost, finish

EMPTY_TOKEN = """
import asyncio, pathlib, subprocess, sys
from houston_daemon.hosts.terminals import terminal_start

folder = pathlib.Path(sys.argv[1])
(folder / "token").write_text("")
bystander = subprocess.Popen(["sleep", "60"])
asyncio.run(terminal_start.kill_terminal_processes(folder))
lives = bystander.poll() is None
bystander.kill()
sys.exit(0 if lives else 3)
"""


def test_a_token_that_a_power_cut_emptied_ends_nobody(tmp_path: Path) -> None:
    """In a pid namespace of its own: with the fault, everything of this user would end."""
    alone = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"]
    command = [*alone, sys.executable, "-c", EMPTY_TOKEN, str(tmp_path)]
    done = subprocess.run(command, timeout=30, check=False)
    assert done.returncode == 0


def test_a_process_whose_name_is_no_text_is_counted_like_others(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/\xff\xfe) 1 2"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            found = resource_usage.usage_by_sandbox([process.pid])
        finally:
            process.kill()
    assert [used.pids for used in found.values()] == [[process.pid]]


PROCESS_NAMES = {
    "a field that says nothing": b"\rThreads:",
    "fewer than no threads": b"\rThreads: -9999",
    "less than no memory": b"\rRssAnon:\t-9999",
    "the pid of another": b"\rNSpid: 9999999",
}


@pytest.mark.parametrize("name", PROCESS_NAMES)
def test_a_process_that_names_itself_like_a_field_is_measured_like_others(
    name: str, tmp_path: Path
) -> None:
    """`\r` ends a line for Python, not for the kernel."""
    code = f"libc.prctl(15, {PROCESS_NAMES[name]!r}, 0, 0, 0)"
    with holding(code, tmp_path) as pid:
        (used,) = resource_usage.usage_by_sandbox([pid]).values()
        assert used.tasks == 1
        assert used.memory > 1 << 20
        assert process_table.inner_pid(pid) == pid


FILE_NAMES = {
    "a form feed": b"a\x0cb",
    "a vertical tab": b"a\x0bb",
    "a line separator": "x\u2028y".encode(),
    "an empty line": b"a\r\rb",
}


@pytest.mark.parametrize("name", FILE_NAMES)
def test_a_mapped_file_with_a_broken_name_is_measured_like_others(
    name: str, tmp_path: Path
) -> None:
    code = (
        f"name = {FILE_NAMES[name]!r}; f = open(name, 'w+b'); f.write(b'1' * SIZE); f.flush();"
        " x = mmap.mmap(f.fileno(), SIZE); x.read(); y = mmap.mmap(-1, 4096); y.write(b'1');"
        " f.close()"
    )
    device = tmp_path.stat().st_dev
    with holding(code, tmp_path) as pid:
        assert resource_usage.exact_memory([pid]) < HELD_BYTES
        assert resource_usage.unlinked_bytes([pid], device) < HELD_BYTES
        os.unlink(os.fsencode(tmp_path) + b"/" + FILE_NAMES[name])
        assert resource_usage.unlinked_bytes([pid], device) >= HELD_BYTES


MEMORY = {
    "its own": "x = b'1' * SIZE",
    "shared with children": "x = mmap.mmap(-1, SIZE); x.write(b'1' * SIZE)",
    "a file without a folder": "f = open(os.memfd_create('x'), 'wb'); f.write(b'1' * SIZE)",
    "such a file, mapped as well": (
        "f = open(os.memfd_create('x'), 'w+b', 0); f.write(b'1' * SIZE);"
        " x = mmap.mmap(f.fileno(), SIZE); x.read()"
    ),
}
UNNAMED = {
    "open": "",
    "mapped whole": "libc.mmap(None, SIZE, 1, 1, f.fileno(), 0); f.close()",
    "mapped for one page": "libc.mmap(None, 4096, 1, 1, f.fileno(), 0); f.close()",
}
HELD_BYTES = 64 << 20


@contextlib.contextmanager
def holding(code: str, place: Path) -> Iterator[int]:
    """A process that has run the code, and goes on."""
    first = "import ctypes, mmap, os; libc = ctypes.CDLL(None); libc.mmap.argtypes ="
    first += " [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]"
    last = "print(flush=True); input()"
    lines = f"{first}\nSIZE = {HELD_BYTES}\n{code}\n{last}"
    with subprocess.Popen(
        [sys.executable, "-c", lines], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


@pytest.mark.parametrize("name", MEMORY)
def test_memory_of_every_kind_is_counted_once(name: str, tmp_path: Path) -> None:
    """Where the kernel counts nothing: at a quick look not too little, at the second one right."""
    with holding(MEMORY[name], tmp_path) as pid:
        files = resource_usage.memory_file_sizes([pid])
        (used,) = resource_usage.usage_by_sandbox([pid]).values()
        exact = resource_usage.exact_memory([pid])
    assert used.memory + sum(files.values()) > HELD_BYTES
    assert HELD_BYTES < exact < HELD_BYTES * 1.5


TWO_THAT_SHARE = """
x = mmap.mmap(-1, SIZE); x.write(b'1' * SIZE)
ready, tell = os.pipe()
end, kept = os.pipe()
if not os.fork():
    os.close(kept); x[::4096]; os.write(tell, b'1'); os.read(end, 1); os._exit(0)
os.read(ready, 1)
"""


def with_children(pid: int) -> set[int]:
    return {pid, *(child.pid for child in process_table.children(pid))}


@contextlib.contextmanager
def sharing_and_larger(place: Path, larger: float) -> Iterator[tuple[set[int], set[int]]]:
    """Two processes that share HELD_BYTES, and one with `larger` times as many of its own."""
    with (
        holding(TWO_THAT_SHARE, place) as sharing,
        holding(f"x = b'1' * int(SIZE * {larger})", place) as other,
    ):
        yield with_children(sharing), {other}


@pytest.mark.parametrize(("together", "ended"), [(HELD_BYTES * 5, False), (HELD_BYTES * 4, True)])
def test_memory_that_another_rollout_shares_ends_nobody_who_is_within_the_limit(
    together: int, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use a bit more than four of them, and five where what two share counts twice."""
    monkeypatch.setattr(resource_usage, "kill_targets", lambda targets, held: 1)
    with sharing_and_larger(tmp_path, 3) as rollouts:
        first, second = (
            LimitGuard(
                ControlGroups(tmp_path / f"note{number}", CgroupNote()),
                ResourceLimits(memory=0, together=together),
                (tmp_path,), list, lambda members=members: members,
                resource_usage.SharedMemoryFigures(tmp_path, f"r{number}"),
            )
            for number, members in enumerate(rollouts)
        )  # fmt: skip
        for guard in (first, second, first, second):
            guard.check_limits()
        assert first.take_hits() == []
        assert [hit.kind for hit in second.take_hits()] == (["memory"] if ended else [])


def test_the_session_that_is_ended_is_the_one_that_uses_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one in which several processes share what they use."""
    ended: set[int] = set()
    monkeypatch.setattr(
        resource_usage, "kill_targets", lambda targets, held: ended.update(targets()) or 1
    )
    with sharing_and_larger(tmp_path, 1.5) as (sharing, larger):
        spaces = dict.fromkeys(sharing, "one") | dict.fromkeys(larger, "other")
        monkeypatch.setattr(resource_usage, "pid_namespace", lambda pid: spaces.get(pid, "outer"))
        guard = LimitGuard(
            ControlGroups(tmp_path / "note", CgroupNote()),
            ResourceLimits(memory=HELD_BYTES * 2),
            (tmp_path,), list, lambda: sharing | larger,
            resource_usage.SharedMemoryFigures(tmp_path, "r1"),
        )  # fmt: skip
        guard.check_limits()
        assert [hit.kind for hit in guard.take_hits()] == ["memory"]
        assert ended == larger


@pytest.mark.parametrize("name", UNNAMED)
def test_a_file_without_a_name_costs_what_it_holds(name: str, tmp_path: Path) -> None:
    code = "f = open('big', 'w+b'); f.write(os.urandom(SIZE)); f.flush(); os.fsync(f.fileno())"
    with holding(f"{code}\nos.unlink('big')\n{UNNAMED[name]}", tmp_path) as pid:
        if name == "mapped for one page" and not _sees_mapped_files(pid):
            pytest.skip("this user is not told what a mapped file holds")
        assert resource_usage.unlinked_bytes([pid], tmp_path.stat().st_dev) >= HELD_BYTES


def _sees_mapped_files(pid: int) -> bool:
    return any(os.access(entry, os.F_OK) for entry in Path(f"/proc/{pid}/map_files").iterdir())


CLOSED = """
import os, pathlib, sys
from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.guard import resource_usage

workspace = pathlib.Path(sys.argv[1], "workspace")
inner = workspace / "outer" / "inner"
os.setgroups([]); os.setgid(65534); os.setuid(65534)
inner.mkdir(parents=True)
(inner / "big").write_bytes(os.urandom(8 << 20))
mode = int(sys.argv[2], 8)
inner.chmod(mode); inner.parent.chmod(mode)
counted = resource_usage.count_disk_bytes([workspace])
kept = inner.parent.stat().st_mode & 0o777
workspace.chmod(mode)
untrusted_files.remove_folder(workspace)
print(counted > 8 << 20, kept == mode, workspace.exists())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("mode", ["000", "300", "400", "600"])
def test_a_folder_that_its_owner_may_not_read_is_counted_and_removed(mode: str) -> None:
    place = tempfile.mkdtemp(prefix="houston-closed-", dir="/tmp")
    os.chown(place, 65534, 65534)
    try:
        words = [sys.executable, "-c", CLOSED, place, mode]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    finally:
        shutil.rmtree(place)
    assert done.stdout == "True True False\n", done.stdout + done.stderr


NESTED = """
import os, pathlib, resource, sys
from houston_daemon.hosts.guard import resource_usage

workspace, name, mode = pathlib.Path(sys.argv[1], "workspace"), sys.argv[2], int(sys.argv[3], 8)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
workspace.mkdir()
os.chdir(workspace)
for depth in range(200):  # beside others, some of which wait while it is counted
    for beside in ("", "x", "y"):
        os.mkdir(f"{name}{depth}{beside}")
    os.chdir(f"{name}{depth}")
pathlib.Path("big").write_bytes(os.urandom(8 << 20))
for depth in reversed(range(200)):
    os.chdir(".."); os.chmod(f"{name}{depth}", mode)
resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
counted = resource_usage.count_disk_bytes([workspace])
os.chdir(workspace)
kept = os.stat(f"{name}0").st_mode & 0o777
print(counted > 8 << 20, kept == mode, len(os.listdir("/proc/self/fd")) < 8)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize(("name", "mode"), [("a", "000"), ("a" * 200, "700"), ("a" * 200, "000")])
def test_nested_folders_are_counted_with_few_descriptors(name: str, mode: str) -> None:
    place = tempfile.mkdtemp(prefix="houston-nested-", dir="/tmp")
    os.chown(place, 65534, 65534)
    try:
        words = [sys.executable, "-c", NESTED, place, name, mode]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    finally:
        untrusted_files.remove_folder(Path(place))
    assert done.stdout == "True True True\n", done.stdout + done.stderr


def test_the_last_gigabyte_is_kept_without_a_limit_of_the_workspace_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk that is almost full is made up: this machine's cannot be filled."""
    left = resource_usage.DiskSpace(100 << 20, 0)
    monkeypatch.setattr(resource_usage, "free_disk_space", lambda folder: left)
    groups = ControlGroups(tmp_path / "note", CgroupNote())
    figures = resource_usage.SharedMemoryFigures(tmp_path, "r1")
    code = "f = open('big', 'wb'); f.write(os.urandom(SIZE)); f.flush(); os.fsync(f.fileno())"
    with holding(code, tmp_path) as pid:
        guard = LimitGuard(
            groups, ResourceLimits(), (tmp_path,), list, lambda: {pid}, figures
        )  # fmt: skip
        monkeypatch.setattr(resource_usage, "kill_targets", lambda targets, held: 1)
        guard.check_limits()
        assert [hit.kind for hit in guard.take_hits()] == ["workspace"]


CODES = {
    "a word": "abc",
    "a number that nothing stores": "9" * 40,
    "digits without end": "1" * 5000,
    "below nothing": "-1",
}


@pytest.mark.parametrize("name", CODES)
async def test_an_exit_code_that_the_shell_was_made_to_say_ends_the_command(
    name: str, terminal: LocalTerminal
) -> None:
    await finish(terminal, f"readonly __houston_code={CODES[name]}")
    status, _ = await finish(terminal, "true")
    assert status.exit_code == 255


def nest(folder: Path, depth: int, name: str) -> None:
    """A file of 1 MB below `depth` folders, however long its path becomes."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    file = os.open("deep", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here)
    os.write(file, b"x" * 1_000_000)
    os.close(file)
    os.close(here)


DEPTHS = {
    "more folders than calls may nest": (1100, "d"),
    "a path beyond PATH_MAX": (40, "d" * 200),
}


@pytest.mark.parametrize("name", DEPTHS)
async def test_a_deep_folder_is_counted_recorded_and_removed(
    name: str, make_host: MakeHost
) -> None:
    host = make_host()
    await host.prepare(None)
    try:
        nest(host.workspace, *DEPTHS[name])
        (host.workspace / "plain").write_text("seen")
        assert resource_usage.count_disk_bytes([host.workspace]) > 1_000_000
        taken = await host.snapshots.take("deep")
        assert "plain" in [file.path for file in taken.files]
        assert restore_snapshot(host.snapshots.folder, taken.commit, host.folder / "again")
        assert (host.folder / "again" / "plain").read_text() == "seen"
        code = "import os\nfor _ in range(1100):\n os.mkdir('d'); os.chdir('d')"
        done = await host.spawn(["python3", "-c", code], seconds=30, writable=False)
        assert done.exit_code == 0
        assert not list((host.folder / "private").glob("scratch-*"))
    finally:
        untrusted_files.remove_folder(host.workspace)  # nothing else could
    assert not host.workspace.exists()


@pytest.mark.parametrize("name", DEPTHS)
async def test_a_given_workspace_that_is_too_deep_is_refused_in_a_sentence(
    name: str, make_host: MakeHost, tmp_path: Path
) -> None:
    source, host = tmp_path / "source", make_host()
    source.mkdir()
    try:
        nest(source, *DEPTHS[name])
        for _ in range(2):  # the second finds what the first has left
            with pytest.raises(HoustonError, match="could not be copied"):
                await host.prepare(source)
            assert sorted(path.name for path in host.folder.iterdir()) == []
    finally:
        untrusted_files.remove_folder(source)


NOTES = {
    "of a terminal": "rollouts/r1/terminals/main/state.json",
    "of the terminals' socket": "rollouts/r1/terminals/socket",
    "of the groups": "limits/r1.json",
    "of the network": "limits/r1.network",
    "of the workspace": "prepared/r1",
}


@pytest.mark.parametrize("name", NOTES)
async def test_a_note_that_a_power_cut_emptied_is_as_none(name: str, make_host: MakeHost) -> None:
    first = make_host()
    await first.prepare(None)
    await first.terminal("main", create=True)
    await first.close()
    note = first.folder.parents[1] / NOTES[name]
    note.write_bytes(b"")
    again = make_host()
    await again.prepare(None, begun=True)
    terminal = await again.terminal("main", create=True)
    assert (await finish(terminal, "echo here"))[1] == ["here"]
    await again.destroy_terminals()
    assert not note.exists() or note.read_bytes()


@pytest.mark.parametrize("name", ["fetched.json", "branch.json"])
async def test_what_a_workspace_lacks_is_on_the_disk_before_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves the note empty beside a workspace that is whole."""
    past, synced = tmp_path / "rollouts" / "past", []
    (past / "workspace").mkdir(parents=True)
    shadow = ShadowRepository(past / "workspace", past / "shadow")
    taken = await shadow.take("start")
    await shadow.close()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    workspace = tmp_path / "rollouts" / "r1" / "workspace"
    workspace.parent.mkdir()
    if name == "branch.json":
        snapshot = rollout_workspace.BranchSnapshot("past", taken.commit)
        rollout_workspace.fill_branch_workspace(snapshot, tmp_path, workspace)
    else:
        note = rollout_workspace.FetchedWorkspace(1, ("lost",))
        rollout_workspace.write_fetch_note(workspace, note)
    assert [Path(path).name.removesuffix(".new") for path in synced] == [name]


async def test_a_full_disk_leaves_no_terminal_busy_for_ever(tmp_path: Path) -> None:
    with mounted(tmp_path, 300):
        host = LocalHost(tmp_path, "r1", sandbox="none", network=False, hidden=())
        try:
            await host.prepare(None)
            terminal = await host.terminal("main", create=True)
            await finish(terminal, "true")
            filler = fill(tmp_path)
            os.truncate(filler, filler.stat().st_size - 3 * 4096)  # for the command, no more
            with pytest.raises(OSError, match="No space"):
                await terminal.run("echo " + "x" * 10_000)
            filler.unlink()
            assert (await finish(terminal, "echo again"))[1] == ["again"]
        finally:
            await host.destroy_terminals()
            await host.close()


async def test_a_process_that_is_called_off_while_it_starts_leaves_no_descriptor() -> None:
    async def start_and_cancel(turns: int) -> None:
        task = asyncio.create_task(
            sandboxed_process.run_to_end(
                ["sleep", "5"], token=None, seconds=9, stop=None, output_limit=9
            )
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    await start_and_cancel(1)  # what the loop opens for its first child stays open
    before = len(os.listdir("/proc/self/fd"))
    for turns in range(1, 12):
        await start_and_cancel(turns)
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before
