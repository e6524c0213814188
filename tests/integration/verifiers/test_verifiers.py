"""Environments of the package verifiers as worlds: what `vf-init` writes, and one with a user.

The package pins another mcp than Houston's extra `envs`, so the dev install has it not: its
interpreter is named by VERIFIERS_PYTHON, and without one the tests that run it are skipped
(`make test-foreign`).
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
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
from houston_shared.task_tables import VerifiersSettings
from tests.support.station import Station

PYTHON = os.environ.get("VERIFIERS_PYTHON") or (
    sys.executable if importlib.util.find_spec("verifiers") else ""
)
needs_package = pytest.mark.skipif(not PYTHON, reason="VERIFIERS_PYTHON names no interpreter")
slow_start = pytest.mark.timeout(900)
"""The package's imports and its server of tools take minutes where others work beside them."""
LOAD = """\
return [GuessTask(GuessData(prompt=f"Echo something, then reply {i}."), self.config.task)
                for i in range(self.config.num_tasks)]
"""
REWARD = "return 0.25 * (trace.num_turns > 1) + 0.75 * (trace.last_reply == str(self.data.idx))"
WITH_USER = """
import verifiers.v1 as vf

__all__ = ["CountTaskset", "CountEnv"]


class CountTask(vf.Task[vf.TaskData]):
    pass


class CountConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class CountEnv(vf.Env[CountConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as interaction:
            said, right = await interaction.turn(), 0
            for number in (2, 3):
                right += said.last_reply == str(number - 1)
                said = await interaction.turn(f"I say {number}.")
                if said.terminated:
                    break
        interaction.trace.record_reward("right", right / 2)


class CountTaskset(vf.Taskset[CountTask, vf.TasksetConfig]):
    def load(self):
        yield CountTask(vf.TaskData(prompt="Count with me.", system_prompt="Be brief."))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package's example, filled in as it asks for, and one with a user."""
    folder = tmp_path_factory.mktemp("environments")
    words = [str(Path(PYTHON).with_name("vf-init")), "guess", "-T", "--path", str(folder)]
    subprocess.run(words, check=True, capture_output=True, timeout=600)
    file = folder / "guess" / "guess" / "taskset.py"
    head, _, rest = file.read_text().partition('raise NotImplementedError("Score')
    middle, _, _ = rest.partition("\n")[2].partition("raise NotImplementedError(\n")
    file.write_text(f"{head}{REWARD}\n{middle}{LOAD}")
    (folder / "guess" / "count_up.py").write_text(WITH_USER)
    return folder / "guess"


class World:
    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder, self.packages = folder, packages

    @contextlib.asynccontextmanager
    async def opened(
        self, taskset: str, begun: bool = False, **verifiers: Any
    ) -> AsyncIterator[Environment]:
        record = TaskRecord(name="t", folder=str(self.folder), definition="", instructions="")
        spec = RolloutSpec(
            rollout="r1", task=record, engine="script:x", engine_settings={}, seed=7,
            host_root=str(self.folder / "root"),
        )  # fmt: skip
        settings = VerifiersSettings(
            taskset=taskset, python=PYTHON, start_seconds=600, seconds=300, **verifiers
        )
        task = Task(
            name="t", environment="verifiers", verifiers=settings,
            environment_variables={"PYTHONPATH": str(self.packages)},
        )  # fmt: skip
        environment = make_environment(spec, task)
        try:
            await environment.open(begun)
            yield environment
        finally:
            await environment.close(ended=False)


def budget_status(step: int) -> BudgetStatus:
    return BudgetStatus(step, 10, 1_000.0, 0)


async def act(environment: Environment, name: str, step: int, **arguments: Any) -> ToolResult:
    call = environment.check(ToolCall(id=f"{step}.0", name=name, arguments=arguments))
    return await environment.act(call, budget_status(step), Stop())


