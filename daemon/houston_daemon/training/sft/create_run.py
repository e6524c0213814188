"""Makes the folder of a training run from a person's request: recipe, base, data. Also resumes a
run.

It checks everything that can be checked before a trainer starts: whether the result could be
registered, whether data and model share a tokenizer, which settings a resumed run may change. A new
folder is complete or absent. It imports no torch.
"""

import os
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.export import export_run as exporting
from houston_daemon.training.export.held_out_split import parse_held_out
from houston_daemon.training.policies import policy_constraints
from houston_daemon.training.policies.policy_files import hash_file
from houston_daemon.training.rows.rule_verdicts import RulesFrom
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.runs import run_folder, run_progress
from houston_daemon.training.sft import run_policies, sft_launch, sft_recipe, sft_run_folder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import (
    Busy,
    ConfigurationError,
    HoustonError,
    NotFound,
    UsageError,
)
from houston_shared.home_lock import find_running_daemon
from houston_shared.policy_and_run_files import (
    DEFAULT_FAMILY,
    check_family_name,
    is_policy_name,
    is_run_name,
    missing_run_error,
    parse_policy_name,
    training_folder,
)
from houston_shared.sample_roles import ROW_ROLES, parse_row_roles
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader

DATA_FORMAT = "trl"
"""Which of the formats of `houston export` it trains on."""
UNFINISHED_PREFIX = "."
"""Begins the name of a run's folder until all of it is there."""
CREATION_SECONDS = 60.0
"""What a command needs at most from making such a folder to holding it."""
CHANGEABLE_SETTINGS = {
    "pack_tokens",
    "packing",
    "gradient_checkpointing",
    "check_memory",
    "save_steps",
    "save_minutes",
    "keep_checkpoints",
    "device",
    "accelerate",
}
"""Settings that a resumed run may have otherwise: they change speed and memory, not results."""


class TrainingRequest(NamedTuple):
    """What the command line said."""

    rollouts: Sequence[str]
    """Whole ids."""
    data: Path | None
    held_out: Sequence[str]
    rows: RowOptions
    recipe: str
    settings: Sequence[str]
    name: str
    """Family of what comes out; empty for that of the policy that it goes on from."""
    rules: RulesFrom = "run"
    """Of rollouts: whether rules are run for their rows."""


def create_run_folder(loaded: LoadedConfiguration, request: TrainingRequest) -> RunFolder:
    """Make the folder of a new run, with its data. Raises HoustonError; nothing then stays."""
    recipe = sft_recipe.load_recipe(request.recipe, list(request.settings))
    if request.name:
        check_family_name(request.name)
    if bool(request.rollouts) == bool(request.data):
        raise UsageError(
            "Name rollouts, or exported data with --data DIR.", NOTHING_TRAINED_MESSAGE
        )
    run = run_folder.new_run_name("sft")
    parent = recipe.base if is_policy_name(recipe.base) else ""
    recipe = run_policies.with_policy_folders(loaded.home, recipe)
    _remove_unfinished_runs(loaded)
    unfinished = RunFolder(training_folder(loaded.home) / f"{UNFINISHED_PREFIX}{run}")
    unfinished.path.mkdir(mode=0o700, parents=True)
    lock = run_folder.take_folder(unfinished.path)
    try:
        unfinished.write_spec(_prepare_run(loaded, request, recipe, parent, run, unfinished))
        folder = sft_run_folder.folder_of_run(loaded.home, run)
        unfinished.path.replace(folder.path)
    except BaseException:
        shutil.rmtree(unfinished.path)
        raise
    finally:
        os.close(lock)
    return folder


