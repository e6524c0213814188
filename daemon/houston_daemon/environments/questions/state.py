"""What a rollout that answers a question must know again after a restart: one file on the host.

The question as it was when the rollout began, and every answer by its call, so that an answer
whose result was not stored is neither lost nor scored twice.
"""

from pathlib import Path

import msgspec

from houston_daemon.environments.questions.observations import Answered
from houston_daemon.environments.questions.question_set import Question
from houston_shared import synced_file
from houston_shared.records import RolloutSpec
from houston_shared.terminal_folder import rollout_folder


class State(msgspec.Struct):
    """Everything in the file."""

    question: Question
    index: str = ""
    """File name of the corpus's index, where there is a corpus."""
    answers: dict[str, Answered] = {}
    """Call → what was said to it."""
    answered_at: int = 0
    """Step of the last answer; a step cannot give a second one."""


def state_file(spec: RolloutSpec, rollout: str, environment: str) -> Path:
    """Where a rollout on the host of `spec` has its file."""
    return rollout_folder(Path(spec.host_root), rollout) / f"{environment}.json"


def load(file: Path) -> State | None:
    """The state, or None where there is none yet. Raises OSError, msgspec.MsgspecError."""
    return msgspec.json.decode(file.read_bytes(), type=State) if file.is_file() else None


def save(file: Path, state: State) -> None:
    """Keep it through any kill. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    synced_file.write(file, msgspec.json.encode(state))
