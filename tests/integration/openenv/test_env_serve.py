"""`houston env serve`, asked by OpenEnv's own clients and by our own."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.suites.suite_catalog import find_suite
from tests.support.houston_command import houston_command
from tests.support.station import Station


class Served:
    """The command as a process."""

    def __init__(self, folder: Path, *words: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self.root = folder / "root"
        environment = {
            **os.environ,
            "HOUSTON_HOME": str(folder / "home"),
            "HOUSTON__HOSTS__ROOT": str(self.root),
        }
        command = [sys.executable, "-m", "houston_shared.command", "env", "serve", *words]
        self.log = folder / "served.log"
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)], env=environment, stderr=self.log.open("w")
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        end = time.monotonic() + 240
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError("it does not listen")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"), "python-problems", "--split", "validation")
    try:
        made.wait()
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def solution(index: int) -> list[dict[str, Any]]:
    solve = find_suite("python-problems").solve
    assert solve is not None
    return solve("validation", index)


async def test_the_packages_clients_play_an_episode(served: Served) -> None:
    from openenv.core.env_server.mcp_types import CallToolAction
    from openenv.core.generic_client import GenericEnvClient
    from openenv.core.mcp_client import MCPToolClient

    async with GenericEnvClient(base_url=served.url) as client:
        begun = await client.reset(seed=3, episode_id="e3")
        assert begun.observation["text"].startswith("Compute the answer") and not begun.done
        assert [tool["name"] for tool in begun.observation["tools"]] == ["python", "finish"]
        rewards = []
        for call in solution(3):
            action = {
                "type": "call_tool", "tool_name": call["name"], "arguments": call["arguments"]
            }  # fmt: skip
            result = await client.step(action)
            rewards.append(result.reward)
        assert rewards == [0.0, 1.0] and result.done
        state = await client.state()
        assert (state["episode_id"], state["step_count"]) == ("e3", 2)
    async with MCPToolClient(base_url=served.url) as client:
        await client.reset(seed=3)
        assert [tool.name for tool in await client.list_tools()] == ["python", "finish"]
        assert await client.call_tool("python", code="6 * 7") == "42"
        wrong = await client.step(CallToolAction(tool_name="finish", arguments={"answer": "no"}))
        assert wrong.done and wrong.reward == 0.0


async def test_sessions_are_apart_and_leave_nothing(served: Served) -> None:
    from openenv.core.generic_client import GenericEnvClient

    async def play(seed: int) -> tuple[str, float]:
        async with GenericEnvClient(base_url=served.url) as client:
            begun = await client.reset(seed=seed)
            finish = solution(seed)[-1]
            action = {"type": "call_tool", "tool_name": "finish", "arguments": finish["arguments"]}
            return begun.observation["text"], (await client.step(action)).reward

    played = await asyncio.gather(*(play(seed) for seed in (1, 2, 1)))
    assert [reward for _, reward in played] == [1.0, 1.0, 1.0]
    assert played[0] == played[2] != played[1]
    async with asyncio.timeout(60):
        while any((served.root / "rollouts").iterdir()):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
    assert "Traceback" not in served.log.read_text(), "clients that leave are no error"


def test_a_rollout_plays_what_is_served(tmp_path: Path, served: Served) -> None:
    """Ours against ours, over the protocol: what OpenEnv calls an environment with tools."""
    station = Station(tmp_path)
    try:
        station.start()
        (tmp_path / "task.toml").write_text(
            f'name = "far"\ninstructions = "Do it."\nenvironment = "openenv"\n'
            f'[openenv]\nurl = "{served.url}"\nreplayable = true\n'
        )
        run, finish = solution(5)
        finish = {**finish, "name": "simulator_finish"}  # `finish` is our own
        script = station.script([{"thought": "t", "calls": [call]} for call in (run, finish)])
        words = (str(tmp_path / "task.toml"), "--engine", script, "--seed", "5")
        (row,) = station.json("rollout", "start", *words)
        assert station.ended(row["rollout"])["state"] == "finished", station.log()
        score = "SELECT best_score, steps FROM rollouts WHERE id = ?"
        assert station.query(score, row["rollout"]) == [(100.0, 2)]
        told = str(station.json("context", row["rollout"], "1"))
        assert "Compute the answer" in told and "input_schema" not in told
    finally:
        station.clear()


def test_it_ends_when_it_is_interrupted(served: Served) -> None:
    """The last one that needs it."""
    served.process.send_signal(signal.SIGINT)
    served.process.wait(timeout=60)
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize(
    "lines, words, code",
    [
        pytest.param("gpus = 1", "only the daemon leases", 78, id="gpus"),
        pytest.param('environment = "no_such"', "no environment 'no_such'", 78, id="environment"),
        pytest.param("", "openenv-core, which is not installed", 78, id="package"),
        pytest.param(None, "There is no suite 'no-such'", 66, id="suite"),
    ],
)
def test_what_cannot_be_served_is_said(
    tmp_path: Path, lines: str | None, words: str, code: int
) -> None:
    if lines == "":
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['openenv'] = None\n")
    source = "no-such"
    if lines is not None:
        source = str(tmp_path / "task.toml")
        kind = "" if "environment" in lines else 'environment = "null"\n'
        Path(source).write_text(f'name = "t"\ninstructions = "x"\n{kind}{lines}\n')
    done = subprocess.run(
        houston_command("env", "serve", source),
        env={**os.environ, "HOUSTON_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
