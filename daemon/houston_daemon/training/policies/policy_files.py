"""Files of policies: which files make an adapter or a model, their hashes, and whether they are
still what was registered.

Weights of many gigabytes are hashed once: hashes are remembered by size and time of change. A
policy's folder is made next to its final place, synced, and renamed last. `named_policy` finds the
policy that a person means, with its folder. It registers nothing and imports no torch.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from houston_shared import atomic_file
from houston_shared.errors import (
    HoustonError,
    NotFound,
    UsageError,
    unreadable_as_error,
    unreadable_file_code,
)
from houston_shared.home import Home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered

MODEL_FILES = ("config.json", "tokenizer.json", "*.safetensors", "*.bin", "*.gguf")
"""What decides what a model computes; cards, licences and templates do not."""
_HASHES_FILE = "hashes.json"


class _FileHash(msgspec.Struct, frozen=True):
    size: int
    changed: int
    """Nanoseconds; of the inode, which nobody can set back."""
    sha256: str


def hash_files(files: Iterable[Path], home: Home | None = None) -> dict[str, str]:
    """SHA-256 (hex) by file name. Raises HoustonError for what cannot be read.

    home: where hashes of large files are remembered; None to read them all.
    """
    remembered = _read_hashes(home) if home else {}
    fresh = dict(remembered)
    hashes = {}
    for file in sorted(files):
        with unreadable_as_error(file):
            status = file.stat()
            entry = remembered.get(key := str(file.absolute()))
            stamp = status.st_size, status.st_ctime_ns
            if entry is None or (entry.size, entry.changed) != stamp:
                entry = _FileHash(*stamp, hash_file(file))
        fresh[key] = entry
        hashes[file.name] = entry.sha256
    if home and fresh != remembered:
        _write_hashes(home, fresh)
    return hashes


def hash_file(file: Path) -> str:
    """SHA-256 (hex) of one file; raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def combine_hashes(files: Mapping[str, str]) -> str:
    """One hash of many: over names and hashes, by name."""
    lines = "".join(f"{name}\0{files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def model_hash(folder: Path, home: Home | None = None) -> str:
    """One hash of the model in `folder`. Raises HoustonError where there is none."""
    files = [file for pattern in MODEL_FILES for file in folder.glob(pattern)]
    if not any(file.suffix in (".safetensors", ".bin", ".gguf") for file in files):
        raise HoustonError(f"{folder} holds no model: there are no weights in it.")
    return combine_hashes(hash_files(files, home))


def _read_hashes(home: Home) -> dict[str, _FileHash]:
    """What was hashed before; nothing where that cannot be read: it is hashed again."""
    hashes = policies_folder(home) / _HASHES_FILE
    return atomic_file.read_json_file(hashes, dict[str, _FileHash]) or {}


def _write_hashes(home: Home, hashes: Mapping[str, _FileHash]) -> None:
    """Only what is still there; a folder that cannot be written costs another reading."""
    existing = {path: entry for path, entry in hashes.items() if Path(path).exists()}
    folder = policies_folder(home)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        new_file = folder / f".{_HASHES_FILE}.new"
        new_file.write_bytes(msgspec.json.encode(existing))
        new_file.replace(folder / _HASHES_FILE)
    except OSError:
        return


LINEAGE_FILE = "lineage.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
FULL_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
)
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_UNFINISHED_SUFFIX = ".new"
"""Ends the name of a folder that is being written, behind the process that writes it."""
MAX_VLLM_RANK = 64
"""Largest rank that a vLLM child of ours takes (`--max-lora-rank`)."""


class PolicyWeights(NamedTuple):
    """What lies in a folder."""

    kind: Literal["lora", "full", "reward"]
    files: tuple[Path, ...]
    rank: int
    """Of an adapter; 0 for full weights."""
    engines: tuple[str, ...]
    """Kinds of engines that can sample with it."""


