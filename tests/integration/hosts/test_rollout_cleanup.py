"""One cleanup of what rollouts leave: a table of what goes with each extent, here and over SSH."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from houston_daemon.hosts import limit_setup, process_table, rollout_cleanup
from houston_daemon.hosts.guard import resource_usage
from houston_daemon.hosts.host_protocol import CleanupExtent
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.process_table import ProcessKey
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_daemon.hosts.ssh.ssh_protocol import Hello
from houston_daemon.hosts.terminals.tmux_server import find_tmux_socket
from houston_daemon.maintenance.host_cleanup import CleanupOrder, has_leftovers
from houston_daemon.maintenance.host_cleanup_child import HostCleaner
from houston_shared.config_sections import HostSettings
from tests.support.sshd import Sshd
from tests.support.station import command_line

from .conftest import MakeHost, finish, until

HOME = "/home/a"
KEY = remote_part.home_key(Path(HOME))
NAP = f"61.{os.getpid()}"


class Left(NamedTuple):
    """What a rollout whose worker died has left on a machine."""

    host: LocalHost
    shell: ProcessKey
    escaped: ProcessKey
    tmux: Path

    def __call__(self, what: str) -> bool:
        """Whether it is still there."""
        folder, root = self.host.folder, self.host.folder.parents[1]
        there: dict[str, Callable[[], bool]] = {
            "a shell": lambda: process_table.is_alive(self.shell),
            "a process that left its session": lambda: process_table.is_alive(self.escaped),
            "a tmux server": lambda: _answers(self.tmux),
            "the note of its groups": limit_setup.limits_note(root, folder.name).exists,
            "the holder's name": lambda: _has_text(folder / "holder"),
            "a workspace": (folder / "workspace").exists,
            "terminals' logs": lambda: bool(list(folder.glob("terminals/main/log*"))),
            "temporary files": lambda: bool(list(folder.glob("private/*"))),
            "the note of what was prepared": (root / "prepared" / folder.name).exists,
            "snapshots": (folder / "shadow").exists,
        }
        return there[what]()


def _answers(place: Path) -> bool:
    command = ["tmux", "-S", str(place), "list-sessions"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _has_text(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


RUNS = [
    "a shell", "a process that left its session", "a tmux server", "the note of its groups",
    "the holder's name",
]  # fmt: skip
FILES = ["a workspace", "terminals' logs", "temporary files", "the note of what was prepared"]
GONE: dict[CleanupExtent, list[str]] = {
    "processes": RUNS,
    "files": [*RUNS, *FILES],
    "snapshots": [*RUNS, *FILES, "snapshots"],
}
"""By extent what is gone afterwards; the rest of what stands in the last row is still there."""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("sshd") / "s")
    made.start()
    yield made
    made.close()


async def _leave(host: LocalHost) -> Left:
    """Work as a worker does, and let go as one that was killed."""
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    await finish(terminal, "mkdir -p deep/er; echo 1 > deep/er/note; chmod 0 deep/er")
    await finish(terminal, f"setsid sleep {NAP} > /dev/null 2>&1 &")
    await until(_sleepers)
    await host.snapshots.take("one")
    (host.folder / "private" / "scratch-1").mkdir(exist_ok=True)
    tmux = find_tmux_socket(host.folder / "terminals")
    left = Left(host, terminal.state.shell, _sleepers()[0], tmux)
    await host.close()
    assert [what for what in GONE["snapshots"] if not left(what)] == []
    return left


def _sleepers() -> list[ProcessKey]:
    return [
        ProcessKey(entry.pid, entry.started)
        for entry in process_table.list_processes().values()
        if entry.name == "sleep" and NAP in command_line(Path(f"/proc/{entry.pid}"))
    ]


@pytest.mark.parametrize("extent", list(GONE))
async def test_what_goes_here(make_host: MakeHost, extent: CleanupExtent) -> None:
    left = await _leave(make_host(sandbox="none", network=True, owner=HOME))
    root = left.host.folder.parents[1]
    assert has_leftovers(root, "r1", HOME)
    report = await HostCleaner(HOME).execute_order(CleanupOrder(str(root), "r1", extent))
    assert (report.left, report.bytes > 0) == ("", extent != "processes")
    assert [what for what in GONE["snapshots"] if not left(what)] == GONE[extent]
    assert not has_leftovers(root, "r1", HOME)


async def test_a_far_end_answers_while_it_counts_a_large_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is taken for dead after 30 s, and what it was to free is begun anew for ever."""
    answered, loop = threading.Event(), asyncio.get_running_loop()

    def count(folders: Iterable[Path]) -> int:
        answered.clear()
        loop.call_soon_threadsafe(answered.set)
        return 1 if answered.wait(5) else 0

    monkeypatch.setattr(resource_usage, "count_disk_bytes", count)
    (tmp_path / "rollouts" / "r1" / "workspace").mkdir(parents=True)
    await rollout_cleanup.clean_rollout(tmp_path, "r1", HOME, "files")
    assert answered.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("extent", list(GONE))
