"""The policies at both ends of a training run: the one it begins from, and the one that results.

A recipe may name a model, a model with an adapter, or a policy of the home; it is resolved to
folders, hashes and a parent. At the end the result is registered as a policy, if a daemon runs.
`training.policies` defines what a policy is and where its files go. It imports no torch.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.engines.hub_downloads import find_model
from houston_daemon.engines.local_model import MODEL_NAME, model_path
from houston_daemon.training.policies import policy_files
from houston_daemon.training.policies.policy_files import ADAPTER_FILES
from houston_daemon.training.policies.policy_registration import register_policy
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import HoustonError, NotFound, UsageError
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from houston_shared.policy_and_run_files import is_policy_name, policies_folder
from houston_shared.store.training_event_bodies import RunState

ADAPTER_KEYS = {"lora_rank", "lora_alpha", "lora_targets"}
"""Keys of a recipe that an adapter to go on from decides."""
CONCLUDED_VARIABLE = "HOUSTON_RUN_CONCLUDED"
"""Environment variable of a process whose run is concluded by another: it may be on a node from
which no daemon can be reached."""
_PACKAGED_MODEL_NAMES = ("embedded", "vllm", MODEL_NAME)
"""What a manifest calls the packaged model."""


def with_policy_folders(home: Home, recipe: SftRecipe) -> SftRecipe:
    """With the folders of the policy that `base` names, or of the model that it names on the hub.
    Raises HoustonError."""
    if not recipe.base:
        return recipe
    if not is_policy_name(recipe.base):
        note = command_output.print_note
        folder = find_model(recipe.base, "model", home, note, NOTHING_TRAINED_MESSAGE)
        if not folder.is_dir():
            raise NotFound(
                f"There is no folder {folder}, which should hold the model to train.",
                NOTHING_TRAINED_MESSAGE,
                "Name a folder with config.json and weights, a model of the hub (org/name@revision)"
                " or a policy (houston policy list): --base MODEL",
            )
        return msgspec.structs.replace(recipe, base=str(folder))
    if recipe.adapter:
        raise UsageError(
            f"{recipe.base} and `adapter` both say what to continue from.",
            NOTHING_TRAINED_MESSAGE,
            "Name one of them",
        )
    policy = policy_files.named_policy(home, recipe.base)
    if policy.policy.kind == "lora":
        return msgspec.structs.replace(recipe, base=str(policy.base), adapter=str(policy.folder))
    return msgspec.structs.replace(recipe, base=str(policy.folder))


def fill_recipe(recipe: SftRecipe, manifest: dict[str, Any], set_: Collection[str]) -> SftRecipe:
    """The recipe with absolute paths, and with the settings that its adapter decides.

    manifest: of the data. set_: keys that were set for this run. Raises HoustonError without a
    model, and for an adapter that is none or contradicts a key in `set_`.
    """
    base = Path(recipe.base or _base_of_data(manifest))
    if not (base / "config.json").is_file():
        adapter = (base / ADAPTER_FILES[0]).is_file()
        raise HoustonError(
            f"{base} is not a model folder: it has no config.json.",
            NOTHING_TRAINED_MESSAGE,
            f"It holds an adapter: name its model with --base DIR, and --set adapter={base}"
            if adapter
            else "Name one with --base DIR",
        )
    recipe = msgspec.structs.replace(recipe, base=str(base.absolute()))
    if not recipe.adapter:
        return recipe
    folder = Path(recipe.adapter).absolute()
    recipe = msgspec.structs.replace(recipe, adapter=str(folder))
    return recipe if recipe.full else _with_adapter_shape(recipe, folder, set_)


def parent_policy(home: Home, recipe: SftRecipe) -> str:
    """The policy that a filled recipe begins from; empty for a model that is none of the home's."""
    folder = Path(recipe.adapter or recipe.base)
    inside = folder.resolve().parent == policies_folder(home).resolve()
    return folder.name if inside and is_policy_name(folder.name) else ""


def base_hashes_of(home: Home | None, recipe: SftRecipe) -> tuple[str, str]:
    """Content of the base model and of the adapter (empty without one) of a filled recipe.

    home: where hashes of large files are remembered. Raises HoustonError where they are not there.
    """
    base = policy_files.model_hash(Path(recipe.base), home)
    if not recipe.adapter:
        return base, ""
    files = [Path(recipe.adapter) / name for name in ADAPTER_FILES]
    return base, policy_files.combine_hashes(policy_files.hash_files(files, home))


def check_base_unchanged(folder: RunFolder) -> None:
    """Raise HoustonError unless a run's base and adapter are what they were as it was asked for:
    its checkpoints, and the policy's lineage, are of those. Older runs have not noted it."""
    spec, recipe = folder.spec, folder.spec.recipe
    if not spec.base_hash:
        return
    try:
        hashes = base_hashes_of(Home(Path(spec.home)) if spec.home else None, recipe)
    except HoustonError as problem:
        raise _base_changed_error(folder, problem.cause) from problem
    if hashes[0] != spec.base_hash:
        raise _base_changed_error(
            folder, f"{recipe.base} is no longer the model that this run started with."
        )
    if hashes[1] != spec.adapter_hash:
        raise _base_changed_error(
            folder, f"{recipe.adapter} is no longer the adapter that this run started with."
        )


