"""The model that is trained: loaded for the device, and tried for what it can do in one pass.

Names of architectures promise nothing, so two things are tried on random rows before training: that
rows in one pass give what the model's own attention gives each alone (`packing`; sinks and softcaps
of attention make another), and that the head's own loss is the one of the model's logits (`fused`;
softcaps and scales of logits make another). Where one fails, rows are computed one by one with the
model's own attention, or from logits. It trains nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from houston_daemon.engines.processor import multiplies_bfloat16
from houston_daemon.training.sft import attention
from houston_daemon.training.sft.loss import WeighingHead, from_logits
from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_shared.errors import HoustonError

_ROWS = (12, 20)
"""Tokens of the rows that are tried."""
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}
"""Relative distance that is rounding and no difference."""


@dataclass(frozen=True)
class Loaded:
    """A model and what was found about it."""

    net: Any
    tokenizer: Any
    bf16: bool
    """Whether to multiply in bfloat16."""
    window: int
    """Positions that the model has."""
    packing: bool
    fused: bool


def fast_bf16(device: torch.device) -> bool:
    """Whether bfloat16 is the faster kind (AVX512-BF16: 525 against 225 tokens/s of SmolLM2)."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return multiplies_bfloat16()


def load(recipe: Recipe, device: torch.device) -> Loaded:
    """Load the base of a recipe. Raises HoustonError when it cannot be loaded."""
    folder = Path(recipe.base)
    bf16 = fast_bf16(device) if recipe.precision == "auto" else recipe.precision == "bf16"
    # What is trained is kept in float32, or steps of 5e-6 would be rounded away; a base that only
    # carries an adapter is read in the kind in which it multiplies.
    kind = torch.bfloat16 if bf16 and not recipe.full else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        net = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(
            f"The model {folder} cannot be loaded: {str(problem).partition(chr(10))[0]}.",
            NOT_TRAINED,
            "Name another with --base",
        ) from None
    window = int(getattr(net.config.get_text_config(), "max_position_embeddings", 1 << 30))
    attention.register()
    packing, fused = probe(net) if _tried() else (_switched(net), False)
    return Loaded(net, tokenizer, bf16, window, packing and recipe.packing, fused)


def _tried() -> bool:
    """Under ZeRO-3 no process has the weights yet, so nothing can be tried."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    return not is_deepspeed_zero3_enabled()


@torch.no_grad()  # type: ignore[untyped-decorator]
def probe(net: Any) -> tuple[bool, bool]:
    """Whether rows can share a pass, and whether the head may compute the loss.

    Where they can, the model has our attention afterwards; else its own, as before.
    """
    training = net.training
    net.eval()
    size = net.config.get_text_config().vocab_size
    seeded = torch.Generator().manual_seed(0)
    rows = [torch.randint(size, (length,), generator=seeded) for length in _ROWS]
    alone = [net(row[None], use_cache=False).logits[0].float() for row in rows]
    targets = torch.cat([row[1:] for row in rows])
    weights = torch.linspace(0.5, 1.5, len(targets))
    tolerance = _TOLERANCE[net.dtype]
    own = net.config._attn_implementation
    packing = _packs(net, rows, torch.cat(alone), tolerance)
    if not packing:
        net.set_attn_implementation(own)
    wanted = from_logits(torch.cat([one[:-1] for one in alone]), targets, weights)
    head = WeighingHead(net)
    fused = torch.zeros(())
    kept = 0
    for row in rows:
        predicts = torch.arange(len(row) - 1)
        part = slice(kept, kept + len(predicts))
        kept += len(predicts)
        with head.asked(predicts, targets[part], weights[part]):
            fused = fused + net(row[None], use_cache=False).logits.float().sum()
    head.remove()
    net.train(training)
    return packing, _near(fused, wanted, tolerance)


def _packs(net: Any, rows: list[torch.Tensor], alone: torch.Tensor, tolerance: float) -> bool:
    """Switch to our attention, and compare all rows in one pass with each alone."""
    if getattr(net.config.get_text_config(), "attention_chunk_size", None):
        return False  # rows as short as these would not show it
    ids = torch.cat(rows)[None]
    places = torch.cat([torch.arange(len(row)) for row in rows])
    given = {"input_ids": ids, "position_ids": places[None], "row_lengths": list(_ROWS)}
    try:
        if not _switched(net):
            return False
        together = net(**given, use_cache=False).logits[0].float()
    except (ValueError, TypeError, RuntimeError, IndexError):  # its attention wants what ours lacks
        return False
    return _near(together, alone, tolerance)


def _switched(net: Any) -> bool:
    """Give the model our attention; False where it has only attentions of its own."""
    try:
        net.set_attn_implementation(attention.NAME)
    except ValueError:
        return False
    return bool(net.config._attn_implementation == attention.NAME)


def _near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    return bool((found - wanted).norm() <= tolerance * wanted.norm())