async def test_what_goes_over_ssh(sshd: Sshd, tmp_path: Path, extent: CleanupExtent) -> None:
    host = LocalHost(
        Path(sshd.host.host_root), extent, sandbox="none", network=True, hidden=(),
        owner=f"{KEY}:{HOME}",
    )  # fmt: skip
    try:
        left = await _leave(host)
        note = remote_part.leftover_path(tmp_path, extent, "gpu2")
        note.parent.mkdir()
        note.touch()
        there = RemotePart(host="gpu2", settings=sshd.host, key=KEY)
        order = CleanupOrder(str(tmp_path), extent, extent, (there,))
        report = await HostCleaner(HOME).execute_order(order)
        assert (report.left, report.bytes > 0) == ("", extent != "processes")
        assert [what for what in GONE["snapshots"] if not left(what)] == GONE[extent]
        assert not note.exists(), "nobody has to look there again"
    finally:
        await host.destroy_terminals()


@pytest.mark.parametrize("extent", list(GONE))
async def test_nothing_goes_of_what_another_home_holds(
    make_host: MakeHost, tmp_path: Path, extent: CleanupExtent
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "houston.db").touch()
    left = await _leave(make_host(sandbox="none", network=True, owner=str(other)))
    root = left.host.folder.parents[1]
    there = RemotePart(host="gpu3", settings=HostSettings(ssh="nowhere.invalid"), key=KEY)
    elsewhere = () if extent == "processes" else (there,)
    report = await HostCleaner(HOME).execute_order(CleanupOrder(str(root), "r1", extent, elsewhere))
    assert ("is used elsewhere" in report.left) == (extent != "processes")
    assert "gpu3" not in report.left, "no machine is asked that might not know whose it is"
    assert [what for what in GONE["snapshots"] if not left(what)] == []
    await HostCleaner(str(other)).execute_order(CleanupOrder(str(root), "r1", "processes"))


async def test_what_a_home_left_here_ends_after_it_was_moved(make_host: MakeHost) -> None:
    moved = "/home/moved"
    left = await _leave(make_host(sandbox="none", network=True, owner=HOME))
    root = left.host.folder.parents[1]
    at_work = make_host(sandbox="none", network=True, owner=HOME)
    await at_work.prepare(None, begun=True)
    assert not has_leftovers(root, "r1", moved), "a home that has no path here is at work"
    await at_work.close()
    assert has_leftovers(root, "r1", moved)
    await HostCleaner(moved).execute_order(CleanupOrder(str(root), "r1", "processes"))
    assert [what for what in GONE["snapshots"] if not left(what)] == RUNS


@pytest.mark.slow
async def test_what_a_home_left_on_a_machine_stays_noted_until_the_moved_one_cleans_it(
    sshd: Sshd, tmp_path: Path
) -> None:
    """The note keeps the GPUs, too: what runs there may be at work on them."""
    host = LocalHost(
        Path(sshd.host.host_root), "moved", sandbox="none", network=True, hidden=(),
        owner=f"{KEY}:{HOME}",
    )  # fmt: skip
    try:
        left = await _leave(host)
        note = remote_part.leftover_path(tmp_path, "moved", "gpu2")
        note.parent.mkdir()
        note.touch()
        there = RemotePart(host="gpu2", settings=sshd.host, key=KEY)
        name = remote_part.name_home(Path("/home/moved"))
        hello = Hello(
            version="0", rollout="moved", root=sshd.host.host_root, key=KEY, home=name, owner=name,
            sandbox="none", network=True,
        )  # fmt: skip
        worker = SshHost("gpu2", sshd.host, hello, note=note)
        await worker.destroy_terminals()
        await worker.close()
        assert note.exists(), "a worker that never prepared there is refused, too"
        steps: list[tuple[CleanupExtent, list[str]]] = [("processes", []), ("files", GONE["files"])]
        for extent, gone in steps:
            order = CleanupOrder(str(tmp_path), "moved", extent, (there,))
            report = await HostCleaner("/home/moved").execute_order(order)
            assert ("belong to another home" in report.left) == note.exists() == (not gone)
            assert [what for what in GONE["snapshots"] if not left(what)] == gone
    finally:
        await host.destroy_terminals()


async def test_a_machine_that_is_away_is_asked_once_and_its_note_stays(
    sshd: Sshd, tmp_path: Path
) -> None:
    away = RemotePart(host="gpu3", settings=HostSettings(ssh="nowhere.invalid"), key=KEY)
    notes = [remote_part.leftover_path(tmp_path, rollout, "gpu3") for rollout in ("r1", "r2")]
    notes[0].parent.mkdir()
    cleaner = HostCleaner(HOME)
    for note, rollout in zip(notes, ("r1", "r2"), strict=True):
        note.touch()
        report = await cleaner.execute_order(CleanupOrder(str(tmp_path), rollout, "files", (away,)))
        assert report.left.endswith(f"rollouts/{rollout} stay.")
        assert note.exists()
    assert len(cleaner._machines._unreachable_reasons) == 1
