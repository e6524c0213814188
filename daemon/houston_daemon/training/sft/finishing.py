"""The end of a run: what came out becomes a policy of its home, where a daemon runs.

It imports no torch. What a policy is and where its files go is `training.policies`' affair.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from houston_daemon.training.policies import register
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.config import Loaded, load
from houston_shared.lock import holder


def finish(folder: RunFolder) -> str:
    """Register what came out, as the process of the run does it: returns `policy@N`, or nothing
    where no daemon runs. Raises HoustonError where the daemon refuses it.
    """
    home = folder.asked.home
    if not home:
        return ""
    loaded = load(home, os.environ.get("HOUSTON_CONFIG"))
    return registered(loaded, folder) if holder(loaded.home) is not None else ""


def registered(loaded: Loaded, folder: RunFolder) -> str:
    """The policy that this run became; asked again, the same one. Raises HoustonError."""
    asked, result = folder.asked, folder.result
    return register(
        loaded,
        folder.output,
        Path(asked.recipe.base),
        name=asked.name,
        run=asked.run,
        manifest=manifest_hash(folder.data),
        recipe=msgspec.to_builtins(asked.recipe),
        metrics=msgspec.to_builtins(result) if result else {},
    )


def manifest_hash(data: Path) -> str:
    """SHA-256 of the manifest of the data; empty where there is none."""
    file = data / "manifest.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
