"""What comes out of a run: an adapter, or a whole model in the kind that its base has.

Put in its place whole, by renaming. It registers nothing.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from houston_daemon.training.policies.files import tokenizer_files
from houston_daemon.training.sft.run_folder import RunFolder


def save(trainer: Any, folder: RunFolder, *, full: bool) -> None:
    """Write `output/`; called in every process."""
    beside = folder.path / "output.unfinished"
    if trainer.is_world_process_zero():
        shutil.rmtree(beside, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(beside))
    trainer.accelerator.wait_for_everyone()
    if not trainer.is_world_process_zero():
        return
    (beside / "training_args.bin").unlink(missing_ok=True)  # a pickle, for nobody
    if full:
        as_base(beside, Path(folder.asked.recipe.base))
    if folder.output.exists():
        shutil.rmtree(folder.output)
    beside.replace(folder.output)


def as_base(made: Path, base: Path) -> None:
    """Weights were trained in float32; engines want them in the kind that the base has.

    Its tokenizer is the base's to the byte: written anew its files may have another form, and ids
    are told apart by their tokenizer's hash.
    """
    for file in tokenizer_files(base):
        shutil.copyfile(file, made / file.name)
    config = msgspec.json.decode((base / "config.json").read_bytes())
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    kind = getattr(torch, name)
    for file in made.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            cast = {key: weights.get_tensor(key).to(kind) for key in list(weights.keys())}
        beside = file.with_suffix(".new")
        save_file(cast, beside, metadata={"format": "pt"})
        beside.replace(file)
    own = made / "config.json"
    described = msgspec.json.decode(own.read_bytes())
    described["dtype"] = name
    own.write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))
