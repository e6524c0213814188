"""Servers of OpenEnv as worlds: the package's own example, as `openenv init` writes it."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from houston_shared.records import CallIntent, RolloutSpec, TaskRecord, ToolCall, ToolResult
from houston_shared.task import Task, load_task
from houston_shared.task_tables import OpenEnvSettings
from tests.support.station import Station


class Server:
    """The example's server as a process."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Its packages take seconds to import, and many where others work beside it."""
        words = [sys.executable, "-m", "server.app", "--port", str(self.port)]
        self.process = subprocess.Popen(
            words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 240
        while time.monotonic() < end:
            assert self.process.poll() is None, "the server has ended"
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError("the server does not listen")

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `openenv init` writes, with room for several sessions."""
    folder = tmp_path_factory.mktemp("example")
    words = [sys.executable, "-m", "openenv.cli", "init", "echo_env"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=240)
    app = folder / "echo_env" / "server" / "app.py"
    app.write_text(app.read_text().replace("max_concurrent_envs=1", "max_concurrent_envs=4"))
    return folder / "echo_env"


@pytest.fixture(scope="module")
def echo(example: Path) -> Iterator[Server]:
    server = Server(example)
    server.start()
    yield server
    server.kill()


def task(url: str, **openenv: Any) -> Task:
    return Task(name="t", environment="openenv", openenv=OpenEnvSettings(url=url, **openenv))


def spec(folder: Path) -> RolloutSpec:
    record = TaskRecord(name="t", folder=str(folder), definition="", instructions="")
    return RolloutSpec(
        rollout="r1", task=record, engine="script:x", engine_settings={}, seed=7,
        host_root=str(folder / "root"),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def opened(folder: Path, made: Task, begun: bool = False) -> AsyncIterator[Environment]:
    environment = make_environment(spec(folder), made)
    await environment.open(begun)
    try:
        yield environment
    finally:
        await environment.close(ended=False)


def budget_status(step: int) -> BudgetStatus:
    return BudgetStatus(step, 10, 1_000.0, 0)


async def act(environment: Environment, name: str, step: int = 1, **arguments: Any) -> ToolResult:
    call = environment.check(ToolCall(id=f"{step}.0", name=name, arguments=arguments))
    return await environment.act(call, budget_status(step), Stop())


async def test_the_example_to_its_score(tmp_path: Path, echo: Server) -> None:
    """Its reward is a tenth of a message's length."""
    async with opened(tmp_path, task(echo.url, full_reward=2.0)) as one:
        assert "environment ready" in one.brief
        assert [tool.name for tool in one.tools] == ["step", "finish"]
        assert list(one.tools[0].parameters["properties"]) == ["message"], "no metadata"
        assert "needs the member `message`" in (await act(one, "step")).text
        said = await act(one, "step", 1, message="Hello")
        assert '"echoed_message": "Hello"' in said.text and said.fields["more"] == {"reward": 0.5}
        await act(one, "step", 2, message="<real_user>hi</real_user>")
        assert (await act(one, "finish", 3)).fields["finished"]
        scored = await act(one, "eval", 3)
        assert scored.fields["overall_score"] == 100.0, "0.5 + 2.5 of 2, and no more than 100"


async def test_two_rollouts_have_a_session_each(tmp_path: Path, echo: Server) -> None:
    async with opened(tmp_path, task(echo.url)) as one:
        (tmp_path / "two").mkdir()
        async with opened(tmp_path / "two", task(echo.url)) as two:
            answers = await asyncio.gather(
                act(one, "step", message="a"), act(two, "step", message="bb")
            )
    assert [said.fields["more"]["reward"] for said in answers] == [0.1, 0.2]


async def test_a_server_that_is_full_says_so(tmp_path: Path, echo: Server) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(4):
            folder = tmp_path / str(number)
            folder.mkdir()
            await stack.enter_async_context(opened(folder, task(echo.url)))
        with pytest.raises(NeedsPerson, match=r"The server refused: .*4/4"):
            async with opened(tmp_path, task(echo.url)):
                pass


@pytest.mark.parametrize("replayable", [True, False])
async def test_a_worker_that_was_killed(tmp_path: Path, echo: Server, replayable: bool) -> None:
    """A world that may be made again is, with what was done in it; another waits for a person."""
    made = task(echo.url, replayable=replayable, full_reward=1.0)
    async with opened(tmp_path, made) as one:
        await act(one, "step", 1, message="Hello")
    if not replayable:
        with pytest.raises(NeedsPerson, match=r"after 1 actions.*`replayable`"):
            async with opened(tmp_path, made, begun=True):
                pass
        return
    async with opened(tmp_path, made, begun=True) as one:
        known = CallIntent(call=ToolCall(id="1.0", name="step", arguments={"message": "Hello"}))
        again = await one.recover(known, budget_status(1), Stop())
        assert again.fields["more"] == {"reward": 0.5}, "its answer is given again, not done again"
        new = CallIntent(call=ToolCall(id="2.0", name="step", arguments={"message": "all"}))
        assert (await one.recover(new, budget_status(2), Stop())).success
        await act(one, "finish", 3)
        scored = await act(one, "eval", 3)
        assert scored.fields["overall_score"] == 80.0, "each once"


async def test_a_server_that_was_killed(tmp_path: Path, echo: Server) -> None:
    async with opened(tmp_path, task(echo.url, replayable=True)) as one:
        await act(one, "step", 1, message="Hello")
        echo.kill()
        try:
            lost = await act(one, "step", 2, message="all")
            assert not lost.success and "cannot be reached" in lost.text
            with pytest.raises(NeedsPerson, match="cannot be reached"):
                async with opened(tmp_path, task(echo.url, replayable=True), begun=True):
                    pass
        finally:
            echo.start()
        assert (await act(one, "step", 3, message="all")).success
        await act(one, "finish", 4)
        assert (await act(one, "eval", 4)).fields["overall_score"] == 80.0


def test_a_rollout_of_the_example(tmp_path: Path, echo: Server) -> None:
    """From the command line, through the daemon."""
    station = Station(tmp_path)
    try:
        station.start()
        (tmp_path / "task.toml").write_text(
            f'name = "echo"\ninstructions = "Say much."\nenvironment = "openenv"\n'
            f'[openenv]\nurl = "{echo.url}"\n'
        )
        script = station.script(
            [{"thought": "t", "calls": [{"name": "step", "arguments": {"message": "Hello"}}]}]
        )
        (rollout,) = station.rollout(tmp_path / "task.toml", script)
        assert station.ended(rollout)["state"] == "finished"
        assert "Hello" in station.steps(rollout)[0]["observation"]
        score = "SELECT best_score FROM rollouts WHERE id = ?"
        assert station.query(score, rollout) == [(50.0,)]
    finally:
        station.clear()


@pytest.mark.slow
def test_a_rollout_goes_on_after_a_kill(tmp_path: Path, echo: Server) -> None:
    """Daemon and worker are killed between two messages; each counts once."""
    station = Station(tmp_path)
    try:
        station.start()
        (tmp_path / "task.toml").write_text(
            f'name = "echo"\ninstructions = "Say much."\nenvironment = "openenv"\n'
            f'[openenv]\nurl = "{echo.url}"\nreplayable = true\n'
        )
        said = [
            {"name": "step", "arguments": {"message": text}} for text in ("Hello", "you", "all")
        ]
        steps = [{"thought": "t", "calls": [call], "delay": 1.0} for call in said]
        (rollout,) = station.rollout(tmp_path / "task.toml", station.script(steps))
        station.until(lambda: station.closed(rollout) >= 1, why="a step")
        station.kill_daemon()
        station.start()
        assert station.ended(rollout)["state"] == "finished", station.log()
        score = "SELECT best_score FROM rollouts WHERE id = ?"
        assert station.query(score, rollout)[0][0] >= 99.999, "0.5, 0.3 and 0.3"
        (made,) = station.json("rollout", "branch", rollout, "--at", "1")
        assert station.ended(made["rollout"])["state"] == "finished", "from what its parent did"
        assert station.query(score, made["rollout"])[0][0] >= 99.999
    finally:
        station.clear()


@pytest.mark.parametrize(
    "url, package, words",
    [
        pytest.param("127.0.0.1:80", True, "needs the address", id="no-address"),
        pytest.param("http://h:1", False, "websockets, which is not installed", id="no-package"),
    ],
)
def test_what_cannot_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, package: bool, words: str
) -> None:
    (tmp_path / "task.toml").write_text(
        f'name = "t"\ninstructions = "x"\nenvironment = "openenv"\n[openenv]\nurl = "{url}"\n'
    )
    if not package:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(load_task(tmp_path))
