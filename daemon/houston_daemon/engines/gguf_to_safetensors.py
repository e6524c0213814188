"""Turns a quantised GGUF file into a model folder of safetensors, in a child process.

`python -m houston_daemon.engines.gguf_to_safetensors GGUF FOLDER` makes the folder. It holds bf16
safetensors, config and tokenizer, readable by transformers, PEFT, TRL and vLLM. It is a child
process, so that no other process loads torch. The caller decides where the folder goes.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Dequantise `gguf` and write the model to `folder` in bf16."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    packed = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # A model loaded from GGUF counts as quantised and refuses to be saved; its weights do not.
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(packed.state_dict())
    fresh.generation_config = packed.generation_config
    fresh.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
