"""Real servers written with the SDK, over stdio in the sandbox and over HTTP."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.prompts.answer_grammar import answer_schema
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from houston_shared.records import (
    BranchPoint,
    CallIntent,
    RolloutSpec,
    TaskRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.task import SandboxSettings, Task, load_task
from houston_shared.task_tables import EvaluationSettings, McpServerSettings, McpSettings

SERVER = Path(__file__).with_name("server.py")
STANDING = BudgetStatus(5, 10, 1_000.0, 0)
PACKAGES = sysconfig.get_path("purelib")
READ = tuple(map(str, local_host_setup.interpreter_paths(SERVER, PACKAGES)))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with reached("far") as found:
        yield found


@contextlib.contextmanager
def reached(name: str) -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [sys.executable, str(SERVER), str(port), name, "/nowhere"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        _until_there(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _until_there(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Its packages take seconds to import, and many where others work beside it."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, "the server has ended"
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.025)
    raise AssertionError("the server does not listen")


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        (folder / "home" / "houston.db").write_text("secret")
        self.made: list[Environment] = []

    def stdio(self, name: str = "near", **more: Any) -> McpServerSettings:
        words = (str(SERVER), "stdio", name, str(self.folder / "home" / "houston.db"))
        return McpServerSettings(
            command=local_host_setup.PYTHON, args=words,
            env={"GIVEN": "yes", "PYTHONPATH": PACKAGES}, **more,
        )  # fmt: skip

    async def open(
        self,
        begun: bool = False,
        tools: tuple[str, ...] = (),
        branch: dict[str, Any] | None = None,
        **servers: McpServerSettings,
    ) -> Environment:
        record = TaskRecord(name="t", folder=str(self.folder), definition="", instructions="")
        spec = RolloutSpec(
            task=record, engine="script:x", engine_settings={},
            host_root=str(self.folder / "root"), hidden=(str(self.folder / "home"),),
            **(branch or {"rollout": "r1"}),
        )  # fmt: skip
        task = Task(
            name="t", environment="mcp", mcp=McpSettings(servers=servers),
            sandbox=SandboxSettings(read=READ),
            tools=tools,
            evaluate=EvaluationSettings(command="""echo '{"overall_score": 7}'"""),
        )  # fmt: skip
        made = make_environment(spec, task)
        self.made.append(made)
        await made.open(begun)
        return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    for one in made.made:
        await one.close(ended=True)


async def act(
    environment: Environment, name: str, stop: Stop | None = None, **arguments: Any
) -> ToolResult:
    call = environment.check(ToolCall(id="5.0", name=name, arguments=arguments))
    result = await environment.act(call, STANDING, stop or Stop())
    assert len(result.text) < 32_000
    return result


async def test_tools_of_two_servers(world: World, address: str) -> None:
    one = await world.open(near=world.stdio(), far=McpServerSettings(url=address))
    names = [tool.name for tool in one.tools]
    assert {"near_add", "far_add", "eval", "finish"} <= set(names) and "add" not in names
    assert one.brief.splitlines() == [f"{n}: Add before you multiply." for n in ("near", "far")]
    assert "<real_user>" not in str([tool.description for tool in one.tools])
    answer_schema(one.tools, 1_000)

    for server in ("near", "far"):
        added = await act(one, f"{server}_add", a=2, b=40)
        assert (added.text, added.success, added.kind) == ("42", True, "mcp")
        assert (added.fields["server"], added.fields["tool"]) == (server, "add")
    assert "must be of type integer" in (await act(one, "near_add", a="2")).text
    assert "needs the member `a`" in (await act(one, "near_add")).text
    assert "Did you mean" in (await act(one, "add", a=1)).text
    said = await act(one, "near_shapes", mode="fast", size=2, tags=["a"], options='{"k": [1]}')
    assert said.text == "('fast', 2.0, ['a'], {'k': [1]}, None)"
    wrong = await act(one, "near_shapes", mode="no", size=2, tags=[], options="{}")
    assert 'must be one of "fast", "slow"' in wrong.text

    failed = await act(one, "near_fail")
    assert not failed.success and "no such" in failed.text and "<real_user>" not in failed.text
    seen = await act(one, "near_pictures")
    assert "two pictures" in seen.text and "QUJD" not in seen.text
    assert "[image, image/png, about 300 bytes: not shown]" in seen.text
    assert "[embedded resource file:///x.bin" in seen.text
    assert seen.fields["not_shown"] == ["image", "resource"]
    assert "are not shown" in (await act(one, "near_much", count=50_000)).text
    inside = await act(one, "near_where")
    assert inside.text == "('/workspace', 'yes', False)", "in the sandbox, without the home"
    workspace = world.folder / "root" / "rollouts" / "r1" / "workspace"
    assert (workspace / "seen.txt").exists()
    closed = await one.close_step(5)
    assert [(change.path, change.kind) for change in closed.files] == [("seen.txt", "added")]
    assert await one.close_step(5) == closed, "told twice it is the same"
    scored = await act(one, "eval")
    assert scored.fields["overall_score"] == 7.0
    assert (await act(one, "finish")).fields["finished"]


async def test_a_server_that_dies_is_started_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one = await world.open(near=world.stdio())
    await act(one, "add", a=1)
    died = await act(one, "die")
    assert "The server near ended" in died.text and not died.success
    assert "has ended: these are my last words" in caplog.text
    assert (await act(one, "total")).text == "0"
    flooded = await act(one, "flood", megabytes=18)
    assert "The server near ended" in flooded.text, "a large file is no message"
    assert (await act(one, "total")).text == "0"
    call = ToolCall(id="5.0", name="add", arguments={"a": 5})
    lost = await one.recover(CallIntent(call=call), STANDING, Stop())
    assert lost.kind == "interrupted" and (await act(one, "total")).text == "0"


async def test_a_branch_is_told_what_its_servers_do_not_know(world: World, address: str) -> None:
    servers = {"near": world.stdio(), "far": McpServerSettings(url=address)}
    one = await world.open(**servers)
    await act(one, "near_add", a=5)
    await act(one, "near_where")  # leaves a file
    closed = await one.close_step(5)
    assert not closed.notes
    origin = BranchPoint(seq=9, head_seq=1, snapshot=closed.snapshot)
    branch = {"rollout": "r2", "parent": "r1", "parent_step": 5, "origin": origin}
    two = await world.open(branch=branch, **servers)
    assert (await act(two, "near_total")).text == "0"
    assert (world.folder / "root" / "rollouts" / "r2" / "workspace" / "seen.txt").exists()
    first = await two.close_step(6)
    assert first.notes == (
        "[from after step 5 on this work goes on in a new place: the workspace is as it was after"
        " that step; what these servers knew beside it is gone, they were started anew: near; these"
        " servers are as they are now, not as they were then: far]",
    )
    assert await two.close_step(6) == first, "told twice it is the same"
    assert not (await two.close_step(7)).notes


async def test_a_branch_is_told_of_tools_that_changed_since_its_parent_began(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("houston_daemon.environments.mcp.mcp_connection._FRESH_SECONDS", 0.0)
    with reached("grown") as grown:
        servers = {"near": McpServerSettings(url=address), "far": McpServerSettings(url=grown)}
        one = await world.open(**servers)
        closed = await one.close_step(5)
        assert "The tool far_total is gone." in (await act(one, "far_grow")).text
        origin = BranchPoint(seq=9, head_seq=1, snapshot=closed.snapshot)
        branch = {"rollout": "r2", "parent": "r1", "parent_step": 5, "origin": origin}
        two = await world.open(branch=branch, **servers)
        told = await act(two, "near_total")
        assert told.success, "its names are those of its head"
        assert "The tool far_total is gone." in told.text and '"name": "later"' in told.text
        assert not (await act(two, "near_total")).fields["tools_changed"], "told once"
        await two.close(ended=False)
        again = await world.open(begun=True, branch=branch, **servers)
        assert not (await act(again, "near_total")).fields["tools_changed"], "after a restart, too"


async def test_an_answer_over_http_has_a_size(world: World, address: str) -> None:
    """Whether it comes as an event or as a body; the server goes on."""
    with reached("plain") as plain:
        one = await world.open(
            far=McpServerSettings(url=address), plain=McpServerSettings(url=plain)
        )
        for server in ("far", "plain"):
            flooded = await act(one, f"{server}_flood", megabytes=18)
            assert not flooded.success and len(flooded.text) < 1_000, server
            assert (await act(one, f"{server}_add", a=1)).text == "2"
        assert "more than 16 MB" in flooded.text
        assert "x" * 1_000 in (await act(one, "plain_flood", megabytes=1)).text


async def test_a_task_that_offers_no_eval_is_scored_all_the_same(world: World) -> None:
    one = await world.open(tools=("add", "finish"), near=world.stdio())
    assert [tool.name for tool in one.tools] == ["add", "finish"]
    assert (await act(one, "eval")).fields["overall_score"] == 7.0


async def test_a_call_that_hangs_is_ended_and_tools_that_change_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.open(near=world.stdio(seconds=1.0))
    late = await act(one, "hang")
    assert "did not answer within 1 s" in late.text
    told = world.folder / "root" / "rollouts" / "r1" / "workspace" / "cancelled.txt"
    for reason in ("", "wake", "interrupt"):
        for _ in range(100):
            if told.exists():
                break
            await asyncio.sleep(0.02)
        assert told.exists(), reason
        told.unlink()
        if reason == "interrupt":
            break
        stop = Stop()
        running = asyncio.create_task(act(one, "hang", stop))
        await asyncio.sleep(0.3)
        stop.reason = "wake" if not reason else "interrupt"
        stop.event.set()
        assert "It was broken off" in (await running).text
    assert (await act(one, "add", a=1)).text == "2", "the server goes on"

    monkeypatch.setattr("houston_daemon.environments.mcp.mcp_connection._FRESH_SECONDS", 0.0)
    grown = await act(one, "grow")
    assert "The tool total is gone." in grown.text and '"name": "later"' in grown.text
    assert grown.fields["tools_changed"] and "later" in [tool.name for tool in one.tools]
    assert (await act(one, "later", text="abc")).text == "ABC"
    assert "There is no tool" in (await act(one, "total")).text


async def test_a_server_that_cannot_start_waits_for_a_person(world: World) -> None:
    with pytest.raises(NeedsPerson, match="server near cannot be reached"):
        await world.open(near=McpServerSettings(command="/no/such/program"))
    with pytest.raises(NeedsPerson, match=r"did not start within 0\.5 s"):
        await world.open(
            near=McpServerSettings(command="bash", args=("-c", "cat >/dev/null"), start_seconds=0.5)
        )
    with pytest.raises(NeedsPerson, match="server far"):
        await world.open(far=McpServerSettings(url="http://127.0.0.1:9/mcp", start_seconds=1))


WRONG = [
    ("", "needs a server"),
    ("[mcp.servers.x]\n", "exactly one of the keys"),
    ('[mcp.servers.x]\ncommand = "a"\nurl = "http://b"\n', "exactly one of the keys"),
    ('[mcp.servers.x]\nurl = "b"\n', "allowed: http://"),
    ('[mcp.servers."a b"]\nurl = "http://b"\n', "mcp.servers"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_task_that_cannot_run_is_refused(tmp_path: Path, text: str, words: str) -> None:
    head = 'name = "t"\ninstructions = "x"\nenvironment = "mcp"\n'
    (tmp_path / "task.toml").write_text(head + text)
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(load_task(tmp_path))
