"""A policy as one model: the adapter's weights added to those of its base.

The sum is made in float32 and stored in the base's own type, so that it is as near to what the
adapter computes as that type allows. Loads torch, transformers and peft when it is called.
"""

import importlib
import importlib.util
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.training.policies import policy_files
from houston_shared.errors import ExitCode, HoustonError

REQUIRED_PACKAGES = ("torch", "transformers", "peft")
MERGED_MARKER = "merged.json"
"""In a folder that was made here, and in none that was registered: those have the lineage, too."""


def require_packages(*modules: str) -> None:
    """Raise HoustonError unless all of these are installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise HoustonError(
            f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed.",
            "Nothing was written.",
            "pip install 'houston-agents[train,local]'",
            ExitCode.CONFIGURATION,
        )


def quiet_transformers() -> None:
    """Let transformers show no bars, and torch leave half of the processors to the rest."""
    os.environ["TQDM_DISABLE"] = "1"  # read as tqdm is imported; reading GGUF asks nothing else
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    torch = importlib.import_module("torch")
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    importlib.import_module("transformers").utils.logging.disable_progress_bar()
    importlib.import_module("transformers").utils.logging.set_verbosity_error()


def load_merged(kind: str, folder: Path, base: Path) -> Any:
    """The policy as a model of transformers, in the base's type, on the CPU.

    kind: `lora` or `full`. folder: the policy's. Raises HoustonError.
    """
    require_packages(*REQUIRED_PACKAGES)
    quiet_transformers()
    torch = importlib.import_module("torch")
    models = importlib.import_module("transformers").AutoModelForCausalLM
    try:
        if kind == "full":
            return models.from_pretrained(folder, dtype="auto")
        net = models.from_pretrained(base, dtype="auto")
        stored = net.dtype
        peft = importlib.import_module("peft")
        net = peft.PeftModel.from_pretrained(net.to(torch.float32), folder)
        return net.merge_and_unload().to(stored)
    except (OSError, ValueError, RuntimeError, KeyError) as problem:
        cause = str(problem).strip().partition("\n")[0]
        raise HoustonError(
            f"The policy in {folder} cannot be merged with {base}: {cause}.",
            "Nothing was written.",
        ) from problem


def check_output_folder(out: Path, force: bool) -> None:
    """Raise HoustonError where a merged model cannot be written to the folder `out`.

    force: whether a model that was merged before is replaced; anything else never is.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MERGED_MARKER).is_file():
        what = "is not empty" if out.is_dir() else "is no folder"
        raise HoustonError(f"{out} {what}.", "Nothing was written.", "Name another --out.")
    if not force:
        raise HoustonError(
            f"{out} holds a merged model already.",
            "Nothing was written.",
            "Name another --out, or replace it: --force",
        )


def write_merged(
    model: Any, base: Path, out: Path, lineage: Mapping[str, Any], force: bool = False
) -> list[Path]:
    """Write a merged model as a folder that transformers, TRL and vLLM read; returns its files.

    out: must not be there, or be empty; see `check_output_folder`. base: whose tokenizer it keeps.
    Raises HoustonError.
    """
    check_output_folder(out, force)
    staging, old = out.with_name(f".{out.name}.new"), out.with_name(f".{out.name}.old")
    for folder in (staging, old):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        model.save_pretrained(staging)
        for file in policy_files.tokenizer_files(base):
            shutil.copyfile(file, staging / file.name)
        text = msgspec.json.format(msgspec.json.encode(lineage), indent=1)
        (staging / policy_files.LINEAGE_FILE).write_bytes(text + b"\n")
        (staging / MERGED_MARKER).write_bytes(
            msgspec.json.encode({"policy": lineage.get("name", "")})
        )
        if out.exists():
            out.rename(old)
        staging.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as problem:
        shutil.rmtree(staging, ignore_errors=True)
        if old.exists() and not out.exists():
            old.rename(out)
        raise HoustonError(f"{out} cannot be written: {problem}.", "Nothing was kept.") from problem
    return sorted(out.iterdir())
