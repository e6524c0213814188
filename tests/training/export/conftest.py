"""A home with rollouts of the real loop: one forks, one is a branch of it, one has another task."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from houston_shared.home import Home
from tests.integration.agent.rig import Rig
from tests.training.rows.played_rollouts import Played, Stage, Turn, families


class Scene(NamedTuple):
    """What is exported."""

    stage: Stage
    long: Played
    """Forks, so that it has several contexts and summaries."""
    branch: Played
    """Of `long`, from its second step."""
    short: Played
    """Of another task, three steps."""

    @property
    def home(self) -> Home:
        return self.stage.rig.home

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sorted((self.long.id, self.branch.id, self.short.id)))


SECRET = "Zq7-rattle-42-Xy9-lamp"
"""Stands in a thought of `short`; nobody knows yet that it is one."""


def turns(count: int, first: int = 1) -> list[Turn]:
    return [
        Turn(f"T{n}t thinks of it", tuple(f"A{n}.{c}a goes on" for c in range(1 + n % 2)))
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    rig = Rig(tmp_path_factory.mktemp("export"))
    stage = Stage(rig)
    family = families(tmp_path_factory.mktemp("tokenizer"))["chatml"]
    long = stage.play(family, turns(8), context=1_000)
    branch = stage.branch(long, 2, turns(2, first=30))
    first, *rest = turns(3)
    short = stage.play(family, [first, Turn(f"the key is {SECRET}", ("A2.0a",)), *rest[1:]])
    yield Scene(stage, long, branch, short)
    rig.close()
