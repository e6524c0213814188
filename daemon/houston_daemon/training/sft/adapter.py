"""The LoRA adapter of a run: a new one, or one that goes on; or added to weights that all train.

Imports torch's world; which adapter it is was decided before (`beginning`).
"""

from typing import Any

from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer, check_target_module_exists
from transformers.integrations import is_deepspeed_zero3_enabled

from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_shared.errors import HoustonError


def put_on(net: Any, recipe: Recipe) -> tuple[Any, LoraConfig | None]:
    """The model to train, and the adapter that TRL is to make for it; None where there is nothing
    to make. Raises HoustonError for an adapter that does not fit."""
    if not recipe.adapter:
        return net, None if recipe.full else _new(net, recipe)
    zero3 = is_deepspeed_zero3_enabled()
    if recipe.full and zero3:
        raise HoustonError(
            "Under ZeRO-3 no process has the weights that the adapter would be added to.",
            NOT_TRAINED,
            "houston policy merge POLICY --out DIR, and train with --base DIR",
        )
    try:
        found = LoraConfig.from_pretrained(recipe.adapter)
        found.lora_dropout = recipe.lora_dropout
        begun = PeftModel.from_pretrained(
            net,
            recipe.adapter,
            is_trainable=True,
            config=found,
            autocast_adapter_dtype=not zero3,  # as in TRL: ZeRO-3 gathers one kind only
        )
    except (OSError, ValueError, RuntimeError, KeyError) as problem:
        said = str(problem).strip().partition("\n")[0]
        raise HoustonError(
            f"The adapter in {recipe.adapter} cannot go on with {recipe.base}: {said}.",
            NOT_TRAINED,
        ) from problem
    if not recipe.full:
        if isinstance(begun.get_output_embeddings(), BaseTunerLayer):
            raise _on_head(f"The adapter in {recipe.adapter}")
        return begun, None
    return begun.merge_and_unload().requires_grad_(True), None  # PEFT has frozen the model's own


def _new(net: Any, recipe: Recipe) -> LoraConfig:
    targets = recipe.lora_targets
    made = LoraConfig(
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    head = next(name for name, one in net.named_modules() if one is net.get_output_embeddings())
    if targets != "all-linear" and check_target_module_exists(made, head):
        raise _on_head("`lora_targets`")
    return made


def _on_head(what: str) -> HoustonError:
    """The head computes the loss from its own weights: an adapter on it would not be trained."""
    return HoustonError(
        f"{what} names the model's head, and an adapter there is not trained.",
        NOT_TRAINED,
        'Leave the head out ("all-linear" does), or train all weights: --full',
    )
