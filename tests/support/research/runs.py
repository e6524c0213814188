"""What an experiment gives: the task's own training on what a filter keeps, run in here."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.research.filters import copies, labels, pages

TASK = Path(__file__).parents[3] / "trajectories" / "samples" / "filter-reviews"
FILTERS: dict[str, ModuleType] = {"copies": copies, "pages": pages, "labels": labels}
EPOCHS = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the last line of a run says."""

    kept: int
    accuracy: str
    """As it is printed, three digits."""


class Runs:
    """Runs filters on the rows of the task."""

    def __init__(self) -> None:
        self._train = _loaded(TASK / "workspace" / "train.py")
        self._rows = self._train.rows_of(TASK / "workspace" / "data" / "reviews.tsv")
        self._clean = self._train.rows_of(TASK / "workspace" / "data" / "dev.tsv")

    def outcome(self, stage: str, config: Mapping[str, float]) -> Outcome:
        """Of one configuration of one stage's filter; stage `` keeps every row."""
        kept = FILTERS[stage].keep(self._rows, config) if stage else self._rows
        weights: dict[str, float] = {}
        for number in range(1, EPOCHS + 1):
            self._train.epoch(weights, kept, 0.3 / number)
        return Outcome(len(kept), f"{self._train.accuracy(weights, self._clean):.3f}")


def source(stage: str) -> str:
    """What the agent writes into filter.py."""
    return Path(str(FILTERS[stage].__file__)).read_text()


def _loaded(file: Path) -> Any:
    found = importlib.util.spec_from_file_location("train", file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
