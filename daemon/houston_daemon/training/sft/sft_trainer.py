"""TRL's SFTTrainer with a weight for every token, and a step in as many passes as its rows need.

TRL and transformers provide model, PEFT, optimizer, schedule, autocast, processes and resume. Ours
are the loss (Σ weight × cross entropy / Σ weights of the whole optimizer step; with weights of 1 it
is TRL's own), and checkpoints that are complete or absent.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import DistributedType
from transformers import PrinterCallback
from trl import SFTTrainer

from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.sft import sft_dataset, sft_run_folder
from houston_daemon.training.sft.weighted_loss import WeightedLossHead, loss_from_logits


class WeightedTrainer(SFTTrainer):  # type: ignore[misc]
    """Trains on the passes of `sft_dataset.PassDataset`, in their order.

    One item of its data set is all that this process computes in one optimizer step, so that the
    number of passes may differ from step to step: gradient accumulation, with packing, is in here.
    """

    loss_is_scaled_for_ga = True
    """The loss is divided by the weights of the whole step; nobody divides it again."""

    def __init__(
        self, *, passes: sft_dataset.PassDataset, fused: bool, keep: int, **more: Any
    ) -> None:
        """fused: whether the model's head may compute the loss (`sft_model.probe_model`). keep:
        checkpoints."""
        super().__init__(train_dataset=passes.numbers(), data_collator=passes, **more)
        self.remove_callback(PrinterCallback)
        self._keep = keep
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        self._head = WeightedLossHead(base) if fused else None

    @property
    def kind(self) -> str:
        """How the state of training lies over the processes (`sft_run_folder.SHARDING_KINDS`)."""
        return sft_run_folder.kind_of_distributed(self.accelerator.distributed_type.value)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | float | None = None,
    ) -> Any:
        """The loss of one pass, as its part of the step's.

        num_items_in_batch: the weights of the step, over all passes and processes.
        """
        about = {name: inputs[name] for name in ("predicts", "targets", "weights")}
        model_inputs = {name: value for name, value in inputs.items() if name not in about}
        if getattr(self, "aux_loss_enabled", False):
            model_inputs["output_router_logits"] = True
        if self._head is None:
            outputs = model(**model_inputs, use_cache=False)
            chosen = outputs.logits[0, about["predicts"]]
            loss = loss_from_logits(chosen, about["targets"], about["weights"])
        else:
            with self._head.computing_loss(**about):
                outputs = model(**model_inputs, use_cache=False)
            loss = outputs.logits.sum()
            # Wrappers may round what a model returns; the figure is kept as it was computed.
            loss = loss + (self._head.total - loss).detach()
        whole = about["weights"].sum() if num_items_in_batch is None else num_items_in_batch
        # Gradients are averaged over the processes, as in TRL.
        loss = loss / whole * self.accelerator.num_processes
        if getattr(self, "aux_loss_enabled", False):
            loss = loss + self.router_aux_loss_coef * outputs.aux_loss / self._passes
        return (loss, outputs) if return_outputs else loss

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Forward and backward of all passes of the step; gradients are exchanged at the last."""
        passes = inputs["passes"]
        self._passes = len(passes)
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        losses = []
        for number, pass_inputs in enumerate(passes):
            last = number == len(passes) - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            syncs = last or deepspeed
            with contextlib.nullcontext() if syncs else self.accelerator.no_sync(model=model):
                losses.append(super().training_step(model, pass_inputs, num_items_in_batch))
        return torch.stack(losses).sum()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def held_out(self, rows: sft_dataset.PassDataset, ended: Callable[[], bool]) -> float | None:
        """The loss over one step's rows, all processes together; nothing is trained.

        ended: asked before each pass, in all processes alike, whether to leave it; then it is None.
        """
        model = self.model_wrapped
        training = model.training
        model.eval()
        share = self._prepare_inputs(rows.item(self.accelerator.process_index))
        whole = self._get_num_items_in_batch([share], self.args.device)
        self._passes = len(share["passes"])
        losses = []
        with self.compute_loss_context_manager():
            for inputs in share["passes"]:
                if ended():
                    break
                losses.append(self.compute_loss(model, inputs, False, whole))
        model.train(training)
        if len(losses) < self._passes:
            return None
        return float(self.accelerator.gather(torch.stack(losses).sum()).mean())

    def _send_telemetry(self) -> None:
        """Nobody is told what is trained."""

    def create_model_card(self, *args: Any, **more: Any) -> None:
        """None: what a policy comes from is in its lineage."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """The order is the plan's."""
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """The weights of the step."""
        passes = (inputs for item in batch_samples for inputs in item["passes"])
        weights = [inputs["weights"].double().sum() for inputs in passes]
        whole = torch.stack(weights).sum().float().to(device)
        return self.accelerator.gather(whole).sum()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """transformers' own checkpoint, written beside and renamed when it is whole."""
        with run_checkpoints.atomic_checkpoint(self.args) as folder:
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            run_checkpoints.finish_checkpoint(folder, self.state.global_step, self._keep, self.kind)
        self.accelerator.wait_for_everyone()
