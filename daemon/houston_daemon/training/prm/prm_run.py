"""Trains one process reward model, from its labels to a registered policy.

transformers' Trainer trains a regression head on a causal model with a squared error
(AgentFlow-Pro). After a kill it resumes from the checkpoint of the last whole epoch. The registered
files are then measured on held-out tasks.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    set_seed,
)

from houston_daemon.training.policies.policy_registration import register_run_policy
from houston_daemon.training.prm.calibration_picture import draw_calibration
from houston_daemon.training.prm.decision_labels import (
    DecisionLabel,
    LabelSplit,
    read_labels,
    split_labels,
)
from houston_daemon.training.prm.prm_figures import AgreementFigures, agreement
from houston_daemon.training.prm.prm_recipe import PrmRecipe
from houston_daemon.training.prm.prm_run_folder import PrmResult, PrmRunFolder
from houston_daemon.training.prm.prm_scorer import (
    TRAINED_LENGTH,
    ProcessRewardScorer,
    encode_text,
    load_scorer,
    load_tokenizer,
    longest_text,
)
from houston_daemon.training.runs.epoch_training import (
    EpochTrainer,
    EpochWatch,
    epoch_arguments,
)
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.run_trackers import RunTrackers
from houston_daemon.training.sft import training_run


def train_prm(folder: PrmRunFolder, writer: ProgressWriter) -> bool:
    """Train, or go on; whether it finished. False: it was asked to end."""
    recipe = folder.spec.recipe
    split = split_labels(read_labels(folder.labels), recipe.held_out, recipe.seed)
    writer.set_state("running", "loading the model")
    device = training_run.training_device(recipe.device)
    set_seed(recipe.seed)
    net = _load_model(recipe)
    tokenizer = load_tokenizer(Path(recipe.base))
    net.config.pad_token_id = tokenizer.pad_token_id
    limit = longest_text(net.config, recipe.max_tokens)
    setattr(net.config, TRAINED_LENGTH, limit)
    watch = EpochWatch(folder, writer, recipe.epochs)
    trackers = RunTrackers(folder, folder.spec, writer)
    trainer = EpochTrainer(
        model=net,
        args=epoch_arguments(
            folder,
            recipe,
            device,
            warmup=recipe.warmup,
            weight_decay=recipe.weight_decay,
            bf16=device.type == "cuda",
        ),
        train_dataset=training_set(split.train, tokenizer, limit),
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[watch, trackers],
        keep=recipe.keep_checkpoints,
    )
    began = time.monotonic()
    with closing(trackers):
        trainer.train_on()
        if watch.ended:
            return False
        writer.set_state("running", "measuring on held-out tasks")
        seconds = time.monotonic() - began
        training_run.save_output(trainer, folder, Path(recipe.base))
        scorer = load_scorer(folder.output, str(device))  # what is registered: it has lost digits
        result = _result(folder, split, scorer, trainer, seconds)
        trackers.report(_tracked_agreement(result))
    folder.write_result(result)
    _draw(folder, result, writer)
    return True


def _draw(folder: PrmRunFolder, result: PrmResult, writer: ProgressWriter) -> None:
    """The calibration as a picture; without matplotlib the log says why there is none."""
    where = "held-out" if result.held_out else "trained"
    try:
        draw_calibration(
            result.held_out or result.train,
            f"{folder.spec.name}, {where} tasks",
            folder.calibration_picture,
        )
    except ImportError:
        writer.log("no picture of the calibration: matplotlib is not installed")


def _load_model(recipe: PrmRecipe) -> Any:
    """The base with a new head of one number, in float32: small models lose too much otherwise."""
    return AutoModelForSequenceClassification.from_pretrained(
        recipe.base, num_labels=1, problem_type="regression", dtype=torch.float32
    )


def training_set(labels: Sequence[DecisionLabel], tokenizer: Any, limit: int) -> Dataset:
    """What the model is trained on: a row of ids and the score for each label. limit: tokens."""
    return Dataset.from_dict(
        {
            "input_ids": [encode_text(tokenizer, label.text, limit) for label in labels],
            "labels": [label.score for label in labels],
        }
    )


def _result(
    folder: PrmRunFolder,
    split: LabelSplit,
    scorer: ProcessRewardScorer,
    trainer: EpochTrainer,
    seconds: float,
) -> PrmResult:
    """The figures of a finished run."""
    by_source: dict[str, int] = {}
    labels = read_labels(folder.labels)
    for label in labels:
        by_source[label.source] = by_source.get(label.source, 0) + 1
    mean = sum(label.score for label in split.train) / len(split.train)
    return PrmResult(
        trained_labels=len(split.train),
        by_source=by_source,
        rubrics=sorted({label.rubric for label in labels if label.rubric}),
        steps=trainer.state.global_step,
        seconds=round(seconds, 2),
        loss_first=trainer.losses[0],
        loss_last=trainer.losses[-1],
        train=_measure_agreement(scorer, split.train, mean),
        held_out=_measure_agreement(scorer, split.held_out, mean) if split.held_out else None,
    )


def _tracked_agreement(result: PrmResult) -> dict[str, float | None]:
    """What a tracker is told at the end."""
    measured = {"trained": result.train} | (
        {"held_out": result.held_out} if result.held_out else {}
    )
    return {
        f"{where}/{name}": getattr(figures, name)
        for where, figures in measured.items()
        for name in ("mae", "mean_predictor_mae", "rank_correlation")
    }


def _measure_agreement(
    scorer: ProcessRewardScorer, labels: Sequence[DecisionLabel], mean: float
) -> AgreementFigures:
    scores = scorer.score([label.text for label in labels])
    return agreement(scores, [label.score for label in labels], mean)


def register_prm(folder: PrmRunFolder) -> str:
    """The policy that a finished run became; asked again, the same one. Raises HoustonError."""
    spec = folder.spec
    return register_run_policy(spec, folder.output, folder.result, manifest=spec.labels_hash)
