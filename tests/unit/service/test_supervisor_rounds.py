"""What cannot be done in one round of the supervisor is tried in the next, and ends nothing."""

from typing import Any

import pytest

from houston_daemon.service.supervisor import Supervisor
from houston_shared.errors import HoustonError

PROBLEMS: dict[str, Exception] = {
    "one that says what to do": HoustonError("No."),
    "a disk that went away": OSError(5, "Input/output error"),
    "a folder of somebody else": PermissionError(13, "Permission denied"),
}


class Failing:
    """Trainers, policies or workers of which nothing can be done."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        self.tries = 0

    def update(self, *_: object) -> None:
        self.tries += 1
        raise self.problem


@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("what", ["a full round", "workers", "training"])
def test_it_is_tried_again(monkeypatch: pytest.MonkeyPatch, what: str, case: str) -> None:
    failing = Failing(PROBLEMS[case])
    supervisor: Any = Supervisor.__new__(Supervisor)
    supervisor._training_problem = ""
    supervisor._activations = failing
    monkeypatch.setattr(supervisor, "_full_round", failing.update)
    monkeypatch.setattr(supervisor, "_start_workers", failing.update)
    for _ in range(2):
        if what == "training":
            supervisor._update_training(0.0)
        else:
            supervisor._full_round_due = 0.0 if what == "a full round" else float("inf")
            supervisor._supervise()
    assert failing.tries == 2