def find_weights(folder: Path) -> PolicyWeights:
    """The adapter or model in `folder`.

    Raises HoustonError for neither, one no engine takes, and files that lie elsewhere.
    """
    _check_links(folder)
    if (folder / ADAPTER_FILES[0]).is_file():
        return _adapter_weights(folder)
    files = _matching_files(folder, FULL_MODEL_FILES)
    if not (folder / "config.json").is_file() or not any(
        file.suffix == ".safetensors" for file in files
    ):
        raise HoustonError(
            f"{folder} holds neither an adapter (adapter_config.json) nor a model "
            "(config.json and safetensors).",
            "No policy was registered.",
        )
    files = (*files, *_matching_files(folder, TOKENIZER_FILES))
    if _is_classifier(folder):
        return PolicyWeights("reward", files, 0, ())
    return PolicyWeights("full", files, 0, ("embedded", "vllm"))


def _is_classifier(folder: Path) -> bool:
    """Whether a model scores a text instead of writing one (`houston train prm`)."""
    config: Any = json.loads((folder / "config.json").read_bytes())
    names = config.get("architectures") if isinstance(config, dict) else None
    return any(str(name).endswith("ForSequenceClassification") for name in names or ())


def _check_links(folder: Path) -> None:
    """A folder that somebody sent may name any file of this machine.

    A snapshot in Hugging Face's cache is all links into the `blobs` of its repository: those count
    as its own.
    """
    roots = [folder.resolve()]
    if roots[0].parent.name == "snapshots":
        roots.append(roots[0].parent.parent / "blobs")
    for file in _matching_files(folder, (*ADAPTER_FILES, *FULL_MODEL_FILES, *TOKENIZER_FILES)):
        if not any(file.resolve().is_relative_to(root) for root in roots):
            raise HoustonError(
                f"{file} is a link out of the folder, to {file.resolve()}.",
                "No policy was registered.",
                f"If that is intended: cp -rL {folder} DIR, and import DIR",
            )


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """What renders and decodes for the model in `folder`."""
    return _matching_files(folder, TOKENIZER_FILES)


