"""What a rollout of http must know again after a restart: what was agreed on and done."""

from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.http.messages import Reset
from houston_shared import synced_file
from houston_shared.records import RolloutSpec
from houston_shared.terminal_folder import rollout_folder


class Taken(msgspec.Struct, frozen=True):
    """An action that the simulator did."""

    call: str
    """Id of the call; `STEP.INDEX`."""
    tool: str
    arguments: dict[str, Any]


class State(msgspec.Struct):
    """Everything in the file."""

    session: str
    start: Reset
    taken: list[Taken] = []
    done: bool = False
    """The simulator said that the episode is over."""
    finished: bool = False
    """The agent ended it."""


def state_file(spec: RolloutSpec, rollout: str) -> Path:
    """Where a rollout on the host of `spec` has its file."""
    return rollout_folder(Path(spec.host_root), rollout) / "http.json"


def load(file: Path) -> State | None:
    """The state, or None where there is none yet. Raises OSError, msgspec.MsgspecError."""
    return msgspec.json.decode(file.read_bytes(), type=State) if file.is_file() else None


def save(file: Path, state: State) -> None:
    """Keep it through any kill. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    synced_file.write(file, msgspec.json.encode(state))
