"""The model that is trained: loaded for the device, and tried for what it can do in one pass.

Names of architectures promise nothing, so two things are tried on random rows before training: that
rows in one pass are blind to each other (`packing`), and that the head's own loss is the one of the
model's logits (`fused`; softcaps and scales of logits make another). Where one fails, rows are
computed one by one, or from logits. It trains nothing.
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
        net, own = _load(folder, kind)
    except (OSError, ValueError, KeyError) as problem:
        raise HoustonError(
            f"The model {folder} cannot be loaded: {str(problem).partition(chr(10))[0]}.",
            NOT_TRAINED,
            "Name another with --base",
        ) from None
    window = int(getattr(net.config.get_text_config(), "max_position_embeddings", 1 << 30))
    packing, fused = probe(net, own) if _tried() else (own, False)
    return Loaded(net, tokenizer, bf16, window, packing and recipe.packing, fused)


def _load(folder: Path, kind: torch.dtype) -> tuple[Any, bool]:
    """The model, and whether it took our attention."""
    attention.register()
    try:
        net = AutoModelForCausalLM.from_pretrained(
            folder, dtype=kind, attn_implementation=attention.NAME
        )
        return net, True
    except ValueError:  # it has only attentions of its own
        return AutoModelForCausalLM.from_pretrained(folder, dtype=kind), False


def _tried() -> bool:
    """Under ZeRO-3 no process has the weights yet, so nothing can be tried."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    return not is_deepspeed_zero3_enabled()


@torch.no_grad()  # type: ignore[untyped-decorator]
def probe(net: Any, own: bool) -> tuple[bool, bool]:
    """Whether rows can share a pass, and whether the head may compute the loss.

    own: whether the model runs our attention.
    """
    training = net.training
    net.eval()
    size = net.config.get_text_config().vocab_size
    seeded = torch.Generator().manual_seed(0)
    rows = [torch.randint(size, (length,), generator=seeded) for length in _ROWS]
    alone = [net(row[None], use_cache=False).logits[0].float() for row in rows]
    targets = torch.cat([row[1:] for row in rows])
    weights = torch.linspace(0.5, 1.5, len(targets))
    ids = torch.cat(rows)[None]
    places = torch.cat([torch.arange(length) for length in _ROWS])
    given = {"input_ids": ids, "position_ids": places[None], "row_lengths": list(_ROWS)}
    tolerance = _TOLERANCE[net.dtype]
    packing = own and _near(
        net(**given, use_cache=False).logits[0].float(), torch.cat(alone), tolerance
    )
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


def _near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    return bool((found - wanted).norm() <= tolerance * wanted.norm())
