"""The far end alone, without a connection: what it shows to whom."""

import asyncio
import contextlib
import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.hosts.ssh import file_bundles, remote_server
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.remote_server import RemoteServer
from houston_shared.errors import HoustonError


def spawn(*command: str, **more: Any) -> m.Spawn:
    settings = {"writable": True, "parcels": {}, **more}
    return m.Spawn(
        command=command, seconds=30, environment={}, output_limit=100_000, cwd="", network=False,
        **settings,
    )  # fmt: skip


async def test_what_is_brought_for_an_evaluator_is_shown_to_no_agent(tmp_path: Path) -> None:
    task, there = tmp_path / "task", tmp_path / "there"
    task.mkdir()
    (task / "solution").write_text("42")
    packed = io.BytesIO()
    file_bundles.pack_bundle(task, packed)
    name = file_bundles.bundle_name(task)
    hello = m.Hello(
        version="0", rollout="r1", root=str(there / "root"), key="here", owner="here:/home",
        sandbox="bubblewrap", network=False, read=(str(there),),
    )  # fmt: skip
    serving = RemoteServer({})

    async def ask(what: m.AnyHostRequest) -> Any:
        return await serving.answer(what, asyncio.Event())

    look = f"until [ -e done ]; do ls -R {there}; sleep 0.05; done; ls -R {there}"
    try:
        await ask(hello)
        await ask(m.Prepare(source="", begun=False))
        assert await ask(m.UnrestoredPaths()) == ()
        (there / "root" / "rollouts" / "r1" / "branch.json").write_text('["big.bin"]')
        assert await ask(m.UnrestoredPaths()) == ("big.bin",)
        session = asyncio.create_task(ask(spawn("/bin/sh", "-c", look)))
        await asyncio.sleep(0.5)  # it runs already when the evaluator's folder comes
        await ask(m.Piece(name=name, token="t", data=packed.getvalue(), last=True))
        (there / "root" / "rollouts" / "r1" / "workspace" / "done").touch()
        seen = (await session).stdout
        assert b"root.parcels" in seen and b"solution" not in seen
        assert b"solution" not in (await ask(spawn("/bin/sh", "-c", f"ls -R {there}"))).stdout
        score = spawn(
            "/bin/sh", "-c", 'cat "$1/solution"', "e", str(task),
            writable=False, parcels={str(task): name},
        )  # fmt: skip
        assert (await ask(score)).stdout == b"42"
    finally:
        await ask(m.DestroyTerminals())
        await serving.close()


def test_two_folders_never_share_a_parcel(tmp_path: Path) -> None:
    """Not even two tasks of one data set, whose files are as long and as old."""
    names = set()
    for answer in ("17", "42"):
        task = tmp_path / answer
        task.mkdir()
        (task / "expected.txt").write_text(answer)
        os.utime(task / "expected.txt", (1_700_000_000, 1_700_000_000))
        names.add(file_bundles.bundle_name(task))
        assert file_bundles.bundle_name(task) in names, "an untouched folder travels once"
    (task / "expected.txt").write_text("18")  # another answer, as old as the one before
    os.utime(task / "expected.txt", (1_700_000_000, 1_700_000_000))
    names.add(file_bundles.bundle_name(task))
    assert len(names) == 3


