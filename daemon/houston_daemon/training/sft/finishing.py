"""The end of a run: what came out becomes a policy of its home, where a daemon runs.

It imports no torch. What a policy is and where its files go is `training.policies`' affair.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from houston_daemon.training.policies.registering import register
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.config import Loaded, load
from houston_shared.errors import HoustonError
from houston_shared.lock import holder
from houston_shared.store.bodies_training import RunState


def finish(folder: RunFolder) -> str:
    """Register what came out, as the process of the run does it: returns `policy@N`, or nothing
    where no daemon runs. Raises HoustonError where the daemon refuses it.
    """
    home = folder.asked.home
    if not home:
        return ""
    loaded = load(home, os.environ.get("HOUSTON_CONFIG"))
    return registered(loaded, folder) if holder(loaded.home) is not None else ""


def tell(loaded: Loaded, run: str, state: RunState, reason: str = "") -> None:
    """How a run stands that the daemon did not start; nothing where no daemon runs."""
    if holder(loaded.home) is None:
        return
    from houston_shared.sending import send
    from houston_shared.wire_training import TrainingMoved

    message = TrainingMoved(run=run, state=state, reason=reason)
    send(loaded.home, message, "It may have been noted.", "houston train list")


def ended(folder: RunFolder, state: RunState, reason: str = "") -> None:
    """The same, from the trainer itself: who started it may be gone."""
    asked = folder.asked
    if not asked.beside:
        return
    try:
        tell(load(asked.home, os.environ.get("HOUSTON_CONFIG")), asked.run, state, reason)
    except HoustonError as problem:  # what was trained is none the worse for it
        Writer(folder.path).say(f"the daemon was not told: {problem}")


def registered(loaded: Loaded, folder: RunFolder) -> str:
    """The policy that this run became; asked again, the same one. Raises HoustonError."""
    asked, result = folder.asked, folder.result
    return register(
        loaded,
        folder.output,
        Path(asked.recipe.base),
        name=asked.name,
        base_hash=asked.base_hash,
        run=asked.run,
        parent=asked.parent,
        manifest=manifest_hash(folder.path) or manifest_hash(folder.data),
        recipe=msgspec.to_builtins(asked.recipe),
        metrics=msgspec.to_builtins(result) if result else {},
    ).name


def manifest_hash(data: Path) -> str:
    """SHA-256 of the manifest of the data; empty where there is none."""
    file = data / "manifest.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
