"""Makes the folder of a run that trains a process reward model.

It checks labels, base model and name before a trainer starts. A new folder is complete or absent.
It imports no torch.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.engines.hub_downloads import fetched_engine, find_model
from houston_daemon.engines.local_model import model_path
from houston_daemon.training.policies import policy_constraints, policy_files
from houston_daemon.training.prm.decision_labels import read_labels, split_labels
from houston_daemon.training.prm.prm_recipe import PrmRecipe, load_prm_recipe
from houston_daemon.training.prm.prm_run_folder import PrmRunFolder, PrmRunSpec
from houston_daemon.training.runs.run_folder import new_run_name
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import UsageError
from houston_shared.policy_and_run_files import check_family_name, training_folder
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import RunKind

RUN_KIND: RunKind = "prm"
DEFAULT_PRM_FAMILY = "prm"


class PrmRequest(NamedTuple):
    """What the command line said."""

    labels: Path
    recipe: str
    settings: Sequence[str]
    base: str
    """Folder of a model; empty for the recipe's, or the default engine's."""
    name: str
    """Family of the policy."""


def create_prm_run(loaded: LoadedConfiguration, request: PrmRequest) -> PrmRunFolder:
    """Make the folder of a new run. Raises HoustonError; nothing then stays."""
    recipe = load_prm_recipe(request.recipe, list(request.settings))
    recipe = _with_base(loaded, recipe, request.base)
    split_labels(read_labels(request.labels), recipe.held_out, recipe.seed)
    check_family_name(request.name)
    base_hash = policy_files.model_hash(Path(recipe.base), loaded.home)
    with Reader(loaded.home) as reader:
        policies = reader.run(policy_queries.list_policies())
    policy_constraints.check_family_lineage(
        policies, request.name, recipe.base, base_hash, "", NOTHING_TRAINED_MESSAGE, scores=True
    )
    run = new_run_name("prm")
    folder = PrmRunFolder(training_folder(loaded.home) / run)
    folder.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.path.mkdir(mode=0o700)
    shutil.copyfile(request.labels, folder.labels)
    folder.write_spec(
        PrmRunSpec(
            run=run,
            name=request.name,
            home=str(loaded.home.path),
            recipe=recipe,
            base_hash=base_hash,
            labels_hash=policy_files.hash_file(folder.labels),
        )
    )
    return folder


def _with_base(loaded: LoadedConfiguration, recipe: PrmRecipe, named: str) -> PrmRecipe:
    """With the folder of the model that is given a head."""
    note, engine = command_output.print_note, loaded.config.default_engine
    base = named or recipe.base or fetched_engine(loaded, engine, note).model
    folder = model_path()
    if base:
        folder = find_model(base, "model", loaded.home, note, NOTHING_TRAINED_MESSAGE)
    if folder is None or not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder or 'The default engine'} is not a model folder: it has no config.json.",
            NOTHING_TRAINED_MESSAGE,
            "Name one with --base DIR",
        )
    return msgspec.structs.replace(recipe, base=str(folder.absolute()))
