"""One run of TRL's GRPOTrainer with `environment_factory`, timed by stage, in this process.

Nothing of TRL is replaced: two of its methods are timed. It generates with transformers in the same
process, since there is no vLLM here, so that no weights have to be given to an engine.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from bench.against_trl.words_for_trl import (
    STEPS,
    WordsTokenizer,
    WordWorldTools,
    replayed,
    rows_of_worlds,
)
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, PrinterCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from houston_daemon.suites.word_episodes import WordSpeaker
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.sft import sft_model, training_run

ANSWER_TOKENS = 48
"""Most tokens of an answer, as in the suite's tasks."""
COMPLETION_TOKENS = 460
"""Most tokens behind a prompt, within the model's 512 positions."""
_Given = TypeVar("_Given")


class StageClock:
    """Seconds of each stage, and what was sampled."""

    def __init__(self) -> None:
        self.seconds = {"generating": 0.0, "preparing": 0.0}
        self.began = 0.0
        """When the first episode began."""
        self.made: dict[str, list[Any]] = {"generating": [], "preparing": []}
        """What each call gave."""

    def timed(self, stage: str, do: Callable[..., _Given]) -> Callable[..., _Given]:
        """`do`, with its time noted."""

        def run(*given: Any) -> _Given:
            begun = time.monotonic()
            self.began = self.began or begun
            made = do(*given)
            self.seconds[stage] += time.monotonic() - begun
            self.made[stage].append(made)
            return made

        return run


def train(model: Path, recipe: RlRecipe, folder: Path) -> dict[str, Any]:
    """Train as the recipe says; figures."""
    set_seed(recipe.seed)
    device = training_run.training_device(recipe.device)
    auto = recipe.precision == "auto"
    bf16 = sft_model.has_fast_bf16(model, device) if auto else recipe.precision == "bf16"
    indices = task_indices(recipe)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.bfloat16 if bf16 else torch.float32
        ),
        args=_arguments(recipe, folder, bf16, device),
        train_dataset=Dataset.from_list(rows_of_worlds(indices)),
        processing_class=WordsTokenizer.of_model(model),
        peft_config=LoraConfig(
            r=recipe.lora_rank,
            lora_alpha=recipe.lora_alpha,
            target_modules=recipe.lora_targets,
            task_type="CAUSAL_LM",
        ),
        environment_factory=WordWorldTools,
    )
    trainer.remove_callback(PrinterCallback)
    clock = StageClock()
    trainer._generate = clock.timed("generating", trainer._generate)
    trainer._generate_and_score_completions = clock.timed(
        "preparing", trainer._generate_and_score_completions
    )
    trainer.train()
    loop = time.monotonic() - clock.began
    counting = time.monotonic()
    counts = _counted(trainer, clock, recipe, indices, WordSpeaker(model / "tokenizer.json"))
    sampling, prepared = clock.seconds["generating"], clock.seconds["preparing"]
    return {
        "loop_seconds": round(loop, 2),
        "seconds": {
            "sampling": round(sampling, 2),
            "scoring": round(prepared - sampling, 2),
            "training": round(loop - prepared, 2),
            "syncing": 0.0,
        },
        **counts,
        "counting_seconds": time.monotonic() - counting,
    }


def task_indices(recipe: RlRecipe) -> list[int]:
    """The worlds of all updates: those that `GroupCoordinator.task_order` begins them with."""
    count = min(recipe.groups * (recipe.refill + 1), recipe.tasks)
    return [
        index
        for update in range(recipe.updates)
        for index in random.Random(f"{recipe.seed} {update}").sample(range(recipe.tasks), count)[
            : recipe.groups
        ]
    ]


def _arguments(recipe: RlRecipe, folder: Path, bf16: bool, device: torch.device) -> GRPOConfig:
    more = {"use_cpu": True} if device.type == "cpu" else {}
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=recipe.updates * recipe.minibatches,
        per_device_train_batch_size=recipe.groups * recipe.group_size // recipe.minibatches,
        steps_per_generation=recipe.minibatches,
        gradient_accumulation_steps=1,
        num_generations=recipe.group_size,
        max_completion_length=COMPLETION_TOKENS,
        generation_kwargs={"max_new_tokens": ANSWER_TOKENS},
        max_tool_calling_iterations=STEPS,
        temperature=1.0,
        top_p=1.0,
        loss_type="dapo",
        epsilon=recipe.clip_low,
        epsilon_high=recipe.clip_high,
        beta=recipe.kl,
        scale_rewards="group",
        mask_truncated_completions="answer" in recipe.overlong_filter,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        seed=recipe.seed,
        bf16=bf16,
        gradient_checkpointing=recipe.gradient_checkpointing,
        shuffle_dataset=False,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        remove_unused_columns=False,
        dataloader_pin_memory=device.type == "cuda",
        **more,
    )


def _counted(
    trainer: Any,
    clock: StageClock,
    recipe: RlRecipe,
    indices: Sequence[int],
    speaker: WordSpeaker,
) -> dict[str, Any]:
    """Episodes and tokens, and whether contexts and masks are Houston's."""
    episodes = sampled = same = answers = 0
    for prompts, completions, masks, *_ in clock.made["generating"]:
        for prompt, completion, mask in zip(prompts, completions, masks, strict=True):
            index = indices[episodes // recipe.group_size]
            episodes += 1
            sampled += sum(mask)
            ids, whole = [*prompt, *completion], [0] * len(prompt) + list(mask)
            own_ids, own_mask = replayed(speaker, index, ids, whole)
            same += ids[: len(own_ids)] == own_ids and _spans(whole[: len(own_ids)]) == _spans(
                own_mask
            )
            answers += sum(own_mask)
    trained = taught = 0
    for batch in clock.made["preparing"]:
        tokens = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
        trained += int(tokens.sum())
        taught += int(tokens[batch["advantages"].abs() > 0].sum())
    logs = [line for line in trainer.state.log_history if "reward" in line]
    return {
        "episodes": episodes,
        "tokens_sampled": sampled,
        "of_them_in_closing_answers": sampled - answers,
        "tokens_trained": trained,
        "of_them_with_an_advantage": taught,
        "same_ids_and_mask_as_houston": same,
        "solved": [round((line["reward"] + 1) / 2, 4) for line in logs],
        "zero_variance": [line["frac_reward_zero_std"] for line in logs],
    }


def _spans(mask: Sequence[int]) -> list[int]:
    return [at for at, value in enumerate(mask) if value]
