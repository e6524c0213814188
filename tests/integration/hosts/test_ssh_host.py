"""A host over a real sshd: the same terminals, sandbox, files and snapshots; and when it is cut."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.environments import workstation_actions
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.workstation.confined_paths import PathRefused
from houston_daemon.environments.workstation.remote_file_actions import RemoteFileActions
from houston_daemon.hosts.host_protocol import (
    CleanupExtent,
    HostAway,
    NeedsPerson,
    TerminalBusy,
    TerminalMissing,
)
from houston_daemon.hosts.ssh import remote_part, ssh_connection
from houston_daemon.hosts.ssh import ssh_host as far_host
from houston_daemon.hosts.ssh.remote_access import RemoteCleaner
from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_daemon.hosts.ssh.ssh_host import SshHost, SshTerminal
from houston_daemon.hosts.ssh.ssh_protocol import Hello
from tests.support.sshd import Sshd
from tests.support.tiers import sampled

from .conftest import finish

Make = Callable[..., SshHost]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("sshd") / "s")
    made.start()
    yield made
    made.close()


@pytest.fixture
async def make(sshd: Sshd) -> AsyncIterator[Make]:
    made: list[SshHost] = []

    def host(rollout: str, lease: int = 1, home: str = "/home") -> SshHost:
        hello = Hello(
            version="0.1.0",
            rollout=rollout,
            lease=lease,
            root=sshd.host.host_root,
            key="here",
            home=remote_part.name_home(Path(home)),
            owner=remote_part.name_home(Path(home)),
            sandbox="bubblewrap",
            network=False,
            environment={"COLOUR": "blue"},
        )
        made.append(SshHost("gpu2", sshd.host, hello))
        return made[-1]

    yield host
    for one in made:
        await one.destroy_terminals()
        await one.close()


async def _back(host: SshHost) -> None:
    """Wait until the host answers again; what fails meanwhile fails for that reason only."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(HostAway):
                await host.present()
                return
            await asyncio.sleep(0.1)


async def _shows(terminal: SshTerminal, start: int, line: str) -> None:
    async with asyncio.timeout(20):
        while line not in await terminal.lines(start):  # noqa: ASYNC110 it is another machine's
            await asyncio.sleep(0.05)


