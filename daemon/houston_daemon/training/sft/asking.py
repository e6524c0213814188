"""From what a person asked to the folder of a run: recipe, base, data. It imports no torch."""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.export import folder as exporting
from houston_daemon.training.export.split import read_held_out
from houston_daemon.training.policies import families
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.rows.ruled import RulesFrom
from houston_daemon.training.sft import (
    beginning,
    launch,
    progress,
    recipe,
    run_folder,
    sharding,
    turn,
)
from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_daemon.training.sft.run_folder import Asked, RunFolder
from houston_shared.config import Loaded
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.lock import holder
from houston_shared.policy_names import (
    FAMILY,
    check_family,
    is_policy,
    is_run,
    parse,
    training_folder,
)
from houston_shared.store.queries import policies, training_runs
from houston_shared.store.reader import Reader

FORMAT = "trl"
"""Which of the formats of `houston export` it trains on."""
BEGUN = "."
"""Begins the name of a run's folder until all of it is there."""
BEGUN_SECONDS = 60.0
"""What a command needs at most from making such a folder to holding it."""
CHANGEABLE = {
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


class Wanted(NamedTuple):
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


def new(loaded: Loaded, wanted: Wanted) -> RunFolder:
    """Make the folder of a new run, with its data. Raises HoustonError; nothing then stays."""
    found = recipe.load(wanted.recipe, list(wanted.settings))
    if wanted.name:
        check_family(wanted.name)
    if bool(wanted.rollouts) == bool(wanted.data):
        raise HoustonError(
            "Name rollouts, or exported data with --data DIR.",
            NOT_TRAINED,
            code=ExitCode.USAGE,
        )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    run = f"sft-{stamp}-{secrets.token_hex(2)}"
    named = found.base if is_policy(found.base) else ""
    found = beginning.of_policy(loaded.home, found)
    _tidy(loaded)
    beside = RunFolder(training_folder(loaded.home) / f"{BEGUN}{run}")
    beside.path.mkdir(mode=0o700, parents=True)
    held = turn.take(beside.path)
    try:
        rollouts = _data(loaded, wanted, found.base, beside)
        manifest = run_folder.manifest(beside.data)
        found = _filled(found, manifest, wanted.settings)
        _check(found, manifest)
        parent = named or beginning.parent(loaded.home, found)
        family = wanted.name or (parse(parent).family if parent else FAMILY)
        base_hash, adapter_hash = beginning.hashes(loaded.home, found)
        _may_become(loaded, family, found.base, base_hash, parent)
        beside.ask(
            Asked(
                run=run,
                name=family,
                parent=parent,
                home=str(loaded.home.path),
                recipe=found,
                base_hash=base_hash,
                adapter_hash=adapter_hash,
                rollouts=rollouts,
            )
        )
        made = run_folder.of(loaded.home, run)
        beside.path.replace(made.path)
    except BaseException:
        shutil.rmtree(beside.path)
        raise
    finally:
        os.close(held)
    return made


def _tidy(loaded: Loaded) -> None:
    """Remove what commands that were killed have begun: nobody would find the rows in it."""
    for left in training_folder(loaded.home).glob(f"{BEGUN}*"):
        try:
            if time.time() - left.stat().st_mtime > BEGUN_SECONDS:
                turn.check(left)
                shutil.rmtree(left)
        except (OSError, HoustonError):  # another command's, or gone meanwhile
            continue


def _may_become(loaded: Loaded, family: str, base: str, base_hash: str, parent: str) -> None:
    """Raise HoustonError for what could not be registered after the last step."""
    if not loaded.home.database.exists():
        return
    with Reader(loaded.home) as reader:
        known = reader.run(policies.every())
    families.check(known, family, base, base_hash, parent, NOT_TRAINED)


def renamed(loaded: Loaded, asked: Asked, family: str) -> Asked:
    """With another family of what comes out. Raises HoustonError where it came out."""
    check_family(family)
    if loaded.home.database.exists():
        with Reader(loaded.home) as reader:
            came = reader.run(policies.of_run(asked.run))
        if came is not None:
            raise HoustonError(f"{asked.run} has become {came.name}, whose name stays.")
    return msgspec.structs.replace(asked, name=family)


def again(loaded: Loaded, run: str, settings: Sequence[str], name: str = "") -> Asked:
    """What is asked of a run that goes on; nothing is written yet.

    name: family of what comes out, where it is to be another. Raises HoustonError where there is
    no such run, it has finished, or the daemon or somebody else has it.
    """
    if not is_run(run):  # it names a folder of the home, and nothing else
        raise HoustonError(
            f"{run[:80]!r} is no training run.", NOT_TRAINED, "houston train list", ExitCode.USAGE
        )
    made = run_folder.of(loaded.home, run)
    asked = made.asked
    now = progress.read(made.path)
    if now is not None and now.state == "finished":
        raise HoustonError(f"{run} has finished: {made.output}.", next=f"houston train show {run}")
    _check_daemon(loaded, run)
    turn.check(made.path)
    asked = renamed(loaded, asked, name) if name else asked
    if asked.base_hash:
        _may_become(loaded, asked.name, asked.recipe.base, asked.base_hash, asked.parent)
    return msgspec.structs.replace(asked, recipe=_changed(made, settings))


def _changed(made: RunFolder, settings: Sequence[str]) -> Recipe:
    """The recipe of a run that goes on. Raises HoustonError for what would make it another run, or
    leave its checkpoint unread."""
    others = {setting.partition("=")[0] for setting in settings} - CHANGEABLE
    if others:
        raise HoustonError(
            f"{', '.join(sorted(others))} cannot change in a run that goes on.",
            NOT_TRAINED,
            f"Start a new one, or change {', '.join(sorted(CHANGEABLE))}",
            ExitCode.USAGE,
        )
    changed = recipe.changed(made.asked.recipe, list(settings))
    if changed.accelerate:
        changed = msgspec.structs.replace(
            changed, accelerate=launch.configuration(changed.accelerate)
        )
    sharding.check_change(made, changed)
    return changed


def _check_daemon(loaded: Loaded, run: str) -> None:
    """Raise HoustonError for a run that is the daemon's: it goes on by itself, as it was asked."""
    if holder(loaded.home) is None:
        return
    with Reader(loaded.home) as reader:
        known = reader.run(training_runs.one(run))
    if known is None or known.alone or known.state in ("failed", "cancelled"):
        return
    raise HoustonError(
        f"The daemon has {run} already ({known.state}).",
        "Nothing was changed.",
        f"houston train show {run}, or train cancel {run} first",
        ExitCode.BUSY,
    )


def _data(loaded: Loaded, wanted: Wanted, base: str, to: RunFolder) -> tuple[str, ...]:
    """Export rollouts into the run's folder, or point at data that was exported.

    Rows are made for the model that is trained, where it was named.
    """
    if wanted.data is not None:
        if not wanted.data.is_dir():
            raise HoustonError(f"There is no folder {wanted.data}.", NOT_TRAINED)
        to.data.symlink_to(wanted.data.absolute(), target_is_directory=True)
        return ()
    ids = tuple(wanted.rollouts)
    rows = wanted.rows if wanted.rows.tokenizer else replace(wanted.rows, tokenizer=base)
    options = exporting.Asked(
        rollouts=ids,
        rows=rows,
        held_out=read_held_out(list(wanted.held_out), 0),
        rules=wanted.rules,
    )
    exporting.export(loaded.home, options, to.data)
    return ids


def _filled(found: Recipe, manifest: dict[str, Any], settings: Collection[str]) -> Recipe:
    """With paths that hold wherever the trainer runs.

    Raises HoustonError without a base, and for rows of another form.
    """
    if manifest.get("format", FORMAT) != FORMAT:
        raise HoustonError(
            f"The rows of the data are written for {manifest.get('format')}, not as token ids.",
            NOT_TRAINED,
            f"Export again with --format {FORMAT}",
        )
    keys = {setting.partition("=")[0].strip() for setting in settings}
    accelerate = launch.configuration(found.accelerate) if found.accelerate else ""
    found = msgspec.structs.replace(found, accelerate=accelerate)
    return beginning.filled(found, manifest, keys)


def _check(found: Recipe, manifest: dict[str, Any]) -> None:
    """Raises HoustonError for ids of another tokenizer, and for copies of copies of rows."""
    tokenizers = manifest.get("tokenizers") or {}
    file = Path(found.base) / "tokenizer.json"
    if tokenizers and file.is_file():
        mine = hashlib.sha256(file.read_bytes()).hexdigest()
        if set(tokenizers.values()) != {mine}:
            raise HoustonError(
                f"The ids of the data belong to another tokenizer than {file}.",
                f"{NOT_TRAINED} The data's: {', '.join(tokenizers)}.",
                "Export again with --tokenizer, or name the model with --base",
            )
    copied = manifest.get("recipe") or {}
    twice = (copied.get("react", 1), copied.get("summary", 1)) != (1, 1)
    if twice and (found.upsample.react, found.upsample.summary) != (1, 1):
        raise ConfigurationError(
            f"The data hold copies of rows already (recipe {copied.get('name')}), and the recipe"
            " of training asks for more.",
            NOT_TRAINED,
            "--set upsample.react=1 --set upsample.summary=1",
        )
