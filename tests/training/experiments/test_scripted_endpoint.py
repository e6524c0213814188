"""Which rollout a scripted endpoint plays for: the one that asks, whatever its task says."""

from pathlib import Path

import pytest

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_endpoint import ChatHistory, ScriptedSpecs
from houston_shared.errors import HoustonError
from tests.console.home_builder import HomeBuilder

ALIKE = ({"role": "user", "content": "Find the animal that lives longest."},)


def test_rollouts_with_the_same_task_are_told_apart(tmp_path: Path) -> None:
    """Worlds of ScienceWorld with the same words have other solutions."""
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("one", "find")
        builder.start("two", "find")
        seats = ScriptedSpecs(ExperimentHome(tmp_path, {}))
        assert seats.spec_of(ChatHistory(ALIKE, rollout="two")).rollout == "two"
        assert seats.spec_of(ChatHistory(ALIKE, rollout="one")).rollout == "one"
        builder.start("later", "find")
        assert seats.spec_of(ChatHistory(ALIKE, rollout="later")).rollout == "later"
        with pytest.raises(HoustonError, match="no rollout"):
            seats.spec_of(ChatHistory(ALIKE))
