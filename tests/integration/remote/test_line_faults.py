"""A worker over TCP whose line goes wrong: the rollout is as if it never had."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from houston_daemon.agent import recorder_client, remote_line, rollout_worker
from houston_daemon.agent.recorder_client import IngestConnection
from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import wire
from houston_shared.recorder_endpoint import RecorderEndpoint, read_endpoint_file
from tests.integration.remote.conftest import RemoteRig

STEPS = 6
SCRIPT: list[dict[str, Any]] = [
    {
        "thought": f"t{n}",
        "delay": 0.1,
        "calls": [{"name": "noop", "arguments": {"text": f"{n} " * 800}}],
    }
    for n in range(1, STEPS + 1)
] + [{"thought": "nothing", "calls": []}]
Fault = Callable[[RemoteRig], Awaitable[None]]


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30), "it was harmed"


async def cut(rig: RemoteRig) -> None:
    rig.relay.cut()
    await asyncio.sleep(1)
    rig.relay.heal()


async def cut_in_a_frame(rig: RemoteRig) -> None:
    await happens(rig.relay.harm("half"))


async def flipped(rig: RemoteRig) -> None:
    await happens(rig.relay.harm("flip"))


async def flipped_answer(rig: RemoteRig) -> None:
    await happens(rig.relay.harm("flip", answers=True))


async def hangs(rig: RemoteRig) -> None:
    rig.relay.hang()


async def restarted(rig: RemoteRig) -> None:
    await asyncio.to_thread(rig.restart)


async def restarted_while_cut(rig: RemoteRig) -> None:
    rig.relay.cut()
    await asyncio.to_thread(rig.restart)
    rig.relay.heal()


FAULTS = [
    pytest.param(cut, id="a line cut for a second"),
    pytest.param(cut_in_a_frame, id="a frame cut in the middle"),
    pytest.param(flipped, id="a bit that is flipped on the way"),
    pytest.param(flipped_answer, id="a bit of an answer that is flipped"),
    pytest.param(hangs, id="a tunnel that hangs"),
    pytest.param(restarted, id="a recorder that is restarted"),
    pytest.param(restarted_while_cut, id="a recorder that is restarted behind a cut line"),
]


async def work(rig: RemoteRig, endpoint: RecorderEndpoint, rollout: str) -> None:
    await rollout_worker.run_worker(endpoint, rollout, rig.recorder.assign(rollout).lease)


async def at_step(rig: RemoteRig, rollout: str, step: int) -> None:
    """Wait until a step has a sample."""
    sql = "SELECT count(*) FROM events WHERE rollout=? AND kind='sample'"
    await asyncio.to_thread(rig.until, lambda: rig.query(sql, rollout) >= [(step,)])


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_line_that_fails_changes_nothing(
    remote: RemoteRig, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_client, "SILENT_LINE_SECONDS", 1.0)
    monkeypatch.setattr(remote_line, "STUCK_SECONDS", 1.0)
    endpoint = remote.add_host()
    whole = remote.rollout(SCRIPT, name="whole")
    await work(remote, RecorderEndpoint(remote.home.socket("ingest")), whole)
    rollout = remote.rollout(SCRIPT, name="probe")
    working = asyncio.create_task(work(remote, endpoint, rollout))
    await at_step(remote, rollout, 2)
    before = remote.relay.connections
    await fault(remote)
    await asyncio.wait_for(working, 60)
    assert remote.relay.connections > before, "the line was lost"
    assert remote.state(rollout)[0] == "finished"
    assert remote.journal(rollout) == remote.journal(whole)
    await asyncio.to_thread(remote.recorder.stop)
    assert not verify_home(remote.home).findings


async def test_guidance_said_while_the_line_is_down_is_heard_once(remote: RemoteRig) -> None:
    endpoint = remote.add_host()
    rollout = remote.rollout(SCRIPT)
    working = asyncio.create_task(work(remote, endpoint, rollout))
    await at_step(remote, rollout, 2)
    remote.relay.cut()
    for number in (1, 2):
        guide = wire.Guide(id=f"said-{number}", rollout=rollout, text=f"word {number}")
        await asyncio.to_thread(remote.ask, guide)
    remote.relay.heal()
    await asyncio.wait_for(working, 60)
    heard = [[one.text for one in step.guidance] for step in remote.steps(rollout)]
    assert [words for words in heard if words] == [["word 1", "word 2"]]


async def test_a_large_body_passes_a_line_that_is_cut_again_and_again(
    remote: RemoteRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_line, "RECONNECT_MS", (50, 100))
    thought = "x" * 5_000_000
    rollout = remote.rollout([{"thought": thought, "calls": []}])
    endpoint = remote.add_host()
    working = asyncio.create_task(work(remote, endpoint, rollout))
    for _ in range(3):
        await happens(remote.relay.harm("half"))
    await asyncio.wait_for(working, 60)
    first = remote.steps(rollout)[0].sample
    assert first and first.thought == thought


async def test_a_worker_behind_a_cut_line_leaves_to_its_successor(remote: RemoteRig) -> None:
    rollout = remote.rollout(SCRIPT)
    working = asyncio.create_task(work(remote, remote.add_host(), rollout))
    await at_step(remote, rollout, 2)
    remote.relay.cut()
    await work(remote, RecorderEndpoint(remote.home.socket("ingest")), rollout)
    assert remote.state(rollout)[0] == "finished"
    told = remote.journal(rollout)
    remote.relay.heal()
    await asyncio.wait_for(working, 30)
    assert remote.journal(rollout) == told, "nothing that it says is stored"


async def test_what_a_tunnel_gives_up_late_is_not_taken_for_new(
    remote: RemoteRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_client, "SILENT_LINE_SECONDS", 0.5)
    rollout = remote.rollout(SCRIPT)
    lease = remote.recorder.assign(rollout).lease
    connection = IngestConnection(remote.add_host())

    async def say(kind: type[wire.FromWorker], **fields: Any) -> wire.IngestReply:
        body = wire.encode_message(kind(rollout=rollout, lease=lease, **fields))
        return await connection.exchange(connection.next_number(), body)

    await say(wire.Hello, pid=1)
    remote.relay.hang()
    await say(wire.StoreState, state="paused", by="engine")
    await say(wire.StoreState, state="running")
    assert remote.state(rollout)[0] == "running"
    remote.relay.release()
    for _ in range(20):
        assert isinstance(await say(wire.Heartbeat), wire.Ack)
        await asyncio.sleep(0.05)
    assert remote.state(rollout)[0] == "running"
    await connection.close()


async def test_an_agent_does_not_see_the_keys_of_its_host(remote: RemoteRig) -> None:
    shown = remote.folder / "shown"
    shown.mkdir()
    (shown / "beside.txt").write_text("beside it\n")
    file = shown / "gpu2.endpoint.json"
    file.write_bytes(msgspec.json.encode(remote.add_host()))
    command = f"cat {shown}/beside.txt; cat {file}"
    script = [
        {"thought": "t", "calls": [{"name": "run_command", "arguments": {"command": command}}]}
    ]
    task = f'[sandbox]\nread = ["{shown}"]\n'
    rollout = remote.rollout(script, environment="workstation", task=task)
    await work(remote, read_endpoint_file(file), rollout)
    (printed,) = [one.text for one in remote.steps(rollout)[0].results]
    assert "beside it" in printed
    assert "secret_key" not in printed
