"""The far end alone, without a connection: what it shows to whom."""

import asyncio
import io
from pathlib import Path
from typing import Any

from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import parcels
from houston_daemon.hosts.ssh.serving import Serving


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
    parcels.pack(task, packed)
    name = parcels.name_of(task)
    hello = m.Hello(
        version="0", rollout="r1", root=str(there / "root"), key="k", owner="here:/home",
        sandbox="bubblewrap", network=False, read=(str(there),),
    )  # fmt: skip
    serving = Serving({})

    async def ask(what: m.Asks) -> Any:
        return await serving.answer(what, asyncio.Event())

    look = f"until [ -e done ]; do ls -R {there}; sleep 0.05; done; ls -R {there}"
    try:
        await ask(hello)
        await ask(m.Prepare(source="", begun=False))
        assert await ask(m.NotBroughtBack()) == ()
        (there / "root" / "rollouts" / "r1" / "branch.json").write_text('["big.bin"]')
        assert await ask(m.NotBroughtBack()) == ("big.bin",)
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
