"""The folder of a training run of any kind: its lock, checkpoints, and what comes out.

One trainer at a time holds the folder (a file lock). What was asked is the kind's own. It imports
no torch, so that commands and the daemon can use it.
"""

import fcntl
import math
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from houston_daemon.training.runs import run_checkpoints
from houston_shared import atomic_file
from houston_shared.errors import Busy, HoustonError

LOCK_NAME = "trainer.lock"
Spec = TypeVar("Spec")
PATIENCE_SECONDS = 2.0
"""A killed trainer may be a moment from being gone, and who only looks holds it as briefly."""


def new_run_name(kind: str) -> str:
    """The id of a new run: kind, time in UTC, and what keeps two of a second apart."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def take_folder(folder: Path, patience: float = PATIENCE_SECONDS) -> int:
    """Have the folder for as long as the descriptor that this returns is open.

    Raises HoustonError where somebody else has it.
    """
    end = time.monotonic() + patience
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(lock)
                raise Busy(
                    f"A trainer is already at work in {folder}.",
                    "Nothing was changed in it.",
                    f"houston train show {folder.name}",
                ) from None
        time.sleep(0.05)


def require_no_trainer(folder: Path, patience: float = 0.0) -> None:
    """Raise HoustonError where a trainer is at work in the folder, or nobody can tell.

    patience: seconds in which one that was killed may be gone.
    """
    try:
        if (folder / LOCK_NAME).exists():
            os.close(take_folder(folder, patience))
    except OSError as problem:  # of another user, or on a disk that went away
        raise HoustonError(
            f"It is unknown whether a trainer is at work in {folder}: {problem}.",
            "Nothing was changed in it.",
        ) from problem


class _TrainingRecipe(Protocol):
    @property
    def base(self) -> str:
        """Folder of the base model."""

    @property
    def device(self) -> str:
        """Where it is trained."""


Recipe = TypeVar("Recipe", bound=_TrainingRecipe)


class TrainingRunSpec(msgspec.Struct, Generic[Recipe], frozen=True, kw_only=True):
    """`recipe.json` of every kind of run that the daemon queues: all that its trainer needs."""

    run: str
    """Its id, the folder's name."""
    name: str
    """Family of the policy that comes out: `NAME@n`."""
    home: str
    """The daemon's."""
    recipe: Recipe
    """With the base model filled in, and what else is found out before it starts."""
    base_hash: str
    """What the base model is, by content, as the run was asked for."""
    gpus: int = 0
    """That were asked for; none: it trains on the CPU."""
    share_gpus: bool = False
    """Whether it may have one that an engine uses."""


class TrainingRunFolder:
    """Paths of a run."""

    train_command = "houston train"
    """The command that starts a run of this kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.output = path / "output"

    def write_spec(self, spec: msgspec.Struct) -> None:
        """Write what is asked; the folder may be there already."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(spec), indent=1)
        atomic_file.write_atomically(self.path / "recipe.json", text)

    def _read_spec(self, kind: type[Spec], what: str) -> Spec:
        """What was asked. what: the kind of training, in words. Raises HoustonError where this is
        no folder of such a run."""
        try:
            return msgspec.json.decode((self.path / "recipe.json").read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as problem:
            raise HoustonError(
                f"{self.path} is not the folder of {what}: {problem}.",
                "Nothing was trained.",
                "houston train list",
            ) from None

    def write_result(self, result: Any) -> None:
        """Keep the figures of a finished run."""
        text = msgspec.json.format(msgspec.json.encode(result), indent=1)
        atomic_file.write_atomically(self.path / "result.json", text)

    @property
    def resume_command(self) -> str:
        """The command that goes on with it."""
        return f"{self.train_command} --resume {self.path.name}"

    @property
    def what_is_kept(self) -> str:
        """Which checkpoint is the last whole one, in words."""
        newest = run_checkpoints.newest_checkpoint(self.checkpoints)
        return (
            f"The last complete checkpoint is {newest}."
            if newest
            else "There is no checkpoint yet."
        )


def require_finite(
    folder: TrainingRunFolder, step: int, logs: Mapping[str, float], lower_rates: str
) -> None:
    """Raise HoustonError where loss or gradient of an optimizer step is not a number. Called before
    the step can be saved, so that every checkpoint is sound.

    logs: what transformers logs of it. lower_rates: settings of a new run, in words.
    """
    loss, norm = logs["loss"], logs.get("grad_norm", 0.0)
    if math.isfinite(loss) and math.isfinite(norm):
        return
    what = "gradient" if math.isfinite(loss) else "loss"
    rate = logs.get("learning_rate", math.nan)
    raise HoustonError(
        f"The {what} of step {step} is not a number"
        f" (loss {loss}, gradient norm {norm}, rate {rate:.3g}).",
        f"Training ended there. {folder.what_is_kept}",
        f"Next: a new run with lower rates, {lower_rates}",
    )
