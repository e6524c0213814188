"""One run of training from its folder to what comes out: read, plan, train, save.

It is called in every process of the run. How processes are started is `__main__`'s.
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from transformers import AutoConfig, set_seed
from trl import SFTConfig

from houston_daemon.training.sft import (
    adapter,
    checkpoints,
    dataset,
    memory,
    model,
    output,
    peak,
    plan,
    sharding,
)
from houston_daemon.training.sft.held_out import HeldOut
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_daemon.training.sft.run_folder import Result, RunFolder
from houston_daemon.training.sft.trainer import WeighedTrainer
from houston_daemon.training.sft.watching import Watch
from houston_shared.errors import HoustonError

_SCHEDULES = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant"}
_LAST = 10
"""Steps whose mean is the loss at the end."""


def train(folder: RunFolder, writer: Writer) -> bool:
    """Train, or go on with training. Returns whether it finished; False: it was asked to end."""
    recipe = folder.asked.recipe
    device = _device(recipe)
    state = PartialState(cpu=device.type == "cpu")
    processes = state.num_processes
    if state.is_main_process:
        checkpoints.clear(folder.checkpoints)
        writer.set("running", "reading the data")
        _prepare(folder, recipe, writer.say)
    state.wait_for_everyone()
    rows = dataset.load(folder.rows)
    writer.say(_said(rows))
    writer.set("running", "loading the model")
    if recipe.gradient_checkpointing and device.type == "cpu":
        memory.give_back()
    set_seed(recipe.seed)
    loaded = model.load(recipe, device)
    writer.say(_found(loaded, device, processes))
    steps = _steps(rows, recipe, loaded, processes)
    net, new = adapter.put_on(loaded.net, recipe)
    watch = Watch(folder, steps, writer, recipe.save_minutes)
    trainer = WeighedTrainer(
        model=net,
        args=_arguments(folder, recipe, loaded, len(steps), device),
        passes=dataset.Passes(rows, steps, loaded.packing),
        processing_class=loaded.tokenizer,
        peft_config=new,
        callbacks=[watch],
        fused=loaded.fused,
        keep=recipe.keep_checkpoints,
    )
    _check_sharding(trainer)
    sharding.check(folder, trainer.kind)
    if trainer.kind == sharding.PLAIN:  # in shards no process has what a pass would show
        share = rows.prepared.trained / rows.prepared.tokens
        there = memory.free(device) // (1 if device.type == "cuda" else processes)
        reckoned = peak.measured(trainer, share, loaded.bf16)
        memory.check(reckoned, folder, rows.lengths, steps, there, writer.say)
    held = HeldOut(folder, recipe, trainer, loaded.packing)
    before = held.before(watch, writer)
    if watch.ended:
        return False
    began = time.monotonic()
    resumed = checkpoints.newest(folder.checkpoints)
    if resumed:
        writer.say(f"going on from {resumed.name}")
    with memory.told(folder, rows.lengths, steps, training=True):
        trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    seconds = time.monotonic() - began
    if watch.ended:
        return False
    after = held.after(watch, writer)
    if watch.ended:
        return False
    writer.set("running", "saving")
    output.save(trainer, folder, full=recipe.full)
    if state.is_main_process:
        history = [one["loss"] for one in trainer.state.log_history if "loss" in one]
        folder.write_result(
            Result(
                steps=len(steps),
                rows=rows.prepared.rows,
                tokens=sum(step.tokens for step in steps),
                trained=rows.prepared.trained,
                cut=rows.prepared.cut,
                dropped=len(rows.prepared.dropped),
                loss_first=history[0],
                loss_mean_last_10=sum(history[-_LAST:]) / len(history[-_LAST:]),
                held_out_before=before,
                held_out_after=after,
                held_out_rows=held.rows,
                seconds=round(seconds, 2),
                tokens_per_second=writer.now.tokens_per_second or 0.0,
                memory_bytes=memory.most(),
                processes=processes,
                device=str(device),
                versions={name: version(name) for name in ("torch", "transformers", "trl", "peft")},
            )
        )
    state.wait_for_everyone()
    return True


def _device(recipe: Recipe) -> torch.device:
    there = torch.cuda.is_available()
    if recipe.device == "cuda" and not there:
        raise HoustonError("No GPU can be seen.", NOT_TRAINED, "--set device=cpu")
    return torch.device("cuda" if there and recipe.device != "cpu" else "cpu")


def _prepare(folder: RunFolder, recipe: Recipe, say: Callable[[str], None]) -> None:
    """Cut the rows to what recipe and model take, once. say: into the log."""
    config = AutoConfig.from_pretrained(recipe.base).get_text_config()
    longest = min(recipe.max_length, getattr(config, "max_position_embeddings", 1 << 30))
    source = dataset.data_file(folder.data)
    if source is None and not folder.rows.is_file():
        raise HoustonError(
            f"There are no rows in {folder.data}.",
            NOT_TRAINED,
            "houston export R… --format trl --out DIR",
        )
    known, words = folder.hashes, int(config.vocab_size)
    if source is not None:
        dataset.prepare(source, folder.rows, longest, known.get(source.name, ""), words)
    if held := dataset.data_file(folder.data, "held_out"):
        try:
            dataset.prepare(held, folder.held_out, longest, known.get(held.name, ""), words)
        except dataset.NothingToTrain as problem:  # what is trained is none the worse for it
            say(f"no loss on what is held out: {problem.cause}")
    folder.keep_manifest()


def _steps(
    rows: dataset.Rows, recipe: Recipe, loaded: model.Loaded, processes: int
) -> list[plan.Step]:
    often = {"react": recipe.upsample.react, "summary": recipe.upsample.summary}
    return plan.steps(
        rows.lengths,
        [often.get(kind, 1) for kind in rows.kinds],
        epochs=recipe.epochs,
        batch=recipe.batch,
        budget=recipe.pack_tokens if loaded.packing else 0,
        seed=recipe.seed,
        processes=processes,
        limit=recipe.steps,
    )


def _arguments(
    folder: RunFolder, recipe: Recipe, loaded: model.Loaded, steps: int, device: torch.device
) -> SFTConfig:
    more: dict[str, Any] = {}
    if recipe.schedule == "cosine":
        more["lr_scheduler_kwargs"] = {"min_lr": recipe.final_learning_rate}
    if device.type == "cpu":
        more["use_cpu"] = True
    return SFTConfig(
        output_dir=str(folder.checkpoints),
        max_steps=steps,
        per_device_train_batch_size=1,  # an item is all of a step
        gradient_accumulation_steps=1,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=_SCHEDULES[recipe.schedule],
        warmup_steps=round(recipe.warmup * steps),
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        seed=recipe.seed,
        bf16=loaded.bf16,
        gradient_checkpointing=recipe.gradient_checkpointing,
        save_steps=recipe.save_steps,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        remove_unused_columns=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=device.type == "cuda",
        **more,
    )


def _check_sharding(trainer: WeighedTrainer) -> None:
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


def _said(rows: dataset.Rows) -> str:
    one = rows.prepared
    text = f"{one.rows} rows, {one.tokens} tokens, {one.trained} of them trained"
    if one.cut:
        text += f"; {one.cut} rows cut to {one.max_length} tokens"
    if one.dropped:
        text += f"; left out, nothing to train within it: {', '.join(one.dropped)}"
    return text


def _found(loaded: model.Loaded, device: torch.device, processes: int) -> str:
    parts = [str(device), "bfloat16" if loaded.bf16 else "float32", f"{processes} processes"]
    parts.append("several rows in one pass" if loaded.packing else "each row in a pass of its own")
    if not loaded.fused:
        parts.append("loss from logits: this model changes them after its head")
    return ", ".join(parts)
