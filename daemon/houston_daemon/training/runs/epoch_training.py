"""What trainings by epochs share: arguments, complete checkpoints, and a watch that saves after
each epoch, stops there on SIGTERM, and refuses a loss that is not a number."""

import signal
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.runs.run_folder import TrainingRunFolder, require_finite
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.run_trackers import OWN_REPORTS
from houston_shared.training_figures import StepMetrics

_NEARLY_ALL = 1 - 1e-9
"""transformers takes a share that is below 1, rounds up, and takes 1 for one step."""


def epoch_arguments(
    folder: TrainingRunFolder, recipe: Any, device: torch.device, *, warmup: float, **more: Any
) -> TrainingArguments:
    """Arguments of transformers' trainer, and what a kind of training has beside them.

    recipe: has `epochs`, `batch`, `learning_rate` and `seed`. warmup: share of the steps in which
    the rate rises from 0.
    """
    return TrainingArguments(
        output_dir=str(folder.checkpoints),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=min(warmup, _NEARLY_ALL),
        seed=recipe.seed,
        use_cpu=device.type == "cpu",
        save_strategy="no",  # the watch says when
        **OWN_REPORTS,
        dataloader_pin_memory=device.type == "cuda",
        **more,
    )


class EpochTrainer(Trainer):  # type: ignore[misc]
    """transformers' own, whose checkpoints are whole or not there."""

    def __init__(self, *, keep: int, **parts: Any) -> None:
        """keep: checkpoints. parts: of transformers' trainer."""
        super().__init__(**parts)
        self.keep = keep
        self.remove_callback(PrinterCallback)

    def train_on(self) -> None:
        """Train from the newest checkpoint, or from the beginning."""
        newest = run_checkpoints.newest_checkpoint(Path(self.args.output_dir))
        self.train(resume_from_checkpoint=str(newest) if newest else None)

    @property
    def losses(self) -> list[float]:
        """Of every step so far."""
        return [entry["loss"] for entry in self.state.log_history if "loss" in entry]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with run_checkpoints.atomic_checkpoint(self.args) as folder:
            super()._save_checkpoint(model, trial)
        run_checkpoints.finish_checkpoint(folder, self.state.global_step, self.keep)


class EpochWatch(TrainerCallback):  # type: ignore[misc]
    """Tells how far a run is, saves after each epoch, and ends there on SIGTERM."""

    def __init__(self, folder: TrainingRunFolder, writer: ProgressWriter, epochs: int) -> None:
        self._folder = folder
        self._writer = writer
        self._epochs = epochs
        self._stop_requested = False
        self.ended = False
        """Whether it ended before the last epoch because it was asked to."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        self._stop_requested = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save, and end where that was asked for."""
        epoch = round(state.epoch)
        self.ended = self._stop_requested and epoch < self._epochs
        control.should_save = True
        control.should_training_stop = self.ended or control.should_training_stop

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float], **rest: Any
    ) -> None:
        """Show the loss. Raises HoustonError as `require_finite`."""
        if "loss" not in logs:
            return
        lower_rate = f"--set learning_rate={args.learning_rate / 10:g}"
        require_finite(self._folder, state.global_step, logs, lower_rate)
        line = f"epoch {state.epoch:.2f} of {self._epochs}, loss {logs['loss']:.4f}"
        self._writer.keep_metrics(StepMetrics(step=state.global_step, loss=logs["loss"]))
        self._writer.update_done(line, state.global_step, state.max_steps)
