"""The model in memory: weights, tokenizer, adapters, and one forward pass for several rows.

Used from the sampling thread only, except for the plain facts (name, window, tokenizer). Rows share
a pass and see only their own caches (`row_attention`). Knows nothing of requests. Adapters need
peft.
"""

import importlib
import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache

from houston_daemon.engines.embedded.row_attention import (
    ROW_ATTENTION,
    RowCaches,
    register_row_attention,
)
from houston_daemon.engines.local_machine import is_faster_in_bfloat16

LOGGER = logging.getLogger(__name__)
_ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 1e-2}
"""Relative distance of logits that is rounding and no difference."""


class AdaptersUnavailable(RuntimeError):
    """This installation cannot load adapters."""


class AdapterRefused(ValueError):
    """The adapter's files do not fit the model, or are not there."""


class EmbeddedModel:
    """A causal language model with its tokenizer.

    folder: config, safetensors and tokenizer. dtype: `auto`, `bfloat16` or `float32`.
    """

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        register_row_attention()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        chosen = _best_dtype(folder, self.device) if dtype == "auto" else getattr(torch, dtype)
        self.net: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=chosen)
        self.net.eval().to(self.device)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.dtype = str(chosen).removeprefix("torch.")
        self.config: Any = self.net.config
        self.window: int = self.config.max_position_embeddings
        self.vocabulary: int = self.config.vocab_size
        self.ends = _end_ids(self.net.generation_config.eos_token_id, self.tokenizer.eos_token_id)
        self.shares_passes = self._try_shared_pass()
        """Whether rows are computed together; else one after the other, as the library does."""
        self._peft: Any = None
        self._adapters: dict[str, tuple[str, str]] = {}
        """By name: what peft calls it, and its folder."""
        self._active = ""
        self._loads = 0

    def forward(
        self, rows: Sequence[tuple[Sequence[int], DynamicCache]], adapter: str
    ) -> torch.Tensor:
        """Append each row's new ids to its cache; the logits after the last id of each, shape
        (rows, vocabulary)."""
        self._activate(adapter)
        with torch.inference_mode():
            if self.shares_passes:
                return self._shared_pass(rows)
            return torch.stack([self._own_pass(ids, cache) for ids, cache in rows])

    def _shared_pass(self, rows: Sequence[tuple[Sequence[int], DynamicCache]]) -> torch.Tensor:
        new = [len(ids) for ids, _ in rows]
        places = [
            torch.arange(length) + cache.get_seq_length()
            for length, (_, cache) in zip(new, rows, strict=True)
        ]
        ends = torch.tensor(new).cumsum(0) - 1
        out = self.net(
            torch.tensor([[id for ids, _ in rows for id in ids]], device=self.device),
            position_ids=torch.cat(places)[None].to(self.device),
            past_key_values=RowCaches([cache for _, cache in rows], new),
            new_tokens=new,
            use_cache=True,
            logits_to_keep=ends.to(self.device),
        )
        logits: torch.Tensor = out.logits[0].float().cpu()
        return logits

    def _own_pass(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        batch = torch.tensor([list(ids)], device=self.device)
        out = self.net(batch, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1].float().cpu()
        return logits

    def _try_shared_pass(self) -> bool:
        """Switch to `row_attention`, unless this architecture gives other logits with it.

        Names of architectures promise nothing, so it is tried on two rows of several parts.
        """
        own = self.net.config._attn_implementation
        draw = torch.Generator().manual_seed(0)
        rows = [torch.randint(self.vocabulary, (9,), generator=draw).tolist() for _ in range(2)]
        try:
            with torch.inference_mode():
                alone = [self._own_pass(ids, DynamicCache(config=self.config)) for ids in rows]
                self.net.set_attn_implementation(ROW_ATTENTION)
                caches = [DynamicCache(config=self.config) for _ in rows]
                for part in (slice(0, 5), slice(5, 8), slice(8, 9)):
                    shared = self._shared_pass(
                        [(ids[part], cache) for ids, cache in zip(rows, caches, strict=True)]
                    )
        except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as problem:
            LOGGER.warning("rows are computed one by one: %s", problem)
            self.net.set_attn_implementation(own)
            return False
        separate = torch.stack(alone)
        near = (shared - separate).norm() <= _ROUNDING[self.net.dtype] * separate.norm()
        if not near:
            LOGGER.warning("rows are computed one by one: a batch gives other results")
            self.net.set_attn_implementation(own)
        return bool(near)

    @property
    def adapters(self) -> dict[str, str]:
        """Folders of the loaded adapters, by name."""
        return {name: folder for name, (_, folder) in list(self._adapters.items())}

    def load_adapter(self, name: str, folder: str) -> None:
        """Load or replace an adapter. Raises AdaptersUnavailable or AdapterRefused."""
        if importlib.util.find_spec("peft") is None:
            raise AdaptersUnavailable(
                "this server has no peft; install 'houston-agents[local]' to load adapters"
            )
        if not (Path(folder) / "adapter_config.json").is_file():
            raise AdapterRefused(f"{folder} holds no adapter_config.json")
        self.unload_adapter(name)
        self._loads += 1
        inner = f"adapter{self._loads}"  # module names may not hold what policy names may
        if self._peft is None:
            self._peft = _wrap_for_adapters(self.net)
        try:
            self._peft.load_adapter(folder, adapter_name=inner)
        except Exception as problem:  # whatever files may hold that nobody here wrote
            self._discard(inner)
            raise AdapterRefused(str(problem) or type(problem).__name__) from problem
        self._peft.eval()
        self._adapters[name] = inner, folder
        self._active = ""
        self._activate(name)

    def _discard(self, inner: str) -> None:
        """Take out what a refused adapter has left: it stands in the model before it is read."""
        if inner in self._peft.peft_config:
            self._peft.delete_adapter(inner)
        self._peft.base_model.disable_adapter_layers()
        self._active = ""

    def unload_adapter(self, name: str) -> bool:
        """Forget an adapter; return whether there was one."""
        if name not in self._adapters:
            return False
        self._activate("")
        self._peft.delete_adapter(self._adapters.pop(name)[0])
        return True

    def _activate(self, adapter: str) -> None:
        if adapter == self._active or self._peft is None:
            return
        if adapter:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(self._adapters[adapter][0])
        else:
            self._peft.base_model.disable_adapter_layers()
        self._active = adapter


def _wrap_for_adapters(net: Any) -> Any:
    """The model as peft has it, without an adapter: each one is then loaded, and deleted, alike."""
    peft = importlib.import_module("peft")
    no_layers = importlib.import_module("peft.utils.constants").DUMMY_TARGET_MODULES
    return peft.PeftModel(net, peft.LoraConfig(target_modules=no_layers), adapter_name="none")


def _best_dtype(folder: Path, device: torch.device) -> torch.dtype:
    """bf16 where GPU or processor multiplies it: there it reads half the memory (SmolLM2, one
    thread: 1,000 tokens prefilled in 1.1 s against 2.7 s, 36 against 26 tokens/s); else, and for a
    narrow model, fp32."""
    config = AutoConfig.from_pretrained(folder)
    faster = is_faster_in_bfloat16(config, gpu=device.type == "cuda")
    return torch.bfloat16 if faster else torch.float32


def _end_ids(*declared_ids: int | list[int] | None) -> list[int]:
    ids: list[int] = []
    for item in declared_ids:
        ids += [] if item is None else [item] if isinstance(item, int) else item
    return sorted(set(ids))
