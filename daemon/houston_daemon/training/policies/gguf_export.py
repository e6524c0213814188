"""A model as a GGUF file, for llama.cpp and what is built on it.

For models of the llama architecture with a byte-level BPE tokenizer; others are refused. Weights
are written as they are (bf16), or as f16 or f32. Queries and keys are stored in llama.cpp's order
of dimensions. What was written is read back and its logits compared.
"""

import importlib
import json
import math
from pathlib import Path
from typing import Any, Literal

from houston_daemon.training.policies.adapter_merge import require_packages
from houston_shared.errors import HoustonError

Precision = Literal["bf16", "f16", "f32"]
COMPARED_PROMPTS = (
    "Hello, who are you?",
    "def main():\n    ",
    "List the files of the folder, then",
)
"""Texts on which the file and the model are compared."""
LOGIT_TOLERANCE = {"bf16": 1e-2, "f32": 1e-2, "f16": 0.1}
"""Largest difference of logits that is rounding and not a mistake: a layer that is wrong makes
differences of whole units. bf16 and f32 hold bf16 weights exactly."""
_NORMAL, _CONTROL = 1, 3
"""Types of tokens, as GGUF numbers them."""


def write_gguf(
    model: Any, tokenizer_folder: Path, out: Path, precision: Precision, name: str
) -> None:
    """Write `model` (of transformers) to the file `out`.

    tokenizer_folder: holds tokenizer.json. name: as the file calls it. Raises HoustonError for an
    architecture or tokenizer that is not known here, or a file that cannot be written.
    """
    require_packages("torch", "transformers", "gguf")
    config = model.config
    _check_architecture(config)
    gguf = importlib.import_module("gguf")
    new_file = out.with_name(f".{out.name}.new")
    try:
        writer = gguf.GGUFWriter(new_file, "llama", use_temp_file=True)
        _write_metadata(writer, config, name)
        _write_tokenizer(writer, config, tokenizer_folder)
        _write_weights(writer, gguf, model, precision)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        new_file.rename(out)
    except OSError as problem:
        raise HoustonError(f"{out} cannot be written: {problem}.", "Nothing was kept.") from problem
    finally:
        new_file.unlink(missing_ok=True)


def compare_logits(model: Any, tokenizer_folder: Path, file: Path) -> float:
    """Read a file back; the largest difference between its logits and the model's, infinity where
    one of them is no number.

    Raises HoustonError where it does not encode a text as the model's tokenizer does.
    """
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    written = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    encode = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    decoder = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ours, worst = model.to(torch.float32).eval(), 0.0
    for text in COMPARED_PROMPTS:
        ids = encode(text, add_special_tokens=False)["input_ids"]
        if decoder(text, add_special_tokens=False)["input_ids"] != ids:
            raise HoustonError(f"{file} encodes {text!r} differently from the model's tokenizer.")
        with torch.inference_mode():
            batch = torch.tensor([ids])
            difference = float((written(batch).logits - ours(batch).logits).abs().max())
        worst = max(worst, difference if math.isfinite(difference) else math.inf)
    return worst


def _check_architecture(config: Any) -> None:
    if config.model_type != "llama":
        raise HoustonError(
            f"A model of the architecture {config.model_type!r} cannot be written as GGUF here; "
            "only llama can.",
            "Nothing was written.",
            "houston policy merge … --out DIR, then llama.cpp's convert_hf_to_gguf.py DIR",
        )
    rope = getattr(config, "rope_parameters", None) or {}
    plain = rope.get("rope_type", "default") == "default"
    if not plain or config.attention_bias or config.mlp_bias or config.hidden_act != "silu":
        raise HoustonError(
            "This llama has scaled positions, biases or another activation, which cannot be "
            "written as GGUF here.",
            "Nothing was written.",
            "houston policy merge … --out DIR, then llama.cpp's convert_hf_to_gguf.py DIR",
        )


def _write_metadata(writer: Any, config: Any, name: str) -> None:
    rope = getattr(config, "rope_parameters", None) or {}
    heads = config.num_attention_heads
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim or config.hidden_size // heads)
    writer.add_rope_freq_base(float(rope.get("rope_theta", 10_000.0)))
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: Any, config: Any, folder: Path) -> None:
    """Vocabulary, merges and special tokens, as llama.cpp's byte-level BPE wants them."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = tokenizer["model"]
    if model["type"] != "BPE" or "ByteLevel" not in json.dumps(tokenizer.get("pre_tokenizer")):
        raise HoustonError(
            f"The tokenizer in {folder} is not byte-level BPE; only that can be written as GGUF.",
            "Nothing was written.",
        )
    names = {id: token for token, id in model["vocab"].items()}
    special = {token["id"]: token for token in tokenizer["added_tokens"]}
    names |= {id: token["content"] for id, token in special.items()}
    tokens = [names.get(id, f"[PAD{id}]") for id in range(config.vocab_size)]
    types = [
        _CONTROL if id in special and special[id]["special"] else _NORMAL
        for id in range(config.vocab_size)
    ]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if config.vocab_size == 49152 else "default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for add, key in (
        (writer.add_bos_token_id, "bos_token_id"),
        (writer.add_eos_token_id, "eos_token_id"),
        (writer.add_pad_token_id, "pad_token_id"),
        (writer.add_unk_token_id, "unk_token_id"),
    ):
        value = getattr(config, key, None)
        value = value[0] if isinstance(value, list) else value
        if value is not None:
            add(value)
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text(encoding="utf-8"))


def _write_weights(writer: Any, gguf: Any, model: Any, precision: Precision) -> None:
    torch = importlib.import_module("torch")
    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    kinds = gguf.GGMLQuantizationType
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem = name.removesuffix(".weight")
        target = names.get_name(stem)
        if target is None:
            raise HoustonError(f"GGUF has no name for the weights {name!r}.", "Nothing was kept.")
        data = tensor.detach().to(torch.float32).numpy()
        if stem.endswith(("q_proj", "k_proj")):
            query = stem.endswith("q_proj")
            heads = config.num_attention_heads if query else config.num_key_value_heads
            data = _rope_pairs(data, heads)
        kind = kinds.F32 if data.ndim == 1 else kinds[precision.upper()]
        raw = gguf.quants.quantize(data, kind)
        writer.add_tensor(f"{target}.weight", raw, raw_dtype=kind)


def _rope_pairs(data: Any, heads: int) -> Any:
    """Rows of a projection so that the two dimensions that rope turns together are neighbours."""
    rows, width = data.shape
    halves = data.reshape(heads, 2, rows // heads // 2, width)
    return halves.swapaxes(1, 2).reshape(rows, width)
