"""The progress of a training run, for people and for the daemon: `progress.json`, `metrics.jsonl`
and `log.txt` in its folder.

`progress.json` is replaced whole, at most every second, and only by the first of several processes.
`policy_and_run_files.TrainingProgress` defines its content. It imports no torch.
"""

import os
import time
from collections import deque
from pathlib import Path

import msgspec

from houston_shared import atomic_file
from houston_shared.policy_and_run_files import TrainingProgress
from houston_shared.store.training_event_bodies import RunState
from houston_shared.times_and_counts import format_duration, iso_time, now_us
from houston_shared.training_figures import METRICS_NAME, StepMetrics

WRITE_SECONDS = 1.0
"""Between two replacements, but for a change of state."""
_SPEED_STEPS = 20
"""Steps from which the speed is taken."""


def progress_file(folder: Path) -> Path:
    """The file of a run."""
    return folder / "progress.json"


def log_file(folder: Path) -> Path:
    """The plain log of a run."""
    return folder / "log.txt"


def read_progress(folder: Path) -> TrainingProgress | None:
    """The last reading; None where there is none."""
    return atomic_file.read_json_file(progress_file(folder), TrainingProgress)


class ProgressWriter:
    """Writes them; of several processes only the first does (`silent` for the others)."""

    def __init__(self, folder: Path, *, silent: bool = False) -> None:
        self._folder = folder
        self._silent = silent
        self._written = 0.0
        self._has_kept = False
        """Whether this process has added to the curves."""
        self._speed: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS + 1)
        self.now = read_progress(folder) or TrainingProgress(state="queued")

    def log(self, line: str) -> None:
        """A line into the log, with its time."""
        if self._silent:
            return
        with log_file(self._folder).open("a", encoding="utf-8") as file:
            file.write(f"{iso_time(now_us())} {line}\n")

    def set_state(self, state: RunState, message: str = "") -> None:
        """Another state, or another line about it; written at once."""
        self.now = msgspec.structs.replace(self.now, state=state, message=message)
        self._write()

    def started(self, alone: bool) -> None:
        """A trainer has the folder now; alone: a person's command started it, and no daemon."""
        self.now = msgspec.structs.replace(self.now, alone=alone)
        self._write()

    def begin_steps(self, *, step: int, steps: int, tokens: int, total: int) -> None:
        """The first step comes now. tokens: computed before; total: of the whole run."""
        self._total = total
        self._speed.clear()
        self._speed.append((time.monotonic(), tokens))
        self.now = msgspec.structs.replace(
            self.now, state="running", step=step, steps=steps, tokens=tokens, message=""
        )
        self._write()

    def step_done(
        self,
        *,
        step: int,
        tokens: int,
        epoch: float,
        loss: float,
        lr: float,
        grad_norm: float | None,
        memory: int,
    ) -> None:
        """A step is done; `tokens` were computed in the whole run so far."""
        self._speed.append((time.monotonic(), tokens))
        (began, before), (ended, after) = self._speed[0], self._speed[-1]
        speed = (after - before) / max(ended - began, 1e-9)
        self.now = msgspec.structs.replace(
            self.now,
            step=step,
            tokens=tokens,
            epoch=round(epoch, 4),
            loss=loss,
            lr=lr,
            grad_norm=grad_norm,
            memory_bytes=memory,
            tokens_per_second=round(speed, 1),
            eta_seconds=round((self._total - tokens) / max(speed, 1e-9), 1),
        )
        self.log(progress_line(self.now))
        self.keep_metrics(
            StepMetrics(step=step, loss=loss, lr=lr, grad_norm=grad_norm, tokens=tokens)
        )
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self._write()

    def keep_metrics(self, metrics: StepMetrics) -> None:
        """Add a step to the run's curves. What a killed trainer has left of a line ends first."""
        if self._silent:
            return
        with (self._folder / METRICS_NAME).open("a+b") as file:
            if not self._has_kept and file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            self._has_kept = True
            file.write(msgspec.json.encode(metrics) + b"\n")

    def update_done(self, line: str, update: int, updates: int) -> None:
        """An update of reinforcement learning is done. line: how it went."""
        now = time.monotonic()
        self._speed.append((now, update))
        (began, before), (ended, after) = self._speed[0], self._speed[-1]
        seconds = (ended - began) / (after - before) if after > before else 0.0
        self.now = msgspec.structs.replace(
            self.now,
            step=update,
            steps=updates,
            message=line,
            eta_seconds=round((updates - update) * seconds, 1) if seconds else None,
        )
        self.log(f"update {update}/{updates}  {line}")
        self._write()

    def _write(self) -> None:
        if self._silent:
            return
        self._written = time.monotonic()
        self.now = msgspec.structs.replace(self.now, at=iso_time(now_us()))
        atomic_file.write_atomically(progress_file(self._folder), msgspec.json.encode(self.now))


def progress_line(progress: TrainingProgress) -> str:
    """A reading as a person reads it."""
    parts = [f"step {progress.step}/{progress.steps}", f"epoch {progress.epoch:.2f}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.lr is not None:
        parts.append(f"lr {progress.lr:.3g}")
    if progress.grad_norm is not None:
        parts.append(f"grad norm {progress.grad_norm:.3g}")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:.0f} tokens/s")
    if progress.eta_seconds is not None:
        parts.append(f"{format_duration(progress.eta_seconds)} left")
    parts.append(f"{progress.memory_bytes / 2**30:.2f} GiB")
    return "  ".join(parts)
