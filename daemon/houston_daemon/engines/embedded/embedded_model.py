"""The model in memory: weights, tokenizer, adapters, one forward pass, attention fast on a CPU.

Used from the sampling thread only, except for the plain facts (name, window, tokenizer). Attention
for a single new token does not copy the keys of grouped heads, which the library's own does at each
token. Knows nothing of requests. Adapters need peft, which only the `train` extra brings.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from houston_daemon.engines.local_machine import has_fast_bfloat16

GROUPED_ATTENTION = "grouped"


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attend over the whole cache; shapes (1, heads, new, width) and (1, groups, length, width)."""
    batch, heads, new, width = query.shape
    if new != 1 or batch != 1 or rest.get("sliding_window"):
        out: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **rest
        )
        return out
    groups = key.shape[1]
    by_group = query.view(batch, groups, heads // groups, width)
    scores = (by_group @ key.transpose(-1, -2)).float() * (scaling or width**-0.5)
    mixed = torch.softmax(scores, -1).to(value.dtype) @ value
    return mixed.view(batch, 1, heads, width), None


def register_grouped_attention() -> None:
    """Make it known to transformers under `NAME`."""
    AttentionInterface.register(GROUPED_ATTENTION, grouped_attention)
    AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)


class AdaptersUnavailable(RuntimeError):
    """This installation cannot load adapters."""


class AdapterRefused(ValueError):
    """The adapter's files do not fit the model, or are not there."""


class EmbeddedModel:
    """A causal language model with its tokenizer.

    folder: config, safetensors and tokenizer. dtype: `auto`, `bfloat16` or `float32`.
    """

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        register_grouped_attention()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        chosen = _best_dtype(self.device) if dtype == "auto" else getattr(torch, dtype)
        self.net: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=chosen)
        self.net.set_attn_implementation(GROUPED_ATTENTION)
        self.net.eval().to(self.device)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.dtype = str(chosen).removeprefix("torch.")
        self.config: Any = self.net.config
        self.window: int = self.config.max_position_embeddings
        self.vocabulary: int = self.config.vocab_size
        self.ends = _end_ids(self.net.generation_config.eos_token_id, self.tokenizer.eos_token_id)
        self._peft: Any = None
        self._adapters: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._active = ""
        self._loads = 0

    def forward(self, ids: Sequence[int], kv: DynamicCache, adapter: str) -> torch.Tensor:
        """Append `ids` to the cache; return the logits after the last one, shape (vocabulary,)."""
        self._activate(adapter)
        with torch.inference_mode():
            batch = torch.tensor([list(ids)], device=self.device)
            out = self.net(batch, past_key_values=kv, use_cache=True, logits_to_keep=1)
            logits: torch.Tensor = out.logits[0, -1].float().cpu()
        return logits

    @property
    def adapters(self) -> dict[str, str]:
        """Folders of the loaded adapters, by name."""
        return {name: self._folders[name] for name in list(self._adapters)}

    def load_adapter(self, name: str, folder: str) -> None:
        """Load or replace an adapter. Raises AdaptersUnavailable or AdapterRefused."""
        if importlib.util.find_spec("peft") is None:
            raise AdaptersUnavailable(
                "this server has no peft; install 'houston-agents[train]' to load adapters"
            )
        if not (Path(folder) / "adapter_config.json").is_file():
            raise AdapterRefused(f"{folder} holds no adapter_config.json")
        self.unload_adapter(name)
        self._loads += 1
        inner = f"adapter{self._loads}"  # module names may not hold what policy names may
        try:
            if self._peft is None:
                peft = importlib.import_module("peft")
                self._peft = peft.PeftModel.from_pretrained(self.net, folder, adapter_name=inner)
            else:
                self._peft.load_adapter(folder, adapter_name=inner)
        except (ValueError, RuntimeError, OSError, KeyError) as problem:
            raise AdapterRefused(str(problem)) from problem
        self._peft.eval()
        self._folders[name] = folder
        self._adapters[name] = inner
        self._active = name
        self._peft.base_model.enable_adapter_layers()
        self._peft.set_adapter(inner)

    def unload_adapter(self, name: str) -> bool:
        """Forget an adapter; return whether there was one."""
        inner = self._adapters.pop(name, "")
        if inner:
            self._activate("")
            self._peft.delete_adapter(inner)
        return bool(inner)

    def _activate(self, adapter: str) -> None:
        if adapter == self._active or self._peft is None:
            return
        if adapter:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(self._adapters[adapter])
        else:
            self._peft.base_model.disable_adapter_layers()
        self._active = adapter


def _best_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor multiplies it: there it reads half the memory (SmolLM2, one thread:
    1,000 tokens prefilled in 1.1 s against 2.7 s, 36 against 26 tokens/s); else fp32."""
    if device.type == "cuda":
        return torch.bfloat16
    return torch.bfloat16 if has_fast_bfloat16() else torch.float32


def _end_ids(*given: int | list[int] | None) -> list[int]:
    ids: list[int] = []
    for item in given:
        ids += [] if item is None else [item] if isinstance(item, int) else item
    return sorted(set(ids))
