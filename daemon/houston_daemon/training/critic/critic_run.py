"""Trains a critic on what people said, from its rows to a registered policy.

Messages are learned by likelihood, each weighted by its gain (advantage-weighted regression, arXiv
1910.00177). Pairs are learned by the preference loss of DPO (arXiv 2305.18290, eq. 7); its
reference is the adapter that the run begins with. transformers' Trainer trains an adapter. After a
kill it resumes from the last whole epoch.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from torch.nn.functional import logsigmoid
from transformers import set_seed

from houston_daemon.training.critic.create_critic_run import CriticResult, CriticRunFolder
from houston_daemon.training.critic.critic_recipe import CriticRecipe, CriticRow
from houston_daemon.training.policies.policy_registration import register_run_policy
from houston_daemon.training.runs.epoch_training import (
    EpochTrainer,
    EpochWatch,
    epoch_arguments,
)
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.run_trackers import RunTrackers
from houston_daemon.training.sft import sft_model, training_run
from houston_daemon.training.sft.sft_recipe import model_recipe

LOSS_ROWS = 8
"""Sequences whose log-probabilities are computed at once without gradients."""


def train_critic(folder: CriticRunFolder, writer: ProgressWriter) -> bool:
    """Train, or go on; whether it finished. False: it was asked to end."""
    recipe = folder.spec.recipe
    writer.set_state("running", "loading the model")
    device = training_run.training_device(recipe.device)
    set_seed(recipe.seed)
    net, bf16, pad = _load(recipe, device)
    rows = folder.read_rows()
    before = reference_logprobs(net, rows, pad)
    watch = EpochWatch(folder, writer, recipe.epochs)
    trackers = RunTrackers(folder, folder.spec, writer)
    trainer = CriticTrainer(
        model=net,
        args=epoch_arguments(
            folder,
            recipe,
            device,
            warmup=0.1,
            max_grad_norm=recipe.max_grad_norm,
            bf16=bf16,
            remove_unused_columns=False,
        ),
        train_dataset=list(range(len(rows))),
        data_collator=lambda items: items,
        callbacks=[watch, trackers],
        keep=recipe.keep_checkpoints,
    )
    trainer.set_rows(rows, before, recipe, pad)
    began = time.monotonic()
    with closing(trackers):
        trainer.train_on()
        if watch.ended:
            return False
        after = reference_logprobs(net, rows, pad)
        preferred = {"before": preferred_share(rows, before), "after": preferred_share(rows, after)}
        trackers.report({f"preferred/{when}": share for when, share in preferred.items()})
    writer.set_state("running", "saving")
    training_run.save_output(trainer, folder, None)
    seconds = time.monotonic() - began
    folder.write_result(_result(rows, trainer, seconds, preferred))
    return True


def _result(
    rows: Sequence[CriticRow],
    trainer: EpochTrainer,
    seconds: float,
    preferred: Mapping[str, float | None],
) -> CriticResult:
    """The figures of a finished run. preferred: shares `before` and `after` (`preferred_share`)."""
    return CriticResult(
        messages=sum(not row.rejected for row in rows),
        pairs=sum(bool(row.rejected) for row in rows),
        steps=trainer.state.global_step,
        seconds=round(seconds, 2),
        loss_first=trainer.losses[0],
        loss_last=trainer.losses[-1],
        preferred_before=preferred["before"],
        preferred_after=preferred["after"],
    )


def _load(recipe: CriticRecipe, device: torch.device) -> tuple[Any, bool, int]:
    """The model with its adapter, whether to multiply in bfloat16, and the id that pads."""
    settings = model_recipe(recipe)
    loaded = sft_model.load_model(settings, device, pads=True)
    net, new = sft_model.add_adapter(loaded.net, settings)
    net = get_peft_model(net, new) if new is not None else net
    assert isinstance(net, PeftModel)
    return net, loaded.bf16, int(loaded.tokenizer.pad_token_id or 0)


Pair = tuple[float, float]
"""Log-probabilities of a row's answer and of what was rejected, sums over their tokens; both are 0
of a message, which is compared with nothing."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def reference_logprobs(net: Any, rows: Sequence[CriticRow], pad: int) -> list[Pair]:
    """Of every row under the model as it is now."""
    training = net.training
    net.eval()
    logprobs: list[Pair] = [(0.0, 0.0)] * len(rows)
    pairs = [place for place, row in enumerate(rows) if row.rejected]
    for start in range(0, len(pairs), LOSS_ROWS):
        part = pairs[start : start + LOSS_ROWS]
        preferred = [(rows[place].prompt, rows[place].answer) for place in part]
        rejected = [(rows[place].prompt, rows[place].rejected) for place in part]
        logprob_columns = (
            answer_logprobs(net, each, pad).tolist() for each in (preferred, rejected)
        )
        part_logprobs = zip(*logprob_columns, strict=True)
        for place, pair in zip(part, part_logprobs, strict=True):
            logprobs[place] = pair
    net.train(training)
    return logprobs


