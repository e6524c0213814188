"""The model that is trained: loaded for the device, its LoRA adapter, and attention over several
packed rows.

The name of an architecture guarantees nothing, so two things are tried on random rows before
training: that each row gives the same in a shared pass as alone (`packing`), and that the loss
computed by the head equals the loss of the logits (`fused`). Where one fails, rows are computed one
by one, or from logits. It trains nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer, check_target_module_exists
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from houston_daemon.engines.local_machine import is_faster_in_bfloat16
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_daemon.training.sft.weighted_loss import WeightedLossHead, loss_from_logits
from houston_shared.errors import HoustonError

ROWS_ATTENTION = "rows"


def rows_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    row_lengths: Sequence[int] | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Shapes (1, heads, tokens, width) to (1, tokens, heads, width); lengths sum to tokens."""
    lengths = list(row_lengths or [query.shape[2]])
    rest.pop("is_causal", None)
    parts = []
    split = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    for q, k, v in zip(*split, strict=True):
        mask = _sliding_mask(q, sliding_window)
        out, _ = sdpa_attention_forward(module, q, k, v, mask, is_causal=mask is None, **rest)
        parts.append(out)
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), None


def _sliding_mask(query: torch.Tensor, width: int | None) -> torch.Tensor | None:
    """The mask of a sliding window, for rows longer than it."""
    length = query.shape[2]
    if not width or length <= width:
        return None
    back = torch.arange(length, device=query.device)
    back = back[:, None] - back[None, :]
    return ((back >= 0) & (back < width))[None, None]


def register_rows_attention() -> None:
    """Make it known to transformers as `ROWS_ATTENTION`. No mask is made for it."""
    AttentionInterface.register(ROWS_ATTENTION, rows_attention)


def add_adapter(net: Any, recipe: SftRecipe) -> tuple[Any, LoraConfig | None]:
    """The model to train, and the adapter that TRL is to make for it; None where there is nothing
    to make. Raises HoustonError for an adapter that does not fit."""
    if not recipe.adapter:
        return net, None if recipe.full else _new_adapter(net, recipe)
    zero3 = is_deepspeed_zero3_enabled()
    if recipe.full and zero3:
        raise HoustonError(
            "Under ZeRO-3 no process has the weights that the adapter would be added to.",
            NOTHING_TRAINED_MESSAGE,
            "houston policy merge POLICY --out DIR, and train with --base DIR",
        )
    try:
        config = LoraConfig.from_pretrained(recipe.adapter)
        config.lora_dropout = recipe.lora_dropout
        adapted = PeftModel.from_pretrained(
            net,
            recipe.adapter,
            is_trainable=True,
            config=config,
            autocast_adapter_dtype=not zero3,  # as in TRL: ZeRO-3 gathers one kind only
        )
    except (OSError, ValueError, RuntimeError, KeyError) as problem:
        cause = str(problem).strip().partition("\n")[0]
        raise HoustonError(
            f"The adapter in {recipe.adapter} does not fit {recipe.base}: {cause}.",
            NOTHING_TRAINED_MESSAGE,
        ) from problem
    if not recipe.full:
        if isinstance(adapted.get_output_embeddings(), BaseTunerLayer):
            raise _adapter_on_head_error(f"The adapter in {recipe.adapter}")
        return adapted, None
    return adapted.merge_and_unload().requires_grad_(True), None  # PEFT has frozen the model's own


def _new_adapter(net: Any, recipe: SftRecipe) -> LoraConfig:
    targets = recipe.lora_targets
    config = LoraConfig(
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    embeddings = net.get_output_embeddings()
    head = next(name for name, module in net.named_modules() if module is embeddings)
    if targets != "all-linear" and check_target_module_exists(config, head):
        raise _adapter_on_head_error("`lora_targets`")
    return config


def _adapter_on_head_error(what: str) -> HoustonError:
    """The head computes the loss from its own weights: an adapter on it would not be trained."""
    return HoustonError(
        f"{what} names the model's head, and an adapter there is not trained.",
        NOTHING_TRAINED_MESSAGE,
        'Leave the head out ("all-linear" does), or train all weights: --full',
    )


_PROBE_LENGTHS = (12, 20)
"""Tokens of the rows that are tried."""
_RELATIVE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}
"""Relative distance that is rounding and no difference."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and what was found about it."""

    net: Any
    tokenizer: Any
    bf16: bool
    """Whether to multiply in bfloat16."""
    window: int
    """Positions that the model has."""
    packing: bool
    fused: bool


