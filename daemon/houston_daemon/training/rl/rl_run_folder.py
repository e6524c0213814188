"""The folder of one run of reinforcement learning: its settings, its updates, its results.

Lock, checkpoints and progress are those of every run. It also holds `updates.jsonl`, a line for
each update; `groups/`, a file for each group of rollouts; and with a process reward model
`process_rewards/`, the scores of each group's decisions. It imports no torch.
"""

from pathlib import Path

import msgspec

from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.update_figures import UpdateFigures
from houston_daemon.training.runs.run_folder import TrainingRunFolder, TrainingRunSpec
from houston_shared import atomic_file
from houston_shared.home import Home
from houston_shared.policy_and_run_files import (
    full_run_name,
    is_run_name,
    missing_run_error,
    training_folder,
)


def critic_family(name: str) -> str:
    """Family of the critic's versions beside those of a policy's family."""
    return f"{name}-critic"


class RlRunSpec(TrainingRunSpec[RlRecipe], frozen=True, kw_only=True):
    """`recipe.json`; engine and adapter of its recipe are filled in, too."""

    parent: str
    """The policy that it begins from; empty for the engine's own model."""
    active_before: str
    """Policy with which the engine's rollouts sampled before the run; empty for its own model."""


class RlRunFolder(TrainingRunFolder):
    """Paths and small files of a run."""

    train_command = "houston train dapo"

    @property
    def spec(self) -> RlRunSpec:
        """What was asked. Raises HoustonError where this is no folder of such a run."""
        return self._read_spec(RlRunSpec, "a run of reinforcement learning")

    @property
    def process_rewards(self) -> Path:
        """What a process reward model said of the decisions of each group."""
        return self.path / "process_rewards"

    @property
    def decisions(self) -> Path:
        """Decisions that were sampled at recorded states, with their scores."""
        return self.path / "decisions"

    @property
    def critiques(self) -> Path:
        """Critiques that were sampled of attempts."""
        return self.path / "critiques"

    @property
    def updates(self) -> list[UpdateFigures]:
        """Every update that was trained, in order."""
        try:
            lines = (self.path / "updates.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=UpdateFigures) for line in lines]

    def keep_update(self, figures: UpdateFigures) -> None:
        """Add an update; what an earlier try said of it and of later ones is replaced."""
        earlier = [entry for entry in self.updates if entry.update < figures.update]
        lines = [msgspec.json.encode(entry) for entry in (*earlier, figures)]
        atomic_file.write_atomically(self.path / "updates.jsonl", b"\n".join(lines) + b"\n")


def find_rl_run(home: Home, run: str, effect: str) -> RlRunFolder:
    """The folder of a run by its name. effect: what did not happen, for the error. Raises
    HoustonError where there is none."""
    run = full_run_name(home, run)
    folder = RlRunFolder(training_folder(home) / run)
    if not is_run_name(run) or not folder.path.is_dir():
        raise missing_run_error(run, effect)
    return folder
