"""The scripted sampler in worlds of words: its errors leave room for the whole way, also when it is
told late, and the person speaks once."""

import json
from pathlib import Path

from houston_daemon.environments.environment_protocol import Standing, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.experiments.scripted_endpoint import PlayedConversation
from houston_daemon.suites.guided_words import (
    LEVEL,
    MOST_ERRORS,
    PlayedWorld,
    WordSampler,
    next_message,
)
from houston_daemon.suites.suite_catalog import SUITES, write_suite_task
from houston_daemon.suites.word_worlds import word_world
from houston_shared.records import RolloutSpec, ToolCall
from houston_shared.task import load_task

STEPS = SUITES["word-worlds"].steps


async def played(folder: Path, index: int, seed: int, errors: float) -> tuple[float, int, int]:
    """Score, failed calls and messages of a guided episode in the real world."""
    loaded = load_task(write_suite_task("word-worlds", "train", index, folder))
    spec = RolloutSpec(rollout="r", task=loaded.record(), engine="x", engine_settings={})
    environment = make_environment(spec, loaded.task)
    task = word_world(LEVEL, "train", index)
    sampler = WordSampler(lambda _: PlayedWorld(task, f"{seed}/{index}"), 1.0, errors)
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": task.instructions}]
    score, failed, spoken = 0.0, 0, 0
    for step in range(1, STEPS + 1):
        chat = PlayedConversation(tuple(messages))
        said, turn = next_message(chat, task), sampler(chat)
        function = {"name": turn.name, "arguments": json.dumps(turn.arguments)}
        call = ToolCall(id=f"{step}.0", name=turn.name, arguments=dict(turn.arguments))
        result = await environment.act(call, Standing(step, 9, 0.0, 9.0, 0, None, None), Stop())
        tail = f"\n<real_user>{said}</real_user>" if said else ""
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
            {"role": "tool", "content": result.text + tail},
        ]
        failed, spoken = failed + (not result.success), spoken + bool(said)
        score = float(result.fields.get("overall_score", score))
        if turn.name == "enter":
            break
    return score, failed, spoken


async def test_a_sampler_that_is_told_gets_there_whatever_fails(tmp_path: Path) -> None:
    for seed in range(40):
        score, failed, spoken = await played(tmp_path, seed % 8, seed, 0.7)
        assert (score, spoken) == (100.0, 1) and 0 < failed <= MOST_ERRORS, seed