def preferred_share(rows: Sequence[CriticRow], logprobs: Sequence[Pair]) -> float | None:
    """Share of the pairs whose preferred words are the likelier ones, per token; None without."""
    comparisons = [
        preferred / len(row.answer) > rejected / len(row.rejected)
        for row, (preferred, rejected) in zip(rows, logprobs, strict=True)
        if row.rejected
    ]
    return sum(comparisons) / len(comparisons) if comparisons else None


def answer_logprobs(
    net: Any, pairs: Sequence[tuple[list[int], list[int]]], pad: int
) -> torch.Tensor:
    """Log-probability of each answer behind its prompt, the sum over its tokens: (pairs,)."""
    longest = max(len(prompt) + len(answer) for prompt, answer in pairs)
    ids = torch.full((len(pairs), longest), pad)
    mask = torch.zeros(len(pairs), longest)
    counted = torch.zeros(len(pairs), longest)
    for row, (prompt, answer) in enumerate(pairs):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        mask[row, :end] = 1
        counted[row, len(prompt) : end] = 1
    ids, mask, counted = (each.to(net.device) for each in (ids, mask, counted))
    rows, places = counted[:, 1:].nonzero(as_tuple=True)
    # Of a long prompt float32 logits of every token would not fit beside the model.
    logits = net(input_ids=ids, attention_mask=mask.long()).logits[rows, places].float()
    token_logprobs = logits.log_softmax(-1).gather(-1, ids[rows, places + 1, None])[:, 0]
    return torch.zeros(len(pairs), device=token_logprobs.device).index_add(0, rows, token_logprobs)


class CriticTrainer(EpochTrainer):
    """transformers' own loop with the loss of both kinds of rows; items are places of rows."""

    def set_rows(
        self,
        rows: Sequence[CriticRow],
        reference: Sequence[Pair],
        recipe: CriticRecipe,
        pad: int,
    ) -> None:
        """reference: log-probabilities under the model that the run began with."""
        self._rows = rows
        self._reference = reference
        self._recipe = recipe
        self._pad = pad

    def compute_loss(
        self, model: Any, inputs: list[int], return_outputs: bool = False, **more: Any
    ) -> torch.Tensor:
        """Mean over messages, and over pairs with their weight."""
        recipe = self._recipe
        messages = [place for place in inputs if not self._rows[place].rejected]
        pairs = [place for place in inputs if self._rows[place].rejected]
        loss = torch.zeros((), device=model.device)
        if messages:
            loss = loss + self._message_loss(model, messages) * len(messages)
        if pairs:
            loss = loss + recipe.preference_weight * self._pair_loss(model, pairs) * len(pairs)
        return loss / len(inputs)

    def _message_loss(self, model: Any, places: Sequence[int]) -> torch.Tensor:
        rows = [self._rows[place] for place in places]
        logprobs = answer_logprobs(model, [(row.prompt, row.answer) for row in rows], self._pad)
        lengths = torch.tensor([len(row.answer) for row in rows], device=logprobs.device)
        weights = torch.tensor([row.weight for row in rows], device=logprobs.device)
        return -(weights * logprobs / lengths).mean()

    def _pair_loss(self, model: Any, places: Sequence[int]) -> torch.Tensor:
        rows = [self._rows[place] for place in places]
        preferred = answer_logprobs(model, [(row.prompt, row.answer) for row in rows], self._pad)
        rejected = answer_logprobs(model, [(row.prompt, row.rejected) for row in rows], self._pad)
        margins = [self._reference[place][0] - self._reference[place][1] for place in places]
        begun = torch.tensor(margins, device=preferred.device)
        return -logsigmoid(self._recipe.preference_beta * (preferred - rejected - begun)).mean()

    def _prepare_inputs(self, inputs: list[int]) -> list[int]:
        """Places of rows stay on the processor."""
        return inputs


def register_critic(folder: CriticRunFolder) -> str:
    """The policy that a finished run became; asked again, the same one. Raises HoustonError."""
    spec = folder.spec
    return register_run_policy(
        spec, folder.output, folder.result, parent=spec.parent, manifest=spec.rows_hash
    )
