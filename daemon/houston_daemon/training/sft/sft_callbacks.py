"""Watches a training run: figures, time to save, SIGTERM, a loss that is NaN, and the held-out
loss.

All processes must decide alike in the same step, or some would wait for the others forever. The
loss on held-out rows is computed before training and after it, on rows spread evenly over the file.
Nothing here decides about gradients.
"""

import math
import signal
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
import torch
from accelerate.utils import DistributedType
from transformers import TrainerCallback

from houston_daemon.training.runs.run_folder import require_finite
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import batch_plan, sft_dataset, training_memory
from houston_daemon.training.sft.batch_plan import OptimizerStep
from houston_daemon.training.sft.sft_recipe import lower_rate_settings
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_daemon.training.sft.sft_trainer import WeightedTrainer
from houston_shared import atomic_file
from houston_shared.training_figures import HELD_OUT_BEFORE_NAME, HeldOutBefore

_CONTINUE, _SAVE_NOW, _STOP_NOW = 0, 1, 2


class TrainingWatch(TrainerCallback):  # type: ignore[misc]
    """Writes progress, saves by the clock, ends on SIGTERM, refuses NaN."""

    def __init__(
        self,
        folder: RunFolder,
        steps: Sequence[OptimizerStep],
        writer: ProgressWriter,
        save_minutes: float,
    ) -> None:
        self.folder = folder
        self._lower_rates = lower_rate_settings(folder.spec.recipe)
        self._steps = steps
        self.writer = writer
        self._seconds = 60 * save_minutes
        self._saved = time.monotonic()
        self._tokens = [0, *accumulate(step.tokens for step in steps)]
        self._stop_requested = False
        self.ended = False
        """Whether it ended because it was asked to."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        self._stop_requested = True

    def stop_requested(self, device: torch.device) -> bool:
        """Whether any process was asked to end; all of them must look at the same time."""
        self.ended = (
            _strongest_wish(_STOP_NOW if self._stop_requested else _CONTINUE, device) == _STOP_NOW
        )
        return self.ended

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """The clock starts."""
        self._saved = time.monotonic()
        self.writer.begin_steps(
            step=state.global_step,
            steps=len(self._steps),
            tokens=self._tokens[state.global_step],
            total=self._tokens[-1],
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save by the clock, or end."""
        wish = _CONTINUE
        if self._stop_requested:
            wish = _STOP_NOW
        elif time.monotonic() - self._saved >= self._seconds:
            wish = _SAVE_NOW
        wish = _strongest_wish(wish, args.device)
        if wish:
            control.should_save = True
        if wish == _STOP_NOW:
            control.should_training_stop = True
            self.ended = state.global_step < len(self._steps)

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A checkpoint is whole."""
        self._saved = time.monotonic()
        self.writer.log(f"checkpoint at step {state.global_step}")

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float], **rest: Any
    ) -> None:
        """Raises HoustonError as `require_finite`."""
        if "loss" not in logs:
            return
        step, loss = state.global_step, logs["loss"]
        require_finite(self.folder, step, logs, self._lower_rates)
        self.writer.step_done(
            step=step,
            tokens=self._tokens[step],
            epoch=self._steps[step - 1].epoch,
            loss=loss,
            lr=logs["learning_rate"],
            grad_norm=logs.get("grad_norm"),
            memory=training_memory.peak_bytes(),
        )


def _strongest_wish(wish: int, device: torch.device) -> int:
    """The strongest wish of all processes."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return wish
    all_of_them = torch.tensor(wish, device=device)
    torch.distributed.all_reduce(all_of_them, torch.distributed.ReduceOp.MAX)
    return int(all_of_them)


MAX_HELD_OUT_ROWS = 100
"""The most rows on which it is taken."""
_SHARDED_TYPES = (DistributedType.FSDP, DistributedType.DEEPSPEED)


def spread_rows(rows: int) -> list[int]:
    """At most `MAX_HELD_OUT_ROWS` of so many rows, by number, evenly over all of them."""
    count = min(rows, MAX_HELD_OUT_ROWS)
    return [number * rows // count for number in range(count)]


class HeldOutLoss:
    """Takes it, in every process of the run alike."""

    def __init__(self, trainer: WeightedTrainer, watch: TrainingWatch, packing: bool) -> None:
        """packing: whether several rows share a pass."""
        folder = watch.folder
        self._trainer = trainer
        self._watch = watch
        self._file = folder.path / HELD_OUT_BEFORE_NAME
        self.rows = 0
        """How many rows it is taken on; 0 where none are held out."""
        if not folder.held_out.is_file():
            return
        rows = sft_dataset.load_rows(folder.held_out)
        self._lengths = rows.lengths
        numbers = spread_rows(len(rows.lengths))
        self.rows = len(numbers)
        if not numbers:
            return
        self._steps = batch_plan.plan_steps(
            rows.lengths,
            [int(row in numbers) for row in range(len(rows.lengths))],
            epochs=1,
            batch=len(numbers),
            budget=folder.spec.recipe.pack_tokens if packing else 0,
            seed=0,
            processes=trainer.accelerator.num_processes,
        )
        self._passes = sft_dataset.PassDataset(rows, self._steps, packing)

    def before(self) -> float | None:
        """The loss of what training begins from; None without rows, where the model is to be put
        into shards first, and where the run was asked to end meanwhile."""
        if not self.rows or self._trainer.accelerator.distributed_type in _SHARDED_TYPES:
            return None  # nobody has put such a model onto the devices yet
        if (earlier := self._previous_loss()) is not None:
            return earlier
        loss = self._take_loss("before training")
        if loss is not None and math.isfinite(loss) and self._trainer.is_world_process_zero():
            atomic_file.write_atomically(
                self._file, msgspec.json.encode(HeldOutBefore(loss=loss, rows=self.rows))
            )
        return loss

    def after(self) -> float | None:
        """The loss of what was trained; None without rows, and where it was asked to end."""
        return self._take_loss("after training") if self.rows else None

    def _previous_loss(self) -> float | None:
        """What was taken before this run went on, on as many rows."""
        earlier = atomic_file.read_json_file(self._file, HeldOutBefore)
        return earlier.loss if earlier and earlier.rows == self.rows else None

    def _take_loss(self, when: str) -> float | None:
        what = f"{self.rows} of {len(self._lengths)} held-out rows {when}"
        self._watch.writer.set_state("running", f"measuring the loss on {what}")
        with training_memory.explain_out_of_memory(
            self._watch.folder, self._lengths, self._steps, training=False
        ):
            device = self._trainer.args.device
            loss: float | None = self._trainer.held_out(
                self._passes, lambda: self._watch.stop_requested(device)
            )
        if loss is not None:
            self._watch.writer.log(f"loss {loss:.4f} on {what}")
        return loss