def _prepare_run(
    loaded: LoadedConfiguration,
    request: TrainingRequest,
    recipe: SftRecipe,
    parent: str,
    run: str,
    folder: RunFolder,
) -> RunSpec:
    """Put the data into the folder, and fill in the recipe. parent: the policy that it names."""
    rollouts = _prepare_data(loaded, request, recipe, folder)
    manifest = folder.manifest
    recipe = _filled_recipe(recipe, manifest, request.settings)
    _check_data(recipe, manifest)
    parent = parent or run_policies.parent_policy(loaded.home, recipe)
    family = request.name or (parse_policy_name(parent).family if parent else DEFAULT_FAMILY)
    base_hash, adapter_hash = run_policies.base_hashes_of(loaded.home, recipe)
    _check_registrable(loaded, family, recipe.base, base_hash, parent)
    return RunSpec(
        run=run,
        name=family,
        parent=parent,
        home=str(loaded.home.path),
        recipe=recipe,
        base_hash=base_hash,
        adapter_hash=adapter_hash,
        rollouts=rollouts,
    )


def _remove_unfinished_runs(loaded: LoadedConfiguration) -> None:
    """Remove what commands that were killed have begun: nobody would find the rows in it."""
    for folder in training_folder(loaded.home).glob(f"{UNFINISHED_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime > CREATION_SECONDS:
                run_folder.require_no_trainer(folder)
                shutil.rmtree(folder)
        except (OSError, HoustonError):  # another command's, or gone meanwhile
            continue


def _check_registrable(
    loaded: LoadedConfiguration, family: str, base: str, base_hash: str, parent: str
) -> None:
    """Raise HoustonError for what could not be registered after the last step."""
    if not loaded.home.database.exists():
        return
    with Reader(loaded.home) as reader:
        policies = reader.run(policy_queries.list_policies())
    policy_constraints.check_family_lineage(
        policies, family, base, base_hash, parent, NOTHING_TRAINED_MESSAGE
    )


def rename_policy(loaded: LoadedConfiguration, spec: RunSpec, family: str) -> RunSpec:
    """The run with another policy family. Raises HoustonError where it has a policy already."""
    check_family_name(family)
    if loaded.home.database.exists():
        with Reader(loaded.home) as reader:
            policy = reader.run(policy_queries.find_policy_of_run(spec.run))
        if policy is not None:
            raise HoustonError(f"{spec.run} has already made {policy.name}; that name is fixed.")
    return msgspec.structs.replace(spec, name=family)


def request_resume(
    loaded: LoadedConfiguration, run: str, settings: Sequence[str], name: str = ""
) -> RunSpec:
    """The request for a run that resumes; nothing is written yet.

    name: a new family for the resulting policy; empty: as before. Raises HoustonError where there
    is no such run, it has finished, or the daemon or somebody else has it.
    """
    if not is_run_name(run):  # it names a folder of the home, and nothing else
        raise missing_run_error(run, NOTHING_TRAINED_MESSAGE)
    folder = sft_run_folder.folder_of_run(loaded.home, run)
    spec = folder.spec
    progress = run_progress.read_progress(folder.path)
    if progress is not None and progress.state == "finished":
        raise HoustonError(
            f"{run} has finished: {folder.output}.", next=f"houston train show {run}"
        )
    check_not_daemon_run(loaded, run)
    run_folder.require_no_trainer(folder.path, run_folder.PATIENCE_SECONDS)
    spec = rename_policy(loaded, spec, name) if name else spec
    if spec.base_hash:
        _check_registrable(loaded, spec.name, spec.recipe.base, spec.base_hash, spec.parent)
    return msgspec.structs.replace(spec, recipe=_changed_settings(folder, settings))


def _changed_settings(folder: RunFolder, settings: Sequence[str]) -> SftRecipe:
    """The recipe of a run that goes on. Raises HoustonError for what would make it another run, or
    leave its checkpoint unread."""
    others = {setting.partition("=")[0] for setting in settings} - CHANGEABLE_SETTINGS
    if others:
        raise UsageError(
            f"{', '.join(sorted(others))} cannot change in a resumed run.",
            NOTHING_TRAINED_MESSAGE,
            f"Start a new one, or change {', '.join(sorted(CHANGEABLE_SETTINGS))}",
        )
    changed = sft_recipe.changed_recipe(folder.spec.recipe, list(settings))
    if changed.accelerate:
        changed = msgspec.structs.replace(
            changed, accelerate=sft_launch.accelerate_file(changed.accelerate)
        )
    sft_run_folder.check_kind_change(folder, changed)
    return changed


def check_not_daemon_run(loaded: LoadedConfiguration, run: str) -> None:
    """Raise HoustonError for a run that is the daemon's: it goes on by itself, as it was asked."""
    if find_running_daemon(loaded.home) is None:
        return
    with Reader(loaded.home) as reader:
        record = reader.run(policy_queries.find_training_run(run))
    if record is None or record.alone or record.state in ("failed", "cancelled"):
        return
    raise Busy(
        f"The daemon has {run} already ({record.state}).",
        "Nothing was changed.",
        f"houston train show {run}, or houston train cancel {run} first",
    )


def _prepare_data(
    loaded: LoadedConfiguration, request: TrainingRequest, recipe: SftRecipe, to: RunFolder
) -> tuple[str, ...]:
    """Export rollouts into the run's folder, or point at data that was exported.

    Rows are made for the model that is trained, where it was named.
    """
    if request.data is not None:
        if not request.data.is_dir():
            raise NotFound(f"There is no folder {request.data}.", NOTHING_TRAINED_MESSAGE)
        to.data.symlink_to(request.data.absolute(), target_is_directory=True)
        return ()
    ids = tuple(request.rollouts)
    rows = request.rows
    rows = rows if rows.tokenizer else replace(rows, tokenizer=recipe.base)
    if recipe.roles:
        rows = replace(rows, roles=parse_row_roles(recipe.roles))
    options = exporting.ExportRequest(
        rollouts=ids,
        rows=rows,
        held_out=parse_held_out(list(request.held_out), 0),
        rules=request.rules,
    )
    exporting.write_export(loaded.home, options, to.data)
    return ids


def _filled_recipe(
    recipe: SftRecipe, manifest: dict[str, Any], settings: Collection[str]
) -> SftRecipe:
    """With paths that hold wherever the trainer runs.

    Raises HoustonError without a base, and for rows of another form.
    """
    if manifest.get("format", DATA_FORMAT) != DATA_FORMAT:
        raise HoustonError(
            f"The rows of the data are written for {manifest.get('format')}, not as token ids.",
            NOTHING_TRAINED_MESSAGE,
            f"Export again with --format {DATA_FORMAT}",
        )
    keys = {setting.partition("=")[0].strip() for setting in settings}
    accelerate = sft_launch.accelerate_file(recipe.accelerate) if recipe.accelerate else ""
    recipe = msgspec.structs.replace(recipe, accelerate=accelerate)
    return run_policies.fill_recipe(recipe, manifest, keys)


def _check_data(recipe: SftRecipe, manifest: dict[str, Any]) -> None:
    """Raises HoustonError for ids of another tokenizer, and for copies of copies of rows."""
    tokenizers = manifest.get("tokenizers") or {}
    file = Path(recipe.base) / "tokenizer.json"
    if tokenizers and file.is_file():
        model_hash = hash_file(file)
        if set(tokenizers.values()) != {model_hash}:
            raise HoustonError(
                f"The ids of the data belong to another tokenizer than {file}.",
                f"{NOTHING_TRAINED_MESSAGE} The data's: {', '.join(tokenizers)}.",
                "Export again with --tokenizer, or name the model with --base",
            )
    roles = (manifest.get("options") or {}).get("roles", ROW_ROLES)
    if recipe.roles and set(recipe.roles) != set(roles):
        raise ConfigurationError(
            f"The recipe trains the roles {', '.join(recipe.roles)}, and the rows of the data are"
            f" made for {', '.join(roles)}.",
            NOTHING_TRAINED_MESSAGE,
            f"Export again with --roles {','.join(recipe.roles)}",
        )
    exported = manifest.get("recipe") or {}
    twice = (exported.get("react", 1), exported.get("summary", 1)) != (1, 1)
    if twice and (recipe.upsample.react, recipe.upsample.summary) != (1, 1):
        raise ConfigurationError(
            f"The data hold copies of rows already (recipe {exported.get('name')}), and the recipe"
            " of training asks for more.",
            NOTHING_TRAINED_MESSAGE,
            "--set upsample.react=1 --set upsample.summary=1",
        )
