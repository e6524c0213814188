"""Task files of worlds: to learn from and to measure with, of splits that share no world."""

import json
from pathlib import Path
from typing import Any

from houston_daemon.training.experiment.annotator import MISUNDERSTOOD
from houston_daemon.training.experiment.recipe import Model, Worlds

TOOLS = ("act", "finish")
_TASK = """
name = {name}
instructions = {instructions}
environment = {environment}
sandbox = {sandbox}
tools = {tools}

[{table}]
{world}

[rules]
error_patterns = {errors}

[budget]
steps = {steps}
active_seconds = 1800
evaluations = 1
answer_tokens = {answer_tokens}
observation_tokens = 500

[sampling]
temperature = {temperature}
"""


def write(folder: Path, worlds: Worlds, split: str, model: Model, sandbox: str) -> Path:
    """Write the task file of a split (`train` or `test`); its path. Seeds choose the world."""
    made: dict[str, Any] = {**worlds.world, "split": split}
    text = _TASK.format(
        table=worlds.environment,
        world="\n".join(f"{key} = {json.dumps(value)}" for key, value in made.items()),
        name=json.dumps(f"{worlds.name}-{split}"),
        instructions=json.dumps(worlds.instructions.strip()),
        environment=json.dumps(worlds.environment),
        sandbox=json.dumps(sandbox),
        tools=json.dumps(TOOLS),
        errors=json.dumps(MISUNDERSTOOD),
        steps=worlds.steps,
        answer_tokens=model.answer_tokens,
        temperature=model.temperature,
    )
    file = folder / f"{worlds.name}-{split}" / "task.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file
