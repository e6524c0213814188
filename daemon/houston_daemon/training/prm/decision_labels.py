"""Labels of decisions as a file: what each was worth, from 0 to 1, by whom and why.

`houston label` writes them and `houston train prm` reads them, a JSON object a line. The split into
what is trained and what is measured on goes by task. It imports no torch.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import atomic_file
from houston_shared.errors import HoustonError, unreadable_as_error

LabelSource = Literal["human", "judge", "rule"]
"""Who says what a decision is worth; a rule says it of what is no action."""


class DecisionLabel(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of labels. Further fields are let be."""

    rollout: str
    step: int
    task: str
    """Name of the task."""
    text: str
    """As `prompts.decision_text` tells it."""
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    source: LabelSource
    reason: str = ""
    sound: bool = True
    """Whether the decision is an action; what is none is worth 0, and no model has to learn it."""
    attempt: int = 1
    """Which attempt at the step it was; another may have replaced it since."""
    rubric: str = ""
    """SHA-256 of the rubric by which a judge scored it, hex; empty where none did."""
    by: str = ""
    """Who: a person's name, or the judge's engine."""


def read_labels(file: Path) -> list[DecisionLabel]:
    """All labels of a file, in order. Raises HoustonError with the number of a broken line."""
    with unreadable_as_error(file, NOTHING_TRAINED_MESSAGE):
        lines = file.read_bytes().splitlines()
    labels = []
    for number, line in enumerate(lines, 1):
        try:
            labels.append(msgspec.json.decode(line, type=DecisionLabel))
        except msgspec.DecodeError as problem:
            raise HoustonError(
                f"Line {number} of {file} is not a label: {problem}.",
                NOTHING_TRAINED_MESSAGE,
                "houston label R… --out FILE",
            ) from None
    return labels


def write_labels(file: Path, labels: Sequence[DecisionLabel]) -> None:
    """Write a whole file of labels, or leave what was there. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(msgspec.json.encode(label) + b"\n" for label in labels)
    atomic_file.write_atomically(file, lines)


class LabelSplit(NamedTuple):
    """Labels that are trained, and others to measure on."""

    train: list[DecisionLabel]
    held_out: list[DecisionLabel]


def split_labels(labels: Sequence[DecisionLabel], share: float, seed: int) -> LabelSplit:
    """By task, drawn by the seed: a share of the tasks is held out with all of their labels, of
    two tasks or more at least one.

    Decisions that are no action are left out. Raises HoustonError where nothing is left to train.
    """
    sound = [label for label in labels if label.sound]
    tasks = sorted({label.task for label in sound})
    random.Random(seed).shuffle(tasks)
    count = max(1, round(share * len(tasks))) if share and len(tasks) > 1 else 0
    held_out = set(tasks[:count])
    split = LabelSplit(
        [label for label in sound if label.task not in held_out],
        [label for label in sound if label.task in held_out],
    )
    if not split.train:
        raise HoustonError(
            f"None of the {len(labels)} labels can be trained on"
            f" ({len(sound)} of actions, of {len(tasks)} tasks).",
            NOTHING_TRAINED_MESSAGE,
            "houston label R… --out FILE, over more rollouts",
        )
    return split
