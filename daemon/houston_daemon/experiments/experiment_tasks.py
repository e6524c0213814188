"""Tasks of an experiment: workspaces in which orders can be followed, worlds of both splits, and
what solves them.

Splits share no world. TextWorld writes a walkthrough into the game that a rollout has made;
ScienceWorld is asked for its gold sequence. No model is ever shown either. Nothing here starts a
rollout.
"""

import json
import random
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.environments.simulation import scienceworld_environment
from houston_daemon.experiments.experiment_recipe import ModelRecipe, WorldsRecipe
from houston_daemon.experiments.order_vocabulary import OrderMessage, OrderWords
from houston_daemon.experiments.scripted_agents import MISUNDERSTOOD_WORDS
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.task import parse_task_record
from houston_shared.terminal_log_files import rollout_folder

ORDER_TOOLS = (
    "open_file", "list_files", "search_file", "run_command", "find_file", "search_dir",
    "think", "sleep", "finish",
)  # fmt: skip
_WRITING_TOOL = "create_file"
_ORDER_TASK = """
name = {name}
instructions = {instructions}
sandbox = {sandbox}
tools = {tools}

[workspace]
source = "workspace"

[budget]
steps = {steps}
minimum_steps = {steps}
active_seconds = 900
answer_tokens = {answer_tokens}
observation_tokens = 240
command_seconds = 5
sleep_seconds = {sleep_seconds}

[sampling]
temperature = {temperature}
"""
_PROJECT_INSTRUCTIONS = (
    "Write an overview of the project {project}: what each of its files is for.",
    "The project {project} is handed over to you. Find out what is in it and which parts matter.",
    "Look after the folder of the project {project}; note what is old and what is still needed.",
    "Prepare the project {project} for a colleague: learn what each file holds.",
)
_FILE_LINES = (
    "The {word} of this part was looked at twice.",
    "Nobody has counted {word} yet.",
    "More about {word} stands elsewhere.",
    "Here {word} and {other} belong together.",
)


def write_order_task(
    folder: Path,
    project: str,
    words: OrderWords,
    orders: Sequence[OrderMessage],
    seed: int,
    settings: Mapping[str, Any],
) -> Path:
    """Write a task folder for some `orders`; the path of its task file.

    settings: `steps`, `answer_tokens`, `temperature`, `sandbox`; perhaps `instructions`, `tools`
    and `sleep_seconds`.
    """
    source = random.Random(f"{seed}:{project}")
    workspace = folder / "workspace"
    for path in sorted(_order_files(words, orders, source)):
        file = workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_file_text(words, orders, path, source), encoding="utf-8")
    fields = {
        "name": project,
        "instructions": source.choice(_PROJECT_INSTRUCTIONS).format(project=project),
        "tools": list(ORDER_TOOLS),
        "sleep_seconds": 1,
        **settings,
    }
    text = _ORDER_TASK.format(**{key: json.dumps(value) for key, value in fields.items()})
    task = folder / "task.toml"
    task.write_text(text, encoding="utf-8")
    return task


def _order_files(
    words: OrderWords, orders: Sequence[OrderMessage], source: random.Random
) -> set[str]:
    """Every file that an order names, but what it has written; folders that it names have a file or
    two."""
    files: set[str] = set()
    for order in orders:
        if order.tool == _WRITING_TOOL:  # the agent makes the file that it names
            continue
        text = " ".join([order.text, *map(str, order.arguments.values())])
        for part in re.split(r"[\s,:;?!'\"`()]+", text):
            name = part.rstrip(".")
            if name.rpartition("/")[2] in words.names:
                files.add(name)
            elif name in words.folders:
                files |= {
                    f"{name}/{name_sampled}" for name_sampled in source.sample(words.names, 2)
                }
    return files | set(source.sample(words.names, 3))


def _file_text(
    words: OrderWords, orders: Sequence[OrderMessage], path: str, source: random.Random
) -> str:
    """Three lines, and one for each word that an order looks for here."""
    searched = [
        str(order.arguments["search_term"])
        for order in orders
        if order.arguments.get("file_path") == path
        or path.startswith(f"{order.arguments.get('dir_path')}/")
    ]
    drawn = [*source.sample(words.words, 3), *searched]
    return "".join(
        source.choice(_FILE_LINES).format(word=word, other=source.choice(words.words)) + "\n"
        for word in drawn
    )


WORLD_TOOLS = ("act", "finish")
_WORLD_TASK = """
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


def write_world_task(
    folder: Path, worlds: WorldsRecipe, split: str, model: ModelRecipe, sandbox: str
) -> Path:
    """Write the task file of a split (`train` or `test`); its path. Seeds choose the world."""
    table: dict[str, Any] = {**worlds.world, "split": split}
    text = _WORLD_TASK.format(
        table=worlds.environment,
        world="\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items()),
        name=json.dumps(f"{worlds.name}-{split}"),
        instructions=json.dumps(worlds.instructions.strip()),
        environment=json.dumps(worlds.environment),
        sandbox=json.dumps(sandbox),
        tools=json.dumps(WORLD_TOOLS),
        errors=json.dumps(MISUNDERSTOOD_WORDS),
        steps=worlds.steps,
        answer_tokens=model.answer_tokens,
        temperature=model.temperature,
    )
    file = folder / f"{worlds.name}-{split}" / "task.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


class WorldSolutions:
    """Solutions by rollout, kept; safe to use from several threads."""

    def __init__(self) -> None:
        self._solutions: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()
        self._java: Any = None
        self._random: Any = None

    def solution_of(self, rollout: str, spec: RolloutSpec) -> tuple[str, ...]:
        """The commands that solve its world. Raises HoustonError where none is known."""
        with self._lock:
            if rollout not in self._solutions:
                self._solutions[rollout] = tuple(self._find_solution(rollout, spec))
            return self._solutions[rollout]

    def _find_solution(self, rollout: str, spec: RolloutSpec) -> list[str]:
        task = parse_task_record(spec.task)
        if task.environment == "textworld":
            return read_walkthrough(rollout_folder(Path(spec.host_root), rollout) / "textworld")
        if task.environment == "scienceworld":
            return self._gold_actions(
                scienceworld_environment.choose_variation(task.scienceworld, spec.seed)
            )
        raise HoustonError(f"No solution is known for the environment {task.environment}.")

    def _gold_actions(self, world: Mapping[str, Any]) -> list[str]:
        if self._java is None:
            from houston_daemon.environments.simulation.scienceworld_simulator import connect

            self._random, self._java = connect()
        # As the simulator of a rollout does it: what lies where is drawn, too.
        self._random.setSeed(zlib.crc32(f"{world['task']}:{world['variation']}".encode()))
        self._java.load(world["task"], world["variation"], world["simplifications"], True)
        return [str(action) for action in self._java.getGoldActionSequence()]


def read_walkthrough(folder: Path) -> list[str]:
    """The walkthrough of the game that lies in `folder`. Raises HoustonError."""
    file = folder / "game.json"
    try:
        commands = json.loads(file.read_text(encoding="utf-8"))["metadata"]["walkthrough"]
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(f"{file} has no walkthrough: {type(problem).__name__}.") from problem
    return [str(command) for command in commands]
