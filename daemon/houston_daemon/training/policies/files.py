"""Files of a policy: which ones make an adapter or a model, and what engines can do with them.

A policy's folder is made beside its place, synced, and named last: what has its name is whole.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from houston_shared import synced_file
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder

LINEAGE = "lineage.json"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
MODEL = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json")
TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_BEGUN = ".new"
"""Ends the name of a folder that is being written, behind the process that writes it."""
VLLM_RANK = 64
"""Largest rank that a vLLM child of ours takes (`--max-lora-rank`)."""


class Weights(NamedTuple):
    """What lies in a folder."""

    kind: Literal["lora", "full"]
    files: tuple[Path, ...]
    rank: int
    """Of an adapter; 0 for full weights."""
    engines: tuple[str, ...]
    """Kinds of engines that can sample with it."""


def weights(folder: Path) -> Weights:
    """The adapter or model in `folder`.

    Raises HoustonError for neither, one no engine takes, and files that lie elsewhere.
    """
    _check_links(folder)
    if (folder / ADAPTER[0]).is_file():
        return _adapter(folder)
    found = _matching(folder, MODEL)
    if not (folder / "config.json").is_file() or not any(
        file.suffix == ".safetensors" for file in found
    ):
        raise HoustonError(
            f"{folder} holds neither an adapter (adapter_config.json) nor a model "
            "(config.json and safetensors).",
            "No policy was registered.",
        )
    return Weights("full", (*found, *_matching(folder, TOKENIZER)), 0, ("embedded", "vllm"))


def _check_links(folder: Path) -> None:
    """A folder that somebody sent may name any file of this machine.

    A snapshot in Hugging Face's cache is all links into the `blobs` of its repository: those count
    as its own.
    """
    here = folder.resolve()
    own = (here, here.parent.parent / "blobs") if here.parent.name == "snapshots" else (here,)
    for file in _matching(folder, (*ADAPTER, *MODEL, *TOKENIZER)):
        if not any(file.resolve().is_relative_to(one) for one in own):
            raise HoustonError(
                f"{file} is a link out of the folder, to {file.resolve()}.",
                "No policy was registered.",
                f"Where that is meant: cp -rL {folder} DIR, and import DIR",
            )


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """What renders and decodes for the model in `folder`."""
    return _matching(folder, TOKENIZER)


def _adapter(folder: Path) -> Weights:
    files = tuple(folder / name for name in ADAPTER)
    try:
        config: Any = json.loads(files[0].read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise HoustonError(f"{files[0]} cannot be read: {problem}.") from problem
    if not isinstance(config, dict):
        raise HoustonError(f"{files[0]} holds no JSON object.", "No policy was registered.")
    if config.get("peft_type") != "LORA":
        raise HoustonError(
            f"{folder} holds an adapter of the kind {config.get('peft_type')!r}.",
            "No policy was registered.",
            "Engines load LoRA adapters; merge any other kind into full weights.",
        )
    if not files[1].is_file():
        raise HoustonError(f"{folder} holds no {ADAPTER[1]}.", "No policy was registered.")
    pattern = config.get("rank_pattern") or {}
    ranks = [config.get("r") or 0, *(pattern.values() if isinstance(pattern, dict) else (None,))]
    if not all(type(one) is int and one >= 0 for one in ranks):
        raise HoustonError(
            f"{files[0]} has a rank (r, rank_pattern) that is no number.",
            "No policy was registered.",
        )
    rank = max(ranks)
    plain = config.get("bias", "none") == "none" and not config.get("modules_to_save")
    vllm = plain and rank <= VLLM_RANK and not config.get("use_dora")
    engines = ("embedded", "token", "vllm") if vllm else ("embedded",)
    return Weights("lora", files, rank, engines)


def _matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    return tuple(sorted(found))


def check_outside(home: Home, out: Path) -> None:
    """Raise HoustonError where `out`, through whatever links, lies among the home's policies: what
    is there was registered, and its name would stand for other weights."""
    policies = policies_folder(home).resolve()
    if out.resolve().is_relative_to(policies):
        raise HoustonError(
            f"{out} lies among the policies of the home ({policies}), whose files are registered.",
            "Nothing was written.",
            "Name another --out, and make a policy of it with houston policy import",
        )


def place(files: Iterable[Path], folder: Path, lineage: msgspec.Struct) -> None:
    """Copy `files` and the lineage into a new `folder`, durably. Raises OSError.

    What an earlier try left beside it is replaced; a folder that is there already is refused
    (FileExistsError).
    """
    _tidy(folder.parent)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}{_BEGUN}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o700, parents=True)
    for file in files:
        shutil.copyfile(file, beside / file.name)
    said = msgspec.json.format(msgspec.json.encode(lineage), indent=1)
    (beside / LINEAGE).write_bytes(said + b"\n")
    for file in beside.iterdir():
        file.chmod(0o600)
        synced_file.sync(file)
    synced_file.sync(beside)
    try:
        beside.rename(folder)
    except OSError as problem:
        shutil.rmtree(beside, ignore_errors=True)
        if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(f"{folder} is there already") from problem
        raise
    synced_file.sync(folder.parent)


def _tidy(policies: Path) -> None:
    """Remove what processes that were killed have begun: full weights are many gigabytes."""
    for left in policies.glob(f".*{_BEGUN}"):
        owner = left.name.removesuffix(_BEGUN).rpartition(".")[2]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
