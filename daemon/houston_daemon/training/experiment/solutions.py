"""What solves a world, as its own simulator says: for the scripted agent, annotator and judge.

TextWorld writes a walkthrough into the game that a rollout has made; ScienceWorld is asked for its
gold sequence. No model is ever shown either.
"""

import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from houston_daemon.environments.simulation import scienceworld_environment
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.task import parse_task
from houston_shared.terminal_folder import rollout_folder


class Solutions:
    """Solutions by rollout, kept; safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._one = threading.Lock()
        self._java: Any = None
        self._random: Any = None

    def of(self, rollout: str, spec: RolloutSpec) -> tuple[str, ...]:
        """The commands that solve its world. Raises HoustonError where none is known."""
        with self._one:
            if rollout not in self._known:
                self._known[rollout] = tuple(self._found(rollout, spec))
            return self._known[rollout]

    def _found(self, rollout: str, spec: RolloutSpec) -> list[str]:
        task = parse_task(spec.task)
        if task.environment == "textworld":
            return walkthrough(rollout_folder(Path(spec.host_root), rollout) / "textworld")
        if task.environment == "scienceworld":
            return self._gold(
                scienceworld_environment.choose_variation(task.scienceworld, spec.seed)
            )
        raise HoustonError(f"No solution is known for the environment {task.environment}.")

    def _gold(self, world: Mapping[str, Any]) -> list[str]:
        if self._java is None:
            from houston_daemon.environments.simulation.scienceworld_simulator import connect

            self._random, self._java = connect()
        # As the simulator of a rollout does it: what lies where is drawn, too.
        self._random.setSeed(zlib.crc32(f"{world['task']}:{world['variation']}".encode()))
        self._java.load(world["task"], world["variation"], world["simplifications"], True)
        return [str(action) for action in self._java.getGoldActionSequence()]


def walkthrough(folder: Path) -> list[str]:
    """The walkthrough of the game that lies in `folder`. Raises HoustonError."""
    file = folder / "game.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["metadata"]["walkthrough"]
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(f"{file} has no walkthrough: {type(problem).__name__}.") from problem
    return [str(command) for command in found]
