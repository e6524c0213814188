"""What trainings by epochs share: whole checkpoints, and a watch that saves after each epoch, ends
there on SIGTERM, and refuses a loss that is no number."""

import signal
from typing import Any

from transformers import Trainer, TrainerCallback

from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.errors import HoustonError
from houston_shared.training_figures import StepMetrics


class EpochTrainer(Trainer):  # type: ignore[misc]
    """transformers' own, whose checkpoints are whole or not there."""

    keep = 1
    """Checkpoints."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with run_checkpoints.written_beside(self.args) as folder:
            super()._save_checkpoint(model, trial)
        run_checkpoints.finish_checkpoint(folder, self.state.global_step, self.keep)


class EpochWatch(TrainerCallback):  # type: ignore[misc]
    """Tells how far a run is, saves after each epoch, and ends there on SIGTERM."""

    def __init__(self, writer: ProgressWriter, epochs: int) -> None:
        self._writer = writer
        self._epochs = epochs
        self._asked_to_end = False
        self.ended = False
        """Whether it ended before the last epoch because it was asked to."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        self._asked_to_end = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save, and end where that was asked for."""
        epoch = round(state.epoch)
        self.ended = self._asked_to_end and epoch < self._epochs
        control.should_save = True
        control.should_training_stop = self.ended or control.should_training_stop

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float], **rest: Any
    ) -> None:
        """Show the loss. Raises HoustonError where it is no number, before that is saved."""
        if "loss" not in logs:
            return
        if logs["loss"] != logs["loss"]:
            raise HoustonError(
                f"The loss of step {state.global_step} is not a number.",
                "Training ended there.",
                "Next: a new run with a lower rate,"
                f" --set learning_rate={args.learning_rate / 10:g}",
            )
        line = f"epoch {state.epoch:.2f} of {self._epochs}, loss {logs['loss']:.4f}"
        self._writer.keep_metrics(StepMetrics(step=state.global_step, loss=logs["loss"]))
        self._writer.update_done(line, state.global_step, state.max_steps)