def has_fast_bf16(folder: Path, device: torch.device) -> bool:
    """Whether bfloat16 is the faster kind for the model in a folder (AVX512-BF16: 525 against 225
    tokens/s of SmolLM2)."""
    gpu = device.type == "cuda"
    if gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        return False
    return is_faster_in_bfloat16(AutoConfig.from_pretrained(folder), gpu)


def load_model(recipe: SftRecipe, device: torch.device, *, pads: bool = False) -> LoadedModel:
    """Load the base of a recipe. Raises HoustonError when it cannot be loaded.

    pads: passes will have rows padded to one length, so the model keeps its own attention: ours
    makes no mask and would see what stands before a row.
    """
    folder = Path(recipe.base)
    try:
        auto = recipe.precision == "auto"
        bf16 = has_fast_bf16(folder, device) if auto else recipe.precision == "bf16"
        # What is trained is kept in float32, or steps of 5e-6 would be rounded away; a base that
        # only carries an adapter is read in the kind in which it multiplies.
        kind = torch.bfloat16 if bf16 and not recipe.full else torch.float32
        tokenizer = AutoTokenizer.from_pretrained(folder)
        net = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(
            f"The model {folder} cannot be loaded: {str(problem).partition(chr(10))[0]}.",
            NOTHING_TRAINED_MESSAGE,
            "Name another with --base",
        ) from None
    window = int(getattr(net.config.get_text_config(), "max_position_embeddings", 1 << 30))
    if pads:
        return LoadedModel(net, tokenizer, bf16, window, False, False)
    register_rows_attention()
    if is_deepspeed_zero3_enabled():  # no process has the weights yet, so nothing can be tried
        packing, fused = _use_rows_attention(net), False
    else:
        packing, fused = probe_model(net)
    return LoadedModel(net, tokenizer, bf16, window, packing and recipe.packing, fused)


@torch.no_grad()  # type: ignore[untyped-decorator]
def probe_model(net: Any) -> tuple[bool, bool]:
    """Whether rows can share a pass, and whether the head may compute the loss.

    Where they can, the model has our attention afterwards; else its own, as before.
    """
    training = net.training
    net.eval()
    size = net.config.get_text_config().vocab_size
    seeded = torch.Generator().manual_seed(0)
    rows = [torch.randint(size, (length,), generator=seeded) for length in _PROBE_LENGTHS]
    alone = [net(row[None], use_cache=False).logits[0].float() for row in rows]
    targets = torch.cat([row[1:] for row in rows])
    weights = torch.linspace(0.5, 1.5, len(targets))
    tolerance = _RELATIVE_TOLERANCE[net.dtype]
    own = net.config._attn_implementation
    packing = _can_pack(net, rows, torch.cat(alone), tolerance)
    if not packing:
        net.set_attn_implementation(own)
    expected = loss_from_logits(torch.cat([logits[:-1] for logits in alone]), targets, weights)
    head = WeightedLossHead(net)
    fused = torch.zeros(())
    start = 0
    for row in rows:
        predicts = torch.arange(len(row) - 1)
        part = slice(start, start + len(predicts))
        start += len(predicts)
        with head.computing_loss(predicts, targets[part], weights[part]):
            fused = fused + net(row[None], use_cache=False).logits.float().sum()
    head.remove()
    net.train(training)
    return packing, _is_near(fused, expected, tolerance)


def _can_pack(net: Any, rows: list[torch.Tensor], alone: torch.Tensor, tolerance: float) -> bool:
    """Switch to our attention, and compare all rows in one pass with each alone."""
    if getattr(net.config.get_text_config(), "attention_chunk_size", None):
        return False  # rows as short as these would not show it
    ids = torch.cat(rows)[None]
    places = torch.cat([torch.arange(len(row)) for row in rows])
    inputs = {"input_ids": ids, "position_ids": places[None], "row_lengths": list(_PROBE_LENGTHS)}
    try:
        if not _use_rows_attention(net):
            return False
        together = net(**inputs, use_cache=False).logits[0].float()
    except (ValueError, TypeError, RuntimeError, IndexError):  # its attention wants what ours lacks
        return False
    return _is_near(together, alone, tolerance)


def _use_rows_attention(net: Any) -> bool:
    """Give the model our attention; False where it has only attentions of its own."""
    try:
        net.set_attn_implementation(ROWS_ATTENTION)
    except ValueError:
        return False
    return bool(net.config._attn_implementation == ROWS_ATTENTION)


def _is_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    return bool((actual - expected).norm() <= tolerance * expected.norm())