@needs_package
@slow_start
async def test_an_episode_that_was_killed_is_made_again(tmp_path: Path, packages: Path) -> None:
    """Where the task says that it may be; with the answers that were given."""
    world = World(tmp_path, packages)
    async with world.opened("guess", replayable=True) as one:
        assert one.brief == "Echo something, then reply 2.", "the third of five, for the seed 7"
        assert [tool.name for tool in one.tools] == ["guess_echo", "reply", "finish"]
        assert "needs the member `text`" in (await act(one, "guess_echo", 1)).text
        assert (await act(one, "guess_echo", 1, text="hi")).text == "hi"
    async with world.opened("guess", begun=True, replayable=True) as one:
        known = CallIntent(call=ToolCall(id="1.0", name="guess_echo", arguments={"text": "hi"}))
        assert (await one.recover(known, budget_status(1), Stop())).text == "hi"
        assert (await act(one, "finish", 2)).fields["finished"]
        scored = await act(one, "eval", 2)
        assert scored.fields["overall_score"] == 25.0, "two turns, and no answer"


@needs_package
@slow_start
async def test_a_user_of_the_environment_answers(tmp_path: Path, packages: Path) -> None:
    world = World(tmp_path, packages)
    async with world.opened("count_up") as one:
        assert one.brief == "Be brief.\n\nCount with me."
        assert (await act(one, "reply", 1, message="1")).text == "I say 2."
        assert (await act(one, "reply", 2, message="two")).text == "I say 3."
        over = await act(one, "reply", 3, message="4")
        assert over.fields["finished"]
        assert (await act(one, "eval", 3)).fields["overall_score"] == 50.0
    with pytest.raises(NeedsPerson, match="`replayable`"):
        async with world.opened("count_up", begun=True):
            pass


@needs_package
@slow_start
def test_a_rollout_of_the_example(tmp_path: Path, packages: Path) -> None:
    """From the command line, through the daemon."""
    station = Station(tmp_path)
    try:
        station.start()
        (tmp_path / "task.toml").write_text(
            'name = "guess"\ninstructions = "Do as you are told."\nenvironment = "verifiers"\n'
            f'[verifiers]\ntaskset = "guess"\npython = "{PYTHON}"\nstart_seconds = 600\n'
            f'[settings]\nnum_tasks = 3\n[environment_variables]\nPYTHONPATH = "{packages}"\n'
        )
        calls = [("guess_echo", {"text": "hi"}), ("reply", {"message": "1"})]
        script = station.script(
            [{"thought": "t", "calls": [{"name": n, "arguments": a}]} for n, a in calls]
        )
        words = (str(tmp_path / "task.toml"), "--engine", script, "--seed", "4")
        (row,) = station.json("rollout", "start", *words)
        assert station.ended(row["rollout"])["state"] == "finished", station.log()
        assert "hi" in station.steps(row["rollout"])[0]["observation"]
        score = "SELECT best_score FROM rollouts WHERE id = ?"
        assert station.query(score, row["rollout"]) == [(100.0,)]
    finally:
        station.clear()


@needs_package
@slow_start
async def test_an_environment_that_cannot_begin_says_why(tmp_path: Path, packages: Path) -> None:
    with pytest.raises(NeedsPerson, match="taskset 'no_such' not found"):
        async with World(tmp_path, packages).opened("no_such"):
            pass


@pytest.mark.parametrize(
    "lines, words",
    [
        pytest.param("", "needs the id of a taskset", id="no-taskset"),
        pytest.param(
            'taskset = "guess"\npython = "no/such"', "no program on this machine", id="no-program"
        ),
        pytest.param(
            'taskset = "guess"\npython = "empty/bin/python"', "is not installed", id="no-package"
        ),
    ],
)
def test_what_cannot_run_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    if "empty" in lines:
        made = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")]
        subprocess.run(made, check=True, timeout=120)
    (tmp_path / "task.toml").write_text(
        f'name = "t"\ninstructions = "x"\nenvironment = "verifiers"\n[verifiers]\n{lines}\n'
    )
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(load_task(tmp_path))
