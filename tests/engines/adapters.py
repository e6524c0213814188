"""A LoRA adapter made by hand: large enough to change what SmolLM2 says, in PEFT's own format."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WIDTH, LAYERS, RANK = 576, 30, 4


def make_adapter(folder: Path, seed: int, width: int = WIDTH, layers: int = LAYERS) -> Path:
    """Write adapter_config.json and adapter_model.safetensors; returns the folder. width, layers:
    of the model that it is for."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(layers):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = random.normal(0, 1, (RANK, width)).astype(np.float32)
        tensors[f"{name}.lora_B.weight"] = random.normal(0, 0.05, (width, RANK)).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "SmolLM2-135M-Instruct",
        "r": RANK,
        "lora_alpha": 8,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
