"""The small file in which an environment keeps, on the host, what a restarted worker must know."""

from pathlib import Path
from typing import TypeVar

import msgspec

from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.terminal_log_files import rollout_folder

StateT = TypeVar("StateT", bound=msgspec.Struct)


def state_file(spec: RolloutSpec, name: str, rollout: str = "") -> Path:
    """The rollout's file of this name on the host of `spec`; `spec`'s own rollout if none is
    named."""
    return rollout_folder(Path(spec.host_root), rollout or spec.rollout) / name


def load_state(file: Path, kind: type[StateT]) -> StateT | None:
    """The state, or None where there is none yet. Raises HoustonError where it cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind) if file.is_file() else None
    except (OSError, ValueError) as problem:
        raise HoustonError(
            f"{file} cannot be read: {problem}.", "The rollout cannot go on."
        ) from None


def save_state(file: Path, state: msgspec.Struct) -> None:
    """Keep it through any kill. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_atomically(file, msgspec.json.encode(state))