def _adapter_weights(folder: Path) -> PolicyWeights:
    files = tuple(folder / name for name in ADAPTER_FILES)
    try:
        config: Any = json.loads(files[0].read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise HoustonError(
            f"{files[0]} cannot be read: {problem}.", code=unreadable_file_code(problem)
        ) from problem
    if not isinstance(config, dict):
        raise HoustonError(f"{files[0]} holds no JSON object.", "No policy was registered.")
    if config.get("peft_type") != "LORA":
        raise HoustonError(
            f"{folder} holds an adapter of the kind {config.get('peft_type')!r}.",
            "No policy was registered.",
            "Engines load LoRA adapters; merge any other kind into full weights.",
        )
    if not files[1].is_file():
        raise HoustonError(f"{folder} holds no {ADAPTER_FILES[1]}.", "No policy was registered.")
    pattern = config.get("rank_pattern") or {}
    ranks = [config.get("r") or 0, *(pattern.values() if isinstance(pattern, dict) else (None,))]
    if not all(type(rank) is int and rank >= 0 for rank in ranks):
        raise HoustonError(
            f"{files[0]} has a rank (r, rank_pattern) that is no number.",
            "No policy was registered.",
        )
    rank = max(ranks)
    plain = config.get("bias", "none") == "none" and not config.get("modules_to_save")
    vllm = plain and rank <= MAX_VLLM_RANK and not config.get("use_dora")
    engines = ("embedded", "token", "vllm") if vllm else ("embedded",)
    return PolicyWeights("lora", files, rank, engines)


def _matching_files(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    files = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    return tuple(sorted(files))


def require_outside_policies(home: Home, out: Path) -> None:
    """Raise HoustonError where `out`, through whatever links, lies among the home's policies: what
    is there was registered, and its name would stand for other weights."""
    policies = policies_folder(home).resolve()
    if out.resolve().is_relative_to(policies):
        raise HoustonError(
            f"{out} is among the policies of the home ({policies}), whose files are registered.",
            "Nothing was written.",
            "Name another --out, and make a policy of it with houston policy import",
        )


def place_files(files: Iterable[Path], folder: Path, lineage: msgspec.Struct) -> None:
    """Copy `files` and the lineage into a new `folder`, durably. Raises OSError.

    What an earlier try left beside it is replaced; a folder that is there already is refused
    (FileExistsError).
    """
    _remove_unfinished(folder.parent)
    staging = folder.with_name(f".{folder.name}.{os.getpid()}{_UNFINISHED_SUFFIX}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700, parents=True)
    for file in files:
        shutil.copyfile(file, staging / file.name)
    text = msgspec.json.format(msgspec.json.encode(lineage), indent=1)
    (staging / LINEAGE_FILE).write_bytes(text + b"\n")
    for file in staging.iterdir():
        file.chmod(0o600)
        atomic_file.sync_to_disk(file)
    atomic_file.sync_to_disk(staging)
    try:
        staging.rename(folder)
    except OSError as problem:
        shutil.rmtree(staging, ignore_errors=True)
        if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(f"{folder} is there already") from problem
        raise
    atomic_file.sync_to_disk(folder.parent)


def _remove_unfinished(policies: Path) -> None:
    """Remove what processes that were killed have begun: full weights are many gigabytes."""
    for unfinished in policies.glob(f".*{_UNFINISHED_SUFFIX}"):
        owner = unfinished.name.removesuffix(_UNFINISHED_SUFFIX).rpartition(".")[2]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(unfinished, ignore_errors=True)


def require_policy_files(home: Home, policy: PolicyRow) -> PolicyRegistered | None:
    """The registration of a policy, None where it was erased.

    Raises HoustonError unless its files are there and unchanged, because the ledger names them.
    Hashes of files that have not changed are remembered.
    """
    with Reader(home) as reader:
        registration = reader.run(policy_queries.read_policy_registration(policy))
    if registration is None or not registration.files:
        return registration
    folder = policies_folder(home) / policy.folder
    if not folder.is_dir():
        raise HoustonError(
            f"The files of {policy.name} are no longer in {folder}.",
            next="Fetch them back from a backup, or name another: houston policy list",
        )
    if hash_files([folder / name for name in registration.files], home) != registration.files:
        raise HoustonError(
            f"The files in {folder} are not those that were registered as {policy.name}.",
            next="houston verify",
        )
    return registration


def changed_policy_files(home: Home) -> list[str]:
    """A sentence for every file that is not as it was; every byte is read. Raises HoustonError."""
    problems = []
    with Reader(home) as reader:
        for policy in reader.run(policy_queries.list_policies()):
            registration = reader.run(policy_queries.read_policy_registration(policy))
            folder = policies_folder(home) / policy.folder
            if registration is None or not policy.folder or not folder.is_dir():
                continue
            for name, digest in sorted(registration.files.items()):
                try:
                    now = hash_file(folder / name)
                except OSError as problem:
                    problems.append(f"{folder / name} cannot be read: {problem.strerror}.")
                    continue
                if now != digest:
                    problems.append(f"{folder / name} is not the file that was registered.")
    return problems


class NamedPolicy(NamedTuple):
    """A policy with its files."""

    policy: PolicyRow
    folder: Path
    """Its adapter or full weights; of a base model that itself."""
    base: Path
    lineage: dict[str, Any]


def require_policy(reader: Reader, name: str) -> PolicyRow:
    """The policy of that name. Raises HoustonError where there is none."""
    policy = reader.run(policy_queries.find_policy(name))
    if policy is None:
        raise NotFound(f"There is no policy {name!r}.", next="houston policy list")
    return policy


def named_policy(home: Home, name: str) -> NamedPolicy:
    """The policy of that name, which can sample.

    Raises HoustonError for none, and where its files or the base of its adapter are not what they
    were when it was registered.
    """
    with Reader(home) as reader:
        policy = require_policy(reader, name)
    if policy.kind == "reward":
        raise UsageError(
            f"{name} is a process reward model: it scores decisions and samples nothing.",
            "Nothing was done with it.",
            "houston policy list",
        )
    registration = require_policy_files(home, policy)
    lineage = msgspec.to_builtins(registration) if registration else {"name": policy.name}
    base = Path(policy.base)
    if policy.kind != "full" and model_hash(base, home) != policy.base_hash:
        raise HoustonError(f"{base} is no longer the model that {name} was trained from.")
    folder = policies_folder(home) / policy.folder if policy.folder else base
    return NamedPolicy(policy, folder, base, lineage)


def trained_policy(home: Home, name: str) -> NamedPolicy:
    """The same; raises HoustonError for a base model, too: it has no files of its own."""
    policy = named_policy(home, name)
    if policy.policy.kind == "base":
        raise HoustonError(f"{name} is the base model itself, stored in {policy.base}.")
    return policy
