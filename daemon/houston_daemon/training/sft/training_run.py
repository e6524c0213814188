"""One run of training from its folder to what comes out: read rows, plan steps, train, save.

Called in every process of the run; how processes are started is `__main__`'s. What comes out is
an adapter, or a whole model in the kind that its base has, put in its place whole by renaming. It
registers nothing.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, set_seed
from trl import SFTConfig

from houston_daemon.training.policies.policy_files import tokenizer_files
from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.run_trackers import OWN_REPORTS, RunTrackers
from houston_daemon.training.sft import (
    batch_plan,
    sft_dataset,
    sft_model,
    sft_run_folder,
    training_memory,
)
from houston_daemon.training.sft.sft_callbacks import HeldOutLoss, TrainingWatch
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunResult
from houston_daemon.training.sft.sft_trainer import WeightedTrainer
from houston_shared.errors import HoustonError


def save_output(trainer: Any, folder: TrainingRunFolder, base: Path | None) -> None:
    """Write `output/`; called in every process. base: of full weights; None for an adapter."""
    staging = folder.path / "output.unfinished"
    if trainer.is_world_process_zero():
        shutil.rmtree(staging, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(staging))
    trainer.accelerator.wait_for_everyone()
    if not trainer.is_world_process_zero():
        return
    (staging / "training_args.bin").unlink(missing_ok=True)  # a pickle, for nobody
    if base is not None:
        cast_to_base(staging, base)
    if folder.output.exists():
        shutil.rmtree(folder.output)
    staging.replace(folder.output)


def cast_to_base(output: Path, base: Path) -> None:
    """Cast the weights, trained in float32, to the base's type, which engines want.

    The tokenizer files are copied from the base byte by byte: rewritten files may have another
    form, and ids are told apart by their tokenizer's hash.
    """
    for file in tokenizer_files(base):
        shutil.copyfile(file, output / file.name)
    config = msgspec.json.decode((base / "config.json").read_bytes())
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    kind = getattr(torch, name)
    for file in output.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            cast = {key: weights.get_tensor(key).to(kind) for key in list(weights.keys())}
        new_file = file.with_suffix(".new")
        save_file(cast, new_file, metadata={"format": "pt"})
        new_file.replace(file)
    config_file = output / "config.json"
    described = msgspec.json.decode(config_file.read_bytes())
    described["dtype"] = name
    config_file.write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


_SCHEDULES = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant"}
_LAST_STEPS = 10
"""Steps whose mean is the loss at the end."""


@dataclass(frozen=True, slots=True)
class _PlannedRun:
    """A run whose model is loaded, before it has a trainer."""

    folder: RunFolder
    recipe: SftRecipe
    writer: ProgressWriter
    device: torch.device
    rows: sft_dataset.MappedRows
    loaded: sft_model.LoadedModel
    steps: Sequence[batch_plan.OptimizerStep]


def train_run(folder: RunFolder, writer: ProgressWriter) -> bool:
    """Train, or go on with training. Returns whether it finished; False: it was asked to end."""
    recipe = folder.spec.recipe
    device = training_device(recipe.device)
    state = PartialState(cpu=device.type == "cpu")
    processes = state.num_processes
    if state.is_main_process:
        run_checkpoints.clear_unfinished(folder.checkpoints)
        writer.set_state("running", "reading the data")
        _cut_rows(folder, recipe, writer.log)
    state.wait_for_everyone()
    rows = sft_dataset.load_rows(folder.rows)
    writer.log(_rows_sentence(rows))
    writer.set_state("running", "loading the model")
    if recipe.gradient_checkpointing and device.type == "cpu":
        training_memory.return_freed_memory()
    set_seed(recipe.seed)
    loaded = sft_model.load_model(recipe, device)
    writer.log(_model_sentence(loaded, device, processes))
    steps = _planned_steps(rows, recipe, loaded, processes)
    run = _PlannedRun(folder, recipe, writer, device, rows, loaded, steps)
    trackers = RunTrackers(folder, folder.spec, writer)
    trainer, watch = _make_trainer(run, trackers)
    if trainer.kind == sft_run_folder.PLAIN_KIND:  # in shards no process has what a pass would show
        share = rows.prepared.trained / rows.prepared.tokens
        free = training_memory.free_bytes(device) // (1 if device.type == "cuda" else processes)
        peak = training_memory.measure_peak(trainer, share, loaded.bf16)
        training_memory.refuse_too_large(peak, folder, rows.lengths, steps, free, writer.log)
    with closing(trackers):
        figures = _train_and_measure(run, trainer, watch)
        trackers.report(_tracked_held_out(figures or {}))
    if figures is None:
        return False
    writer.set_state("running", "saving")
    save_output(trainer, folder, Path(recipe.base) if recipe.full else None)
    if state.is_main_process:
        folder.write_result(_run_result(run, trainer, figures))
    state.wait_for_everyone()
    return True


def _make_trainer(run: _PlannedRun, trackers: RunTrackers) -> tuple[WeightedTrainer, TrainingWatch]:
    """The trainer, watched. Raises HoustonError where it could not read the newest checkpoint."""
    net, new_adapter = sft_model.add_adapter(run.loaded.net, run.recipe)
    watch = TrainingWatch(run.folder, run.steps, run.writer, run.recipe.save_minutes)
    trainer = WeightedTrainer(
        model=net,
        args=_trainer_arguments(run),
        passes=sft_dataset.PassDataset(run.rows, run.steps, run.loaded.packing),
        processing_class=run.loaded.tokenizer,
        peft_config=new_adapter,
        callbacks=[watch, trackers],
        fused=run.loaded.fused,
        keep=run.recipe.keep_checkpoints,
    )
    _check_sharding(trainer)
    sft_run_folder.check_checkpoint_kind(run.folder, trainer.kind)
    return trainer, watch


def _train_and_measure(
    run: _PlannedRun, trainer: WeightedTrainer, watch: TrainingWatch
) -> dict[str, Any] | None:
    """Train all steps. Returns its seconds and the held-out loss before and after, as fields of
    `RunResult`; None where it was asked to end."""
    held_out = HeldOutLoss(trainer, watch, run.loaded.packing)
    before = held_out.before()
    if watch.ended:
        return None
    began = time.monotonic()
    resumed = run_checkpoints.newest_checkpoint(run.folder.checkpoints)
    if resumed:
        run.writer.log(f"going on from {resumed.name}")
    with training_memory.explain_out_of_memory(
        run.folder, run.rows.lengths, run.steps, training=True
    ):
        trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    seconds = time.monotonic() - began
    if watch.ended:
        return None
    after = held_out.after()
    if watch.ended:
        return None
    return {
        "seconds": round(seconds, 2),
        "held_out_before": before,
        "held_out_after": after,
        "held_out_rows": held_out.rows,
    }


def _tracked_held_out(figures: dict[str, Any]) -> dict[str, Any]:
    """What a tracker is told at the end. figures: of `_train_and_measure`."""
    return {f"held_out/{when}": figures.get(f"held_out_{when}") for when in ("before", "after")}


def _run_result(run: _PlannedRun, trainer: WeightedTrainer, figures: dict[str, Any]) -> RunResult:
    """The figures of a finished run. figures: of `_train_and_measure`."""
    prepared = run.rows.prepared
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    last = losses[-_LAST_STEPS:]
    return RunResult(
        steps=len(run.steps),
        rows=prepared.rows,
        tokens=sum(step.tokens for step in run.steps),
        trained=prepared.trained,
        cut=prepared.cut,
        dropped=len(prepared.dropped),
        loss_first=losses[0],
        loss_mean_last_10=sum(last) / len(last),
        tokens_per_second=run.writer.now.tokens_per_second or 0.0,
        memory_bytes=training_memory.peak_bytes(),
        processes=trainer.accelerator.num_processes,
        device=str(run.device),
        versions={name: version(name) for name in ("torch", "transformers", "trl", "peft")},
        **figures,
    )


def training_device(name: str) -> torch.device:
    """The device of a recipe: `cuda`, `cpu` or `auto`. Raises HoustonError without a GPU."""
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise HoustonError("No GPU is visible.", NOTHING_TRAINED_MESSAGE, "--set device=cpu")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def _cut_rows(folder: RunFolder, recipe: SftRecipe, say: Callable[[str], None]) -> None:
    """Cut the rows to what recipe and model take, once. say: into the log."""
    config = AutoConfig.from_pretrained(recipe.base).get_text_config()
    longest = min(recipe.max_length, getattr(config, "max_position_embeddings", 1 << 30))
    source = sft_dataset.exported_data_file(folder.data)
    if source is None and not folder.rows.is_file():
        raise HoustonError(
            f"There are no rows in {folder.data}.",
            NOTHING_TRAINED_MESSAGE,
            "houston export R… --format trl --out DIR",
        )
    hashes, words = folder.hashes, int(config.vocab_size)
    if source is not None:
        sft_dataset.prepare_rows(source, folder.rows, longest, hashes.get(source.name, ""), words)
    if held_out := sft_dataset.exported_data_file(folder.data, "held_out"):
        try:
            sft_dataset.prepare_rows(
                held_out, folder.held_out, longest, hashes.get(held_out.name, ""), words
            )
        except sft_dataset.NothingToTrain as problem:  # what is trained is none the worse for it
            say(f"no loss on the held-out rows: {problem.cause}")
    folder.keep_manifest()


def _planned_steps(
    rows: sft_dataset.MappedRows, recipe: SftRecipe, loaded: sft_model.LoadedModel, processes: int
) -> list[batch_plan.OptimizerStep]:
    often = {"react": recipe.upsample.react, "summary": recipe.upsample.summary}
    return batch_plan.plan_steps(
        rows.lengths,
        [often.get(kind, 1) for kind in rows.kinds],
        epochs=recipe.epochs,
        batch=recipe.batch,
        budget=recipe.pack_tokens if loaded.packing else 0,
        seed=recipe.seed,
        processes=processes,
        limit=recipe.steps,
    )


def _trainer_arguments(run: _PlannedRun) -> SFTConfig:
    recipe = run.recipe
    cosine = {"lr_scheduler_kwargs": {"min_lr": recipe.final_learning_rate}}
    more: dict[str, Any] = cosine if recipe.schedule == "cosine" else {}
    return SFTConfig(
        output_dir=str(run.folder.checkpoints),
        max_steps=len(run.steps),
        per_device_train_batch_size=1,  # an item is all of a step
        gradient_accumulation_steps=1,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=_SCHEDULES[recipe.schedule],
        warmup_steps=round(recipe.warmup * len(run.steps)),
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        seed=recipe.seed,
        bf16=run.loaded.bf16,
        gradient_checkpointing=recipe.gradient_checkpointing,
        save_steps=recipe.save_steps,
        **OWN_REPORTS,
        remove_unused_columns=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        ddp_find_unused_parameters=False,
        use_cpu=run.device.type == "cpu",
        dataloader_pin_memory=run.device.type == "cuda",
        **more,
    )


def _check_sharding(trainer: WeightedTrainer) -> None:
    """Sharded weights that nobody puts together could be given to no engine."""
    accelerator = trainer.accelerator
    if accelerator.distributed_type != DistributedType.FSDP:
        return
    if "FULL_STATE_DICT" not in str(accelerator.state.fsdp_plugin.state_dict_type):
        raise HoustonError(
            "The configuration of accelerate saves FSDP's weights in shards.",
            "Nothing was trained: no engine reads them.",
            "Set fsdp_state_dict_type: FULL_STATE_DICT in it",
        )


def _rows_sentence(rows: sft_dataset.MappedRows) -> str:
    prepared = rows.prepared
    text = f"{prepared.rows} rows, {prepared.tokens} tokens, {prepared.trained} of them trained"
    if prepared.cut:
        text += f"; {prepared.cut} rows cut to {prepared.max_length} tokens"
    if prepared.dropped:
        text += f"; left out, nothing to train within it: {', '.join(prepared.dropped)}"
    return text


def _model_sentence(loaded: sft_model.LoadedModel, device: torch.device, processes: int) -> str:
    parts = [str(device), "bfloat16" if loaded.bf16 else "float32", f"{processes} processes"]
    parts.append("several rows in one pass" if loaded.packing else "each row in a separate pass")
    if not loaded.fused:
        parts.append("loss from logits: this model changes them after its head")
    return ", ".join(parts)
