"""What training begins from: a model, a model with an adapter, or a policy of the home.

A recipe may name any of them; here it becomes folders that hold wherever the trainer runs. Imports
no torch.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.engines.model import NAME, model_path
from houston_daemon.training.policies import by_name, hashing
from houston_daemon.training.policies.files import ADAPTER
from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import is_policy, policies_folder

ADAPTERS_OWN = {"lora_rank", "lora_alpha", "lora_targets"}
"""Keys of a recipe that an adapter to go on from decides."""
_SMALL = ("embedded", "vllm", NAME)
"""What a manifest calls the packaged model."""


def of_policy(home: Home, recipe: Recipe) -> Recipe:
    """With the folders of the policy that `base` names, if it names one. Raises HoustonError."""
    if not is_policy(recipe.base):
        return recipe
    if recipe.adapter:
        raise HoustonError(
            f"{recipe.base} says what to go on from, and `adapter` says it, too.",
            NOT_TRAINED,
            "Name one of them",
            ExitCode.USAGE,
        )
    found = by_name.named(home, recipe.base)
    if found.policy.kind == "lora":
        return msgspec.structs.replace(recipe, base=str(found.base), adapter=str(found.folder))
    return msgspec.structs.replace(recipe, base=str(found.folder))


def filled(recipe: Recipe, manifest: dict[str, Any], set_: Collection[str]) -> Recipe:
    """With whole paths, and with what an adapter to go on from decides.

    manifest: of the data. set_: keys that were set for this run. Raises HoustonError without a
    model, and where an adapter is none or was told to be another.
    """
    base = Path(recipe.base or _of_data(manifest))
    if not (base / "config.json").is_file():
        adapter = (base / ADAPTER[0]).is_file()
        raise HoustonError(
            f"{base} is not the folder of a model: it has no config.json.",
            NOT_TRAINED,
            f"It holds an adapter: name its model with --base DIR, and --set adapter={base}"
            if adapter
            else "Name one with --base DIR",
        )
    recipe = msgspec.structs.replace(recipe, base=str(base.absolute()))
    if not recipe.adapter:
        return recipe
    folder = Path(recipe.adapter).absolute()
    recipe = msgspec.structs.replace(recipe, adapter=str(folder))
    return recipe if recipe.full else _as_adapter(recipe, folder, set_)


def parent(home: Home, recipe: Recipe) -> str:
    """The policy that a filled recipe begins from; empty for a model that is none of the home's."""
    folder = Path(recipe.adapter or recipe.base)
    mine = policies_folder(home).resolve()
    return folder.name if folder.resolve().parent == mine and is_policy(folder.name) else ""


def hashes(home: Home | None, recipe: Recipe) -> tuple[str, str]:
    """Content of the base model and of the adapter (empty without one) of a filled recipe.

    home: where hashes of large files are remembered. Raises HoustonError where they are not there.
    """
    base = hashing.model_hash(Path(recipe.base), home)
    if not recipe.adapter:
        return base, ""
    files = [Path(recipe.adapter) / name for name in ADAPTER]
    return base, hashing.together(hashing.of_files(files, home))


def check(folder: RunFolder) -> None:
    """Raise HoustonError unless a run's base and adapter are what they were as it was asked for:
    its checkpoints, and the policy's lineage, are of those. Older runs have not noted it."""
    asked, recipe = folder.asked, folder.asked.recipe
    if not asked.base_hash:
        return
    try:
        now = hashes(Home(Path(asked.home)) if asked.home else None, recipe)
    except HoustonError as problem:
        raise _other(folder, problem.cause) from problem
    if now[0] != asked.base_hash:
        raise _other(folder, f"{recipe.base} is not the model any more that this run began with.")
    if now[1] != asked.adapter_hash:
        raise _other(
            folder, f"{recipe.adapter} is not the adapter any more that this run began with."
        )


def _other(folder: RunFolder, cause: str) -> HoustonError:
    return HoustonError(
        cause,
        f"Nothing was trained further. {folder.good}",
        f"Next: put back what was there, and {folder.again}; or start a new run",
    )


def _of_data(manifest: dict[str, Any]) -> str:
    named = manifest.get("base") or []
    (only,) = named if len(named) == 1 else ("",)
    if only in _SMALL and (found := model_path()):
        return str(found)
    if only and Path(only).is_dir():
        return str(only)
    said = f"names {', '.join(named)}" if named else "names none"
    raise HoustonError(
        f"Which model to train cannot be told: the manifest of the data {said}.",
        NOT_TRAINED,
        "Name its folder with --base DIR",
    )


class _Adapter(msgspec.Struct):
    """What PEFT writes of a LoRA adapter."""

    r: int
    lora_alpha: int
    target_modules: str | list[str]
    peft_type: str = "LORA"


def _as_adapter(recipe: Recipe, folder: Path, set_: Collection[str]) -> Recipe:
    """With rank, scale and targets of the adapter that goes on: it has its shapes."""
    if other := sorted(ADAPTERS_OWN & set(set_)):
        raise HoustonError(
            f"{', '.join(other)} cannot be set: {folder} goes on with its own.",
            NOT_TRAINED,
            "Leave it away, or train an adapter of its own from the model with --base DIR",
            ExitCode.USAGE,
        )
    try:
        found = msgspec.json.decode((folder / ADAPTER[0]).read_bytes(), type=_Adapter)
    except (OSError, msgspec.DecodeError) as problem:
        raise HoustonError(
            f"{folder} holds no LoRA adapter to go on from: {problem}.", NOT_TRAINED
        ) from None
    if found.peft_type != "LORA":
        raise HoustonError(f"{folder} holds an adapter of kind {found.peft_type}.", NOT_TRAINED)
    targets = found.target_modules
    return msgspec.structs.replace(
        recipe,
        lora_rank=found.r,
        lora_alpha=found.lora_alpha,
        lora_targets=targets if isinstance(targets, str) else tuple(sorted(targets)),
    )
