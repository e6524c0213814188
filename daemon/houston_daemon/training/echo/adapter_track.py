"""A second adapter on a trainer's model, updated in step with the first one: ECHO's two tracks
(section 3.3, eq. 9) on one base model.

The trainer's own loop trains the first adapter. A track computes passes, loss and log-probabilities
as that trainer does, but has its own adapter, optimizer, schedule and reference. An update of one
adapter never changes the other. Both run in one process; no model is loaded here.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import Trainer, get_scheduler

from houston_daemon.training.rl.policy_gradient_trainer import (
    EngineGap,
    Pass,
    PolicyGradientTrainer,
)

STATE_FILE = "track.pt"
"""Optimizer and schedule, as tensors and plain values."""


class AdapterTrack:
    """One more adapter of a trainer's model. The model must be a PEFT model."""

    def __init__(
        self, trainer: PolicyGradientTrainer, name: str, adapter: LoraConfig | Path
    ) -> None:
        """adapter: what a new one is like, or the folder of one to go on from, which is then also
        the reference of the divergence; of a new one that is the base model. Rate, schedule, decay
        and clipping are those of the trainer's arguments."""
        self._trainer = trainer
        self._name = name
        self._reference: str | None = None
        self._metrics = _no_metrics()
        model = trainer.model
        active = model.active_adapter
        if isinstance(adapter, LoraConfig):
            model.add_adapter(name, adapter)
        else:
            model.load_adapter(str(adapter), name, is_trainable=True)
            if trainer.beta:
                self._reference = f"{name}_reference"
                model.load_adapter(str(adapter), self._reference, is_trainable=False)
        model.set_adapter(active)
        with self._active():
            self._parameters = [each for each in model.parameters() if each.requires_grad]
        optimizer_class, settings = Trainer.get_optimizer_cls_and_kwargs(trainer.args)
        self._optimizer = optimizer_class(
            self._parameters, **settings | {"weight_decay": trainer.args.weight_decay}
        )
        self._schedule = get_scheduler(
            trainer.args.lr_scheduler_type,
            self._optimizer,
            num_warmup_steps=trainer.args.get_warmup_steps(trainer.args.max_steps),
            num_training_steps=trainer.args.max_steps,
        )

    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        """`PolicyGradientTrainer.score`, of this adapter."""
        with self._active():
            gap: EngineGap = self._trainer.score(passes, cap)
        return gap

    def step(self, passes: Sequence[Pass]) -> dict[str, float]:
        """Do one optimizer step on scored passes; returns the mean of each figure of TRL's loss.

        Without passes only the schedule changes, as in the trainer's own loop.
        """
        self._metrics = _no_metrics()
        with self._active():
            loss = float(self._trainer.backward(passes))
            most = self._trainer.args.max_grad_norm or float("inf")
            norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, most))
            self._optimizer.step()
            self._schedule.step()
            self._optimizer.zero_grad()
        figures = {
            name: sum(values) / len(values)
            for name, values in self._metrics["train"].items()
            if values
        }
        return figures | {"loss": loss, "grad_norm": norm}

    def write_adapter(self, folder: str) -> None:
        """Write the adapter alone, as PEFT writes an only one."""
        self._trainer.model.save_pretrained(folder, selected_adapters=[self._name])
        inner = Path(folder) / self._name
        for file in inner.iterdir():
            file.replace(Path(folder) / file.name)
        inner.rmdir()

    def save(self, folder: Path) -> None:
        """Write the adapter (`adapter_model.safetensors`) and what `load` goes on from."""
        self._trainer.model.save_pretrained(str(folder), selected_adapters=[self._name])
        state = {
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
        }
        torch.save(state, folder / self._name / STATE_FILE)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        own = folder / self._name
        self._trainer.model.load_adapter(str(own), self._name, is_trainable=True)
        state = torch.load(own / STATE_FILE, weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])

    @contextmanager
    def _active(self) -> Iterator[None]:
        """With this adapter, its reference and its figures in place of the trainer's own."""
        trainer = self._trainer
        before = (trainer.model.active_adapter, trainer.reference, trainer._metrics)
        trainer.model.set_adapter(self._name)
        trainer.reference, trainer._metrics = self._reference, self._metrics
        try:
            yield
        finally:
            name, trainer.reference, trainer._metrics = before
            trainer.model.set_adapter(name)


def _no_metrics() -> dict[str, Any]:
    return {"train": defaultdict(list), "eval": defaultdict(list)}