async def test_a_host_over_ssh_is_what_a_local_one_is(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("one\n")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    host = make("same")
    await host.prepare(source)
    assert host.inside == "/workspace"
    assert str(host.workspace).endswith("root/rollouts/same/workspace")
    first = await host.snapshots.take("start", mark=True)
    assert {file.path for file in first.files} == {"sub/a.txt", "run.sh"}

    with pytest.raises(TerminalMissing):
        await host.terminal("main")
    terminal = await host.terminal("main", create=True)
    status, lines = await finish(terminal, "pwd; ./run.sh; echo $COLOUR; (exit 3)")
    assert (status.exit_code, lines) == (3, ["/workspace", "ran", "blue"])

    start = await terminal.run("read answer; echo got $answer; sleep 60")
    with pytest.raises(TerminalBusy):
        await terminal.run("echo no")
    await terminal.type_text("yes\n")
    stop = asyncio.Event()
    waiting = asyncio.create_task(terminal.wait(60, stop))
    await _shows(terminal, start, "got yes")
    stop.set()
    assert (await waiting).busy
    assert "sleep" in await terminal.signal("TERM")
    assert not (await terminal.wait(10, asyncio.Event())).busy

    await finish(terminal, "echo two >> sub/a.txt")
    second = await host.snapshots.take("step 1", since=first.commit)
    assert [(file.path, file.kind, file.added) for file in second.files] == [
        ("sub/a.txt", "changed", 1)
    ]
    evaluator = tmp_path / "task"
    evaluator.mkdir()
    (evaluator / "score.py").write_text("print(open('/workspace/sub/a.txt').read())")
    done = await host.spawn(
        ["/bin/sh", "-c", 'cd "$1" && python3 score.py; touch /workspace/x', "e", str(evaluator)],
        seconds=30,
        writable=False,
        extra_read=[evaluator],
    )
    assert done.stdout.split() == [b"one", b"two"]
    assert b"Read-only" in done.stderr
    await terminal.close()
    assert not (await terminal.status()).alive
    assert await host.terminals() == []


async def test_file_actions_are_done_there(make: Make) -> None:
    host = make("files")
    await host.prepare(None)
    files = RemoteFileActions(host, 30_000)
    stop = Stop()
    made = await files.act(
        workstation_actions.CreateFile(filename="a/b.txt", content="x\ny\n"), stop
    )
    assert made.success, made.error
    assert files.take_written_paths() == ["a/b.txt"]
    assert (host.workspace / "a" / "b.txt").read_text() == "x\ny\n"
    shown = await files.act(workstation_actions.OpenFile(path="a/b.txt"), stop)
    assert shown.fields()["total_lines"] == 2
    with pytest.raises(PathRefused, match="outside the workspace"):
        await files.act(workstation_actions.OpenFile(path="/etc/passwd"), stop)
    odd = host.workspace / b"odd\xff".decode(errors="surrogateescape")
    odd.write_text("z")
    listed = await files.act(workstation_actions.ListFiles(), stop)
    assert listed.success, listed.error


@pytest.mark.parametrize("what", sampled(["cut", "kill_master"], 1))
async def test_a_cut_connection_is_said_and_terminals_are_found_again(
    make: Make, sshd: Sshd, what: str
) -> None:
    host = make(f"cut-{what.replace('_', '-')}")
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    start = await terminal.run("for i in 1 2 3 4 5 6; do echo tick $i; sleep 0.3; done; (exit 7)")
    waiting = asyncio.create_task(terminal.wait(60, asyncio.Event()))
    await _shows(terminal, start, "tick 1")
    getattr(sshd, what)()
    with pytest.raises(HostAway) as away:
        await waiting
    assert away.value.cut
    await _back(host)
    found = await host.terminal("main")
    status = await found.wait(20, asyncio.Event())
    assert status.exit_code == 7
    assert await found.lines(start) == [f"tick {i}" for i in range(1, 7)]
    assert (await finish(found, "echo on"))[1] == ["on"]


@pytest.mark.slow
async def test_a_host_that_is_down_is_said_at_once_and_found_when_it_is_back(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connection, "PATIENCE_SECONDS", 0.5)
    own = Sshd(tmp_path / "s")
    host = SshHost("far", own.host, make("unused")._hello)
    try:
        with pytest.raises(HostAway, match="refused"):
            await host.prepare(None)
        own.start()
        await _back(host)
        await host.prepare(None)
        own.stop()
        with pytest.raises(HostAway):
            await host.snapshots.take("none")
        await host.close()
        # The next worker begins while the machine is away, with data that it has not got yet.
        (tmp_path / "words").write_text("hi")
        host = SshHost("far", own.host, make("unused")._hello, {"words": tmp_path / "words"})
        await host.prepare(None, begun=True)
        own.start()
        await _back(host)
        assert (await host.snapshots.take("there")).commit
        assert (await host.spawn(["cat", "/data/words"], seconds=20)).stdout == b"hi"
    finally:
        await host.destroy_terminals()
        await host.close()
        own.close()


async def test_a_worker_that_wakes_is_refused_beside_its_successor_and_a_copied_home_too(
    make: Make, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connection, "_PING_SECONDS", 0.2)
    first, later = make("leased", lease=1), make("leased", lease=2)
    await first.prepare(None)
    await later.prepare(None, begun=True)
    terminal = await later.terminal("main", create=True)
    await terminal.run("sleep 60")
    stop = asyncio.Event()
    waiting = asyncio.create_task(terminal.wait(60, stop))
    said = "A later worker of leased is at work there (lease 2, not 1)"
    async with asyncio.timeout(30):
        while said not in await _why_away(first):  # noqa: ASYNC110 it is told when it asks
            await asyncio.sleep(0.05)
    copy = make("leased", lease=9, home="/copy")
    for begun in (False, True):
        with pytest.raises(NeedsPerson, match="Another home is at work on leased there"):
            await copy.prepare(None, begun=begun)
    part = RemotePart(host="gpu2", settings=sshd.host, key="here")
    extents: list[CleanupExtent] = ["processes", "files", "snapshots"]
    for extent in extents:
        freed = await RemoteCleaner().clean(part, "leased", "/copy", extent)
        assert (freed.bytes, "Another home is at work" in freed.left) == (0, True)
    stop.set()
    assert (await waiting).busy, "its successor is not cut off"
    await first.close()
    await later.close()
    async with asyncio.timeout(30):
        while not await _takes_over(copy):  # noqa: ASYNC110 what served the first is just ending
            await asyncio.sleep(0.05)
    assert await copy.present(), "a home is restored where the first is gone"


async def _takes_over(host: SshHost) -> bool:
    with contextlib.suppress(NeedsPerson):
        await host.prepare(None, begun=True)
        return True
    return False


async def test_a_workspace_that_was_taken_away_meanwhile_needs_a_person(
    make: Make, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make("gone")
    await host.prepare(None)
    away = host.workspace.rename(host.workspace.with_name("away"))
    sshd.cut()
    async with asyncio.timeout(30):
        while await _why_away(host) != ssh_connection.NEEDS_PERSON:  # noqa: ASYNC110 told when asked
            await asyncio.sleep(0.05)
    away.rename(host.workspace)  # a disk that is mounted late
    async with asyncio.timeout(30):
        await host.link.back()
    assert await host.present()

    monkeypatch.setattr(ssh_connection, "PERSON_SECONDS", 0.0)
    host.workspace.rename(away)
    sshd.cut()
    needed: NeedsPerson | None = None
    async with asyncio.timeout(30):
        while needed is None:
            try:
                await host.present()
            except HostAway as problem:
                needed = problem.needed
    assert f"{host.workspace} is gone" in str(needed)
    with pytest.raises(NeedsPerson, match="is gone"):
        await host.prepare(None, begun=True)
    away.rename(host.workspace)
    await host.prepare(None, begun=True)
    assert await host.present()


async def _why_away(host: SshHost) -> str:
    try:
        await host.present()
    except HostAway as away:
        return away.why
    return ""


@pytest.mark.slow
async def test_a_far_end_that_does_not_answer_to_hello_is_no_host(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_host, "HELLO_SECONDS", 0.3)
    monkeypatch.setattr(ssh_connection, "_FIRST_TRIES", 1)
    host = make("hangs")
    note = Path(host._hello.root) / "serving" / "hangs.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(note)  # whoever reads it hangs, as on a disk that is away
    try:
        with pytest.raises(HostAway, match=r"no answer to hello within 0\.3 s"):
            await host.prepare(None)
    finally:
        monkeypatch.undo()
        released = os.open(note, os.O_RDWR)
        note.unlink()
        os.close(released)
    await _back(host)


@pytest.mark.slow
async def test_many_rollouts_that_begin_at_once_share_connections(make: Make, sshd: Sshd) -> None:
    before = sshd.log().count("Accepted publickey")
    hosts = [make(f"many-{number}") for number in range(12)]
    await asyncio.gather(*(host.prepare(None) for host in hosts))
    assert all(await asyncio.gather(*(host.present() for host in hosts)))
    # sshd allows ten sessions on one connection; the module's first one may be open already.
    assert sshd.log().count("Accepted publickey") - before <= 3


@pytest.mark.slow
async def test_what_is_wrong_with_a_machine_is_named(make: Make, tmp_path: Path) -> None:
    own = Sshd(tmp_path / "s")
    own.start()
    keys = (own.folder / "authorized_keys").read_text()
    missing = msgspec.structs.replace(own.host, command="/nowhere/houston")
    try:
        for settings, allowed, why in (
            (own.host, "", "Permission denied"),
            (missing, keys, "nowhere/houston"),
        ):
            (own.folder / "authorized_keys").write_text(allowed)
            host = SshHost("far", settings, make("unused")._hello)
            with pytest.raises(HostAway, match=why):
                await host.prepare(None)
            await host.close()
    finally:
        own.close()
