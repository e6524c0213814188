"""The scripted samplers that a person guides: their errors leave room for the whole way, also when
they are told late, and the person speaks once."""

import json
from pathlib import Path
from typing import Any

import pytest
from bench.guided_samplers.guided_files import GUIDED_FILES
from bench.guided_samplers.guided_sampling import GuidedSuite
from bench.guided_samplers.guided_words import GUIDED_WORDS

from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.experiments.scripted_endpoint import ChatHistory
from houston_daemon.suites.imperfect_agents import AgentHabits
from houston_daemon.suites.suite_catalog import SUITES, write_suite_task
from houston_shared.records import RolloutSpec, ToolCall
from houston_shared.task import load_task


async def played(
    suite: GuidedSuite[Any], folder: Path, index: int, seed: int, habits: AgentHabits
) -> tuple[float, int, int, list[bool]]:
    """Score, failed calls and messages of a guided episode in the real world; of each step whether
    the person condemns it."""
    loaded = load_task(write_suite_task(suite.name, "train", index, folder))
    spec = RolloutSpec(rollout="r", task=loaded.record(), engine="x", engine_settings={})
    environment = make_environment(spec, loaded.task)
    await environment.open()
    task = suite.task(index)
    messages: list[dict[str, Any]] = [{"role": "system", "content": ""}]
    messages.append({"role": "user", "content": task.instructions})
    score, failed, spoken = 0.0, 0, 0
    condemned: list[bool] = []
    for step in range(1, SUITES[suite.name].steps + 1):
        chat = ChatHistory(tuple(messages))
        said, turn = suite.message(chat, task), suite.turn(chat, task, f"{seed}/{index}", habits)
        condemned.append(suite.condemns(task, turn))
        function = {"name": turn.name, "arguments": json.dumps(turn.arguments)}
        call = ToolCall(id=f"{step}.0", name=turn.name, arguments=dict(turn.arguments))
        result = await environment.act(call, BudgetStatus(step, 9, 9.0, 0), Stop())
        tail = f"\n<real_user>{said}</real_user>" if said else ""
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
            {"role": "tool", "content": result.text + tail},
        ]
        failed, spoken = failed + (not result.success), spoken + bool(said)
        score = float(result.fields.get("overall_score", score))
        if "overall_score" in result.fields:
            break
    return score, failed, spoken, condemned


@pytest.mark.parametrize("suite", [GUIDED_WORDS, GUIDED_FILES], ids=lambda suite: suite.name)
async def test_a_sampler_that_is_told_gets_there_whatever_fails(
    suite: GuidedSuite[Any], tmp_path: Path
) -> None:
    failures = 0
    for seed in range(40):
        habits = AgentHabits(wrong=1.0, errors=0.7)
        score, failed, spoken, condemned = await played(suite, tmp_path, seed % 8, seed, habits)
        assert (score, spoken, condemned.count(True)) == (100.0, 1, 1), seed
        failures += failed
    assert failures > 20


@pytest.mark.parametrize("suite", [GUIDED_WORDS, GUIDED_FILES], ids=lambda suite: suite.name)
async def test_a_sampler_that_is_right_is_told_nothing(
    suite: GuidedSuite[Any], tmp_path: Path
) -> None:
    for seed in range(8):
        habits = AgentHabits(wrong=0.0, errors=0.3)
        score, _, spoken, condemned = await played(suite, tmp_path, seed, seed, habits)
        assert (score, spoken, any(condemned)) == (100.0, 0, False), seed
