"""How far a training run has come, as its folder in the home says: read by daemon and commands.

The trainer replaces `progress.json` whole, about once a second. What it does not say is None.
"""

from pathlib import Path

import msgspec

from houston_shared.home import Home
from houston_shared.policy_names import training_folder

MESSAGE = 600
"""Characters of the trainer's line that are shown."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
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


def folder(home: Home, run: str) -> Path:
    """Where a run has its data, checkpoints and words."""
    return training_folder(home) / run


def read(home: Home, run: str) -> Progress | None:
    """The last reading; None where there is none, or it cannot be read."""
    try:
        raw = (folder(home, run) / "progress.json").read_bytes()
        return msgspec.json.decode(raw, type=Progress)
    except (OSError, msgspec.DecodeError):
        return None


def words(one: Progress | None) -> str:
    """A reading in one line: `step 12 of 40, loss 1.2345, 2,310 tokens/s, 3 min left`."""
    if one is None:
        return "has said nothing yet"
    parts = [f"step {one.step:,} of {one.steps:,}"] if one.steps else []
    if one.loss is not None:
        parts.append(f"loss {one.loss:.4f}")
    if one.tokens_per_second is not None:
        parts.append(f"{one.tokens_per_second:,.0f} tokens/s")
    going = one.state in ("", "queued", "running")
    if going and one.eta_seconds is not None and one.step < one.steps:
        parts.append(f"{duration(one.eta_seconds)} left")
    if one.message:
        parts.append(one.message[:MESSAGE])
    return ", ".join(parts) or "has begun"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 90 else f"{minutes} min"
