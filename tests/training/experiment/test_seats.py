"""Which rollout a scripted endpoint plays for: the one that asks, whatever its task says."""

from pathlib import Path

import pytest

from houston_daemon.training.experiment.endpoint import Conversation
from houston_daemon.training.experiment.own_home import OwnHome
from houston_daemon.training.experiment.seats import Seats
from houston_shared.errors import HoustonError
from tests.console.homes import HomeBuilder

ALIKE = ({"role": "user", "content": "Find the animal that lives longest."},)


def test_rollouts_with_the_same_task_are_told_apart(tmp_path: Path) -> None:
    """Worlds of ScienceWorld with the same words have other solutions."""
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("one", "find")
        builder.start("two", "find")
        seats = Seats(OwnHome(tmp_path, {}))
        assert seats.of(Conversation(ALIKE, rollout="two")).rollout == "two"
        assert seats.of(Conversation(ALIKE, rollout="one")).rollout == "one"
        builder.start("later", "find")
        assert seats.of(Conversation(ALIKE, rollout="later")).rollout == "later"
        with pytest.raises(HoustonError, match="no rollout"):
            seats.of(Conversation(ALIKE))
