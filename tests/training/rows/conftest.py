"""One home for a module: rollouts of all its tests lie side by side, as they do in a real one."""

from collections.abc import Iterator

import pytest

from tests.integration.agent.rig import Rig
from tests.training.rows.played_rollouts import Family, Stage, families


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    rig = Rig(tmp_path_factory.mktemp("rows"))
    yield Stage(rig)
    rig.close()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    return families(tmp_path_factory.mktemp("tokenizer"))
