"""Policies and training runs as files of the home: names, folders, and how far a run has come.

`policy@7` in its parts, and what may be a name, since names are folders too. The trainer replaces
`progress.json` of its run whole, about once a second; daemon and commands read it. What it does not
say is None. What the journal holds of policies and runs stands in `store.policy_queries`.
"""

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_shared.atomic_file import read_json_file
from houston_shared.errors import HoustonError, NotFound, UsageError, abbreviated_names
from houston_shared.home import Home
from houston_shared.times_and_counts import format_duration, join_first

DEFAULT_FAMILY = "policy"
"""What a policy is called where nobody named it."""
BASE_MODEL = "base"
"""Stands for an engine's own model where a policy is asked for."""
_FAMILY_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_POLICY_PATTERN = re.compile(rf"({_FAMILY_PATTERN.pattern})@([1-9][0-9]{{0,8}})")
_RUN_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,79}")
_VERSION_PATTERN = re.compile(rf"({_RUN_PATTERN.pattern}), update ([0-9]{{1,9}})")


class PolicyName(NamedTuple):
    """`policy@7` in its parts."""

    family: str
    number: int
    """1 is the base model."""

    def __str__(self) -> str:
        return f"{self.family}@{self.number}"


def parse_policy_name(text: str) -> PolicyName:
    """The parts of a name. Raises HoustonError (usage) for what is none."""
    match = _POLICY_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text[:80]!r} is not a policy name like policy@2.", next="houston policy list"
        )
    return PolicyName(match[1], int(match[2]))


def is_policy_name(text: str) -> bool:
    """Whether this reads as the name of a policy."""
    return _POLICY_PATTERN.fullmatch(text) is not None


def check_family_name(text: str) -> str:
    """A family's name as it is. Raises HoustonError (usage)."""
    if not _FAMILY_PATTERN.fullmatch(text) or text == BASE_MODEL:
        raise UsageError(
            f"{text[:80]!r} cannot name a policy: letters, digits, `.`, `_` and `-`, at most 48; "
            f"`{BASE_MODEL}` is the engine's own model."
        )
    return text


def is_run_name(text: str) -> bool:
    """Whether this can name a training run: it is the name of a folder, too."""
    return _RUN_PATTERN.fullmatch(text) is not None


class RunVersion(NamedTuple):
    """Which version of a reinforcement learning run a policy is. A run has several versions; only
    the last one is registered as its result."""

    run: str
    update: int
    """The update that began with it: what was trained before, it has learned."""

    @property
    def note(self) -> str:
        """What its registration says of that."""
        return f"{self.run}, update {self.update}"


def parse_version_note(note: str) -> RunVersion | None:
    """What the note of a registration says; None where it is another one."""
    match = _VERSION_PATTERN.fullmatch(note)
    return RunVersion(match[1], int(match[2])) if match else None


def missing_run_error(run: str, effect: str) -> HoustonError:
    """There is no training run of that name. effect: what did not happen."""
    cause = f"There is no training run {run[:80]!r}."
    return NotFound(cause, effect, "houston train list")


def full_run_name(home: Home, name: str) -> str:
    """The training run that `name` stands for: its name, or a unique beginning or else ending of
    one. Returns `name` itself where there is none; the caller then refuses it. Raises HoustonError
    (2) naming the candidates."""
    folder = training_folder(home)
    if not name or (is_run_name(name) and (folder / name).is_dir()):
        return name
    runs = sorted(each.name for each in folder.glob("*") if is_run_name(each.name))
    matching, _ = abbreviated_names(name, runs)
    if len(matching) > 1:
        raise UsageError(
            f"{name!r} matches several training runs: {join_first(matching, 3)}.",
            "Nothing was done.",
            "houston train list",
        )
    return matching[0] if matching else name


def policies_folder(home: Home) -> Path:
    """Where weights of policies lie."""
    return home.path / "policies"


def training_folder(home: Home) -> Path:
    """Where training runs have their folders: data, checkpoints, progress.json, log.txt."""
    return home.path / "training"


MESSAGE_CHARACTERS = 600
"""Characters of the trainer's line that are shown."""


class TrainingProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One reading."""

    state: str = ""
    """`queued`, `running`, `finished`, `failed` or `cancelled`, in the trainer's own words."""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    lr: float | None = None
    tokens: int = 0
    tokens_per_second: float | None = None
    eta_seconds: float | None = None
    epoch: float = 0.0
    grad_norm: float | None = None
    memory_bytes: int = 0
    at: str = ""
    message: str = ""
    """One line for a person: what is being done, or why it ended."""
    alone: bool = False
    """Whether a person's command started the trainer that says this, and no daemon."""


def training_run_folder(home: Home, run: str) -> Path:
    """Where a run has its data, checkpoints and words."""
    return training_folder(home) / run


def read_training_progress(home: Home, run: str) -> TrainingProgress | None:
    """The last reading; None where there is none, or it cannot be read."""
    return read_json_file(training_run_folder(home, run) / "progress.json", TrainingProgress)


def describe_training_progress(progress: TrainingProgress | None) -> str:
    """A reading in one line: `step 12 of 40, loss 1.2345, 2,310 tokens/s, 3 min left`."""
    if progress is None:
        return "has reported nothing yet"
    parts = [f"step {progress.step:,} of {progress.steps:,}"] if progress.steps else []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    going = progress.state in ("", "queued", "running")
    if going and progress.eta_seconds is not None and progress.step < progress.steps:
        parts.append(f"{format_duration(progress.eta_seconds)} left")
    if progress.message:
        parts.append(progress.message[:MESSAGE_CHARACTERS])
    return ", ".join(parts) or "has begun"
