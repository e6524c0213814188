"""A training ends before a step whose loss or gradient is no number can be saved."""

import math
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from houston_daemon.training.runs.epoch_training import EpochWatch
from houston_daemon.training.runs.run_folder import TrainingRunFolder, require_finite
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.errors import HoustonError

LOGS = {
    "both are numbers": ({"loss": 0.5, "grad_norm": 1.0, "learning_rate": 1e-3}, ""),
    "no norm is logged": ({"loss": 0.5}, ""),
    "loss NaN": ({"loss": math.nan, "grad_norm": 1.0}, "loss of step 3"),
    "loss infinite": ({"loss": math.inf, "grad_norm": 1.0}, "loss of step 3"),
    "gradient NaN": ({"loss": 0.5, "grad_norm": math.nan}, "gradient of step 3"),
    "gradient infinite": ({"loss": 0.5, "grad_norm": math.inf}, "gradient of step 3"),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("watched", [False, True], ids=["asked", "watched"])
def test_what_is_no_number_ends_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, watched: bool
) -> None:
    logs, cause = LOGS[name]
    folder = TrainingRunFolder(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    watch = EpochWatch(folder, ProgressWriter(tmp_path), 2)
    state = SimpleNamespace(global_step=3, max_steps=9, epoch=0.5)

    def log() -> None:
        if watched:
            watch.on_log(SimpleNamespace(learning_rate=1e-3), state, None, logs)
        else:
            require_finite(folder, 3, logs, "--set learning_rate=0.0001")

    if not cause:
        log()
        return
    with pytest.raises(HoustonError) as problem:
        log()
    told = str(problem.value)
    assert cause in told and "There is no checkpoint yet" in told
    assert "--set learning_rate=0.0001" in told
