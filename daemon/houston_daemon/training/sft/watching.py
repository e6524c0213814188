"""What is looked at after every step: figures, time to save, a signal to end, a loss that is none.

All processes come to the same conclusion in the same step, or some would wait for the others for
ever. It decides nothing about gradients.
"""

import math
import signal
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from transformers import TrainerCallback

from houston_daemon.training.sft import memory
from houston_daemon.training.sft.plan import Step
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.recipe import lower_rates
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import HoustonError

_GO_ON, _SAVE, _END = 0, 1, 2


class Watch(TrainerCallback):  # type: ignore[misc]
    """Writes progress, saves by the clock, ends on SIGTERM, refuses NaN."""

    def __init__(
        self, folder: RunFolder, steps: Sequence[Step], writer: Writer, save_minutes: float
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._writer = writer
        self._seconds = 60 * save_minutes
        self._saved = time.monotonic()
        self._tokens = [0, *accumulate(step.tokens for step in steps)]
        self._asked_to_end = False
        self.ended = False
        """Whether it ended because it was asked to."""
        self.losses: list[float] = []
        """Of the steps of this process's life."""
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, number: int, frame: Any) -> None:
        self._asked_to_end = True

    def asked(self, device: torch.device) -> bool:
        """Whether any process was asked to end; all of them must look at the same time."""
        self.ended = _agreed(_END if self._asked_to_end else _GO_ON, device) == _END
        return self.ended

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """The clock starts."""
        self._saved = time.monotonic()
        self._writer.begin(
            step=state.global_step,
            steps=len(self._steps),
            tokens=self._tokens[state.global_step],
            total=self._tokens[-1],
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save by the clock, or end."""
        wish = _GO_ON
        if self._asked_to_end:
            wish = _END
        elif time.monotonic() - self._saved >= self._seconds:
            wish = _SAVE
        wish = _agreed(wish, args.device)
        if wish:
            control.should_save = True
        if wish == _END:
            control.should_training_stop = True
            self.ended = state.global_step < len(self._steps)

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A checkpoint is whole."""
        self._saved = time.monotonic()
        self._writer.say(f"checkpoint at step {state.global_step}")

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float], **rest: Any
    ) -> None:
        """Raises HoustonError where the loss or the gradient is not a number.

        It comes before the step can be saved, so that every checkpoint is sound.
        """
        if "loss" not in logs:
            return
        loss, norm = logs["loss"], logs.get("grad_norm")
        step = state.global_step
        if not math.isfinite(loss) or (norm is not None and not math.isfinite(norm)):
            what = "loss" if not math.isfinite(loss) else "gradient"
            raise HoustonError(
                f"The {what} of step {step} is not a number"
                f" (loss {loss}, gradient norm {norm}, rate {logs['learning_rate']:.3g}).",
                f"Training ended there. {self._folder.good}",
                f"Next: a new run with lower rates, {lower_rates(self._folder.asked.recipe)}",
            )
        self.losses.append(loss)
        self._writer.stepped(
            step=step,
            tokens=self._tokens[step],
            epoch=self._steps[step - 1].epoch,
            loss=loss,
            lr=logs["learning_rate"],
            grad_norm=norm,
            memory=memory.most(),
        )


def _agreed(wish: int, device: torch.device) -> int:
    """The strongest wish of all processes."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return wish
    all_of_them = torch.tensor(wish, device=device)
    torch.distributed.all_reduce(all_of_them, torch.distributed.ReduceOp.MAX)
    return int(all_of_them)
