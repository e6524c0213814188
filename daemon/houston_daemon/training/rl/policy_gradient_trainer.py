"""TRL's GRPOTrainer, trained on rows of Houston's rollouts instead of its own generations.

TRL provides the loss with clipping, entropy and KL, log-probabilities, reference model and
optimizer; transformers provides schedule and resume. Ours is the source of the batch: it is asked
for the passes of each optimizer step, which may take hours. A checkpoint is complete or absent
(`training.runs`).
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import PrinterCallback, Trainer
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from houston_daemon.training.runs import run_checkpoints

Pass = dict[str, torch.Tensor]
"""What `policy_gradient_batches.collate_pass` gives, with log-probabilities after scoring."""
PassSource = Callable[[int], Sequence[Pass]]
"""All passes of an optimizer step, by its number from 0. They have been scored."""
LOSS_TYPE = "dapo"
"""A sum over tokens divided by all trained tokens of the step; weights of tokens do the rest."""


class EngineGap(NamedTuple):
    """How far the engine's log-probabilities are from the trainer's, over trained tokens."""

    tokens: int
    """Tokens for which the engine said theirs."""
    mean: float
    """Mean of the absolute difference, nats."""
    largest: float
    truncated: int
    """Tokens whose importance weight was cut off at the cap."""


NO_GAP = EngineGap(0, 0.0, 0.0, 0)


class PolicyGradientTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains on the passes that a source has for each step."""

    def __init__(
        self, *, model: Any, arguments: GRPOConfig, source: PassSource, keep: int, **more: Any
    ) -> None:
        """source: asked at the beginning of each optimizer step. keep: checkpoints."""
        steps = Dataset.from_dict({"prompt": [""] * max(arguments.max_steps, 2)})
        super().__init__(
            model=model, reward_funcs=_never_called, args=arguments, train_dataset=steps, **more
        )
        self.remove_callback(PrinterCallback)
        self._source = source
        self._keep = keep
        self.current_gradient_accumulation_steps = 1  # what the loss asks for, also before the loop
        adapters = self.model.peft_config if isinstance(self.model, PeftModel) else {}
        self.reference = "ref" if "ref" in adapters else None
        """Adapter that the divergence is from, where the model has adapters; None: its base."""
        self.checkpoint_savers: list[Callable[[Path], None]] = []
        """Each writes into the folder of a checkpoint what else goes on from there."""

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Forward and backward of all passes of the step."""
        return self.backward(self._source(self.state.global_step))

    def backward(self, passes: Sequence[Pass]) -> torch.Tensor:
        """Add the gradients of scored passes; the sum of their losses, without a graph."""
        losses = [
            super(PolicyGradientTrainer, self).training_step(self.model_wrapped, one_pass, None)
            for one_pass in passes
        ]
        if not losses:  # no group of this update had anything to teach
            return torch.zeros((), device=self.accelerator.device)
        return torch.stack(losses).sum()

    def _prepare_inputs(self, inputs: Any) -> Any:
        """To the device; nothing is generated."""
        return Trainer._prepare_inputs(self, inputs)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        """Add the log-probabilities that the loss needs, all under the current policy.

        Adds `old_per_token_logps`, with KL also `ref_per_token_logps`. Where the engine's
        log-probability is known, it multiplies the advantage by the truncated importance weight
        min(p_trainer / p_engine, cap). This is TRL's `token_truncate`, folded into the advantage,
        which scales a token's loss in the same way. Returns how far engine and trainer are apart.
        """
        training = self.model.training
        self.model.eval()
        gaps, truncated = [], 0
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            for one_pass in passes:
                one_pass.update(self._logps_of(one_pass))
                sampled = one_pass["sampling_per_token_logps"].to(self.accelerator.device)
                mask = ~sampled.isnan() & (one_pass["tool_mask"] > 0).to(sampled.device)
                gap = torch.where(mask, one_pass["old_per_token_logps"] - sampled, 0.0)
                weight = gap.exp()
                truncated += int((weight > cap).sum())
                one_pass["advantages"] = one_pass["advantages"].to(gap.device) * weight.clamp(
                    max=cap
                )
                gaps.append(gap[mask])
        self.model.train(training)
        return _gap_of(torch.cat(gaps) if gaps else torch.zeros(0), truncated)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logprobs(self, one_pass: Pass) -> torch.Tensor:
        """Log-probabilities of a pass under the policy as it is, (rows, completion tokens)."""
        training = self.model.training
        self.model.eval()
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            logps = self._logps_under(self.model, one_pass)
        self.model.train(training)
        return logps

    def note_metrics(self, metrics: Mapping[str, float]) -> None:
        """Further figures for the next log, for whichever tracker the run reports to."""
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _logps_of(self, one_pass: Pass) -> Pass:
        """Old and, with KL, reference log-probabilities of a pass, (rows, completion tokens)."""
        scored = {"old_per_token_logps": self._logps_under(self.model, one_pass)}
        if self.beta:
            if self.ref_model is not None:
                scored["ref_per_token_logps"] = self._logps_under(self.ref_model, one_pass)
            else:
                assert isinstance(self.model, PeftModel)
                with use_adapter(self.model, self.reference):
                    scored["ref_per_token_logps"] = self._logps_under(self.model, one_pass)
        return scored

    def _logps_under(self, model: Any, one_pass: Pass) -> torch.Tensor:
        inputs = Trainer._prepare_inputs(self, one_pass)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        logits_to_keep = inputs["completion_ids"].size(1)
        logps, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, logits_to_keep)
        assert isinstance(logps, torch.Tensor)
        return logps

    def _send_telemetry(self) -> None:
        """Nobody is told what is trained."""

    def create_model_card(self, *args: Any, **more: Any) -> None:
        """None: what a policy comes from is in its lineage."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """One item a step; items hold nothing."""
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def get_train_dataloader(self) -> Any:
        """Counts steps."""
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=1,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Its own adapter: references are made again, and another track saves itself."""
        super()._save(output_dir, state_dict)
        if isinstance(self.model, PeftModel):
            for other in set(self.model.peft_config) - {self.model.active_adapter}:
                shutil.rmtree(Path(output_dir or self.args.output_dir) / other, ignore_errors=True)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """transformers' own checkpoint, written beside and renamed when it is whole."""
        with run_checkpoints.atomic_checkpoint(self.args) as folder:
            super()._save_checkpoint(model, trial)
            place = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            for save in self.checkpoint_savers:
                save(place)
        run_checkpoints.finish_checkpoint(folder, self.state.global_step, self._keep)


def _never_called(*prompts: Any, **more: Any) -> list[float]:
    """TRL asks for a reward function; rewards come with the rows."""
    raise AssertionError("rewards come with the rows")


def _gap_of(gaps: torch.Tensor, truncated: int) -> EngineGap:
    if not len(gaps):
        return NO_GAP
    size = gaps.abs()
    mean, largest = float(size.mean()), float(size.max())
    if not math.isfinite(largest):
        raise ValueError(f"the engine and the trainer are {largest} nats apart on a token")
    return EngineGap(len(gaps), mean, largest, truncated)