async def test_a_parcel_goes_with_the_last_rollout_that_needs_it(tmp_path: Path) -> None:
    shelf, root = tmp_path / "root.parcels", tmp_path / "root"
    names: dict[str, str] = {}
    for name in ("both", "first"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text(name)
        names[name] = file_bundles.bundle_name(tmp_path / name)
    rollouts = {"r1": ("both", "first"), "r2": ("both",)}
    serving = {rollout: RemoteServer({}) for rollout in rollouts}

    async def ask(rollout: str, what: m.AnyHostRequest) -> Any:
        return await serving[rollout].answer(what, asyncio.Event())

    def kept() -> set[str]:
        return {path.name for path in shelf.iterdir() if path.name != ".lock"}

    for rollout, folders in rollouts.items():
        await ask(rollout, m.Hello(
            version="0", rollout=rollout, root=str(root), key="here", owner="here:/home",
            sandbox="none", network=True,
        ))  # fmt: skip
        for folder in folders:
            if not await ask(rollout, m.HasBundle(name=names[folder])):
                packed = io.BytesIO()
                file_bundles.pack_bundle(tmp_path / folder, packed)
                data = packed.getvalue()
                piece = m.Piece(name=names[folder], token="t", data=data, last=True)
                await ask(rollout, piece)
        data = {folder: names[folder] for folder in folders}
        await ask(rollout, m.Prepare(source="", begun=False, data=data))
    (shelf / "half.t.tar").touch()
    (shelf / "forgotten.t.tar").touch()
    os.utime(shelf / "forgotten.t.tar", (0, 0))
    assert kept() == {*names.values(), "half.t.tar", "forgotten.t.tar"}

    await serving["r1"].close()
    assert (await ask("r1", m.Free(snapshots=False))).left == ""
    assert kept() == {names["both"], "half.t.tar"}
    assert (shelf / names["both"] / "data").read_text() == "both"
    older = root / "rollouts" / "of-an-older-houston" / "workspace"
    older.mkdir(parents=True)
    await serving["r2"].close()
    await ask("r2", m.Free(snapshots=True))
    assert kept() == {names["both"], "half.t.tar"}, "what that one needs is not known"
    older.rmdir()
    await ask("r2", m.Free(snapshots=True))
    assert kept() == {"half.t.tar"}
    assert not list((root / "serving").iterdir())


FIRST, COPY, EARLIER = "here:/home", "there:/home", ""
"""Homes with the same rollout, of one key: an earlier Houston tells nothing but that."""


def hello_of(home: str, root: Path, owner: str = "") -> m.Hello:
    return m.Hello(
        version="0", rollout="r1", root=str(root), key="here", home=home, owner=owner,
        lease=m.CLEANUP_LEASE, sandbox="none", network=True,
    )  # fmt: skip


async def test_a_copied_home_ends_nothing_of_the_rollout_that_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    holder = root / "rollouts" / "r1" / "holder"

    async def told(home: str, *asks: m.AnyHostRequest, owner: str = "") -> None:
        serving = RemoteServer({})
        for ask in (hello_of(home, root, owner), *asks):
            await serving.answer(ask, asyncio.Event())
        await serving.close()

    for home in (FIRST, EARLIER):
        await told(home, m.Prepare(source="", begun=False), owner=FIRST)
        with pytest.raises(HoustonError, match=f"another home: {FIRST}"):
            await told(COPY, m.DestroyTerminals())
        assert holder.read_text() == FIRST
        await told(home, m.DestroyTerminals())
        assert holder.read_text() == ""
    await told(FIRST, m.Prepare(source="", begun=False), owner=FIRST)
    await told(COPY, m.Prepare(source="", begun=True), owner=COPY)
    assert holder.read_text() == COPY, "a home is restored where the first is gone"


@pytest.mark.parametrize(
    ("served", "asks", "heard", "gives_way"),
    [
        (FIRST, FIRST, True, True),
        (FIRST, COPY, True, False),
        (FIRST, COPY, False, True),
        (EARLIER, FIRST, False, True),
        (FIRST, EARLIER, False, True),
    ],
    ids=[
        "cut off",
        "of the first",
        "of the first, which is gone",
        "from before an upgrade",
        "of an earlier version",
    ],
)
async def test_who_ends_the_process_that_serves_a_rollout(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    served: str,
    asks: str,
    heard: bool,
    gives_way: bool,
) -> None:
    """heard: whether the home that is served says something now and then."""
    if not heard:
        monkeypatch.setattr(remote_server, "_HEARD_SECONDS", 0.3)
    serving = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        started = process_table.process_key(serving.pid).started
        note = {"pid": serving.pid, "started": started, "key": "here", "lease": 1}
        (tmp_path / "serving").mkdir()
        (tmp_path / "serving" / "r1.json").write_bytes(
            msgspec.json.encode({**note, "home": served} if served else note)
        )
        hello = asyncio.create_task(
            RemoteServer({}).answer(hello_of(asks, tmp_path), asyncio.Event())
        )
        while heard and not hello.done():  # each is a ping of the near end
            (tmp_path / "serving" / "r1.json").touch()
            await asyncio.sleep(0.05)
        if gives_way:
            await hello
            assert await serving.wait() < 0
        else:
            with pytest.raises(NeedsPerson, match=f"Another home is at work on r1 there: {FIRST}"):
                await hello
            assert serving.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            serving.kill()
        await serving.wait()