def _base_changed_error(folder: RunFolder, cause: str) -> HoustonError:
    return HoustonError(
        cause,
        f"Nothing was trained further. {folder.what_is_kept}",
        f"Next: restore what was there, and {folder.resume_command}; or start a new run",
    )


def _base_of_data(manifest: dict[str, Any]) -> str:
    bases = manifest.get("base") or []
    (only,) = bases if len(bases) == 1 else ("",)
    if only in _PACKAGED_MODEL_NAMES and (folder := model_path()):
        return str(folder)
    if only and Path(only).is_dir():
        return str(only)
    names = f"names {', '.join(bases)}" if bases else "names none"
    raise HoustonError(
        f"The model to train is not clear: the manifest of the data {names}.",
        NOTHING_TRAINED_MESSAGE,
        "Name its folder with --base DIR",
    )


class _AdapterConfig(msgspec.Struct):
    """What PEFT writes of a LoRA adapter."""

    r: int
    lora_alpha: int
    target_modules: str | list[str]
    peft_type: str = "LORA"


def _with_adapter_shape(recipe: SftRecipe, folder: Path, set_: Collection[str]) -> SftRecipe:
    """With rank, scale and targets of the adapter that goes on: it has its shapes."""
    if other := sorted(ADAPTER_KEYS & set(set_)):
        raise UsageError(
            f"{', '.join(other)} cannot be set: {folder} keeps its own.",
            NOTHING_TRAINED_MESSAGE,
            "Leave it out, or train a new adapter from the model with --base DIR",
        )
    try:
        config = msgspec.json.decode((folder / ADAPTER_FILES[0]).read_bytes(), type=_AdapterConfig)
    except (OSError, msgspec.DecodeError) as problem:
        raise HoustonError(
            f"{folder} holds no LoRA adapter to continue from: {problem}.", NOTHING_TRAINED_MESSAGE
        ) from None
    if config.peft_type != "LORA":
        raise HoustonError(
            f"{folder} holds an adapter of kind {config.peft_type}.", NOTHING_TRAINED_MESSAGE
        )
    targets = config.target_modules
    return msgspec.structs.replace(
        recipe,
        lora_rank=config.r,
        lora_alpha=config.lora_alpha,
        lora_targets=targets if isinstance(targets, str) else tuple(sorted(targets)),
    )


def register_if_daemon(folder: RunFolder) -> str:
    """Register what came out, as the process of the run does it: returns `policy@N`, or nothing
    where no daemon runs. Raises HoustonError where the daemon refuses it.
    """
    home = folder.spec.home
    if not home:
        return ""
    loaded = load_configuration(home, os.environ.get("HOUSTON_CONFIG"))
    return register_run(loaded, folder) if find_running_daemon(loaded.home) is not None else ""


def conclude_run(folder: RunFolder, writer: ProgressWriter) -> None:
    """What comes after training: the policy registered, the run's end said. Raises HoustonError."""
    policy = register_if_daemon(folder)
    writer.set_state("finished", f"{policy or 'It'} is stored in {folder.output}.")
    writer.log(f"finished {policy}".strip())
    tell_run_ended(folder, "finished")


def report_run_state(
    loaded: LoadedConfiguration, run: str, state: RunState, reason: str = ""
) -> None:
    """How a run stands that the daemon did not start; nothing where no daemon runs."""
    if find_running_daemon(loaded.home) is None:
        return
    from houston_shared.control_client import send_with_retry
    from houston_shared.control_messages import ReportTrainingState

    message = ReportTrainingState(run=run, state=state, reason=reason)
    send_with_retry(loaded.home, message, "It may have been recorded.", "houston train list")


def tell_run_ended(folder: RunFolder, state: RunState, reason: str = "") -> None:
    """The same, from the trainer itself: who started it may be gone."""
    spec = folder.spec
    if not spec.beside:
        return
    try:
        report_run_state(
            load_configuration(spec.home, os.environ.get("HOUSTON_CONFIG")),
            spec.run,
            state,
            reason,
        )
    except HoustonError as problem:  # what was trained is none the worse for it
        ProgressWriter(folder.path).log(f"the daemon was not notified: {problem}")


def register_run(loaded: LoadedConfiguration, folder: RunFolder) -> str:
    """The policy that this run became; asked again, the same one. Raises HoustonError."""
    spec, result = folder.spec, folder.result
    return register_policy(
        loaded,
        folder.output,
        Path(spec.recipe.base),
        name=spec.name,
        base_hash=spec.base_hash,
        run=spec.run,
        parent=spec.parent,
        manifest=data_manifest_hash(folder.path) or data_manifest_hash(folder.data),
        recipe=msgspec.to_builtins(spec.recipe),
        metrics=msgspec.to_builtins(result) if result else {},
    ).name


def data_manifest_hash(data: Path) -> str:
    """SHA-256 of the manifest of the data; empty where there is none."""
    file = data / "manifest.json"
    return policy_files.hash_file(file) if file.is_file() else ""
