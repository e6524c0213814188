"""What a training run has measured so far, read from its folder: curves, data, held-out loss.

Trainers write `metrics.jsonl` (a line for each optimizer step), `updates.jsonl` (a line for each
update of reinforcement learning), `held_out_before.json`, `result.json` and the manifest of the
rows. What is not there is None or empty: a run that has just begun, or is of an older version,
lacks some of it. Nothing is computed from rollouts here.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from houston_shared.atomic_file import read_json_file

METRICS_NAME = "metrics.jsonl"
UPDATES_NAME = "updates.jsonl"
HELD_OUT_BEFORE_NAME = "held_out_before.json"
VALIDATION_CURVE = "solved, validation"


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `metrics.jsonl`: one optimizer step."""

    step: int
    """From 1."""
    loss: float
    lr: float | None = None
    grad_norm: float | None = None
    tokens: int = 0
    """Computed in the whole run so far."""


class HeldOutBefore(msgspec.Struct, frozen=True, kw_only=True):
    """`held_out_before.json`: the loss on held-out rows before the first step."""

    loss: float
    rows: int


CurvePoint = tuple[float, float]


class Curve(NamedTuple):
    """One figure over a run."""

    name: str
    points: tuple[CurvePoint, ...]
    """Step or update, and the value there, in order; at least one."""
    unit: str = "step"
    """What is counted along it: `step` or `update`."""
    falls: bool | None = None
    """Whether less is better; None where neither is."""


class TrainingData(NamedTuple):
    """What a run was trained on."""

    rows: int
    rollouts: int
    trained: int
    unit: str
    """Of `trained`: `tokens`, `answers`, `labels`."""
    untrained: dict[str, int] = {}
    """Sampled and not trained, by why."""
    unjudged: int = 0
    """Of those that are trained: of steps that neither a judge nor a person judged."""


class HeldOutLoss(NamedTuple):
    """Loss on rows that were never trained."""

    before: float
    """Before the first step."""
    after: float | None
    """After the last; None before that."""
    rows: int


class ValidatedVersion(NamedTuple):
    """A version of a policy, measured on validation tasks."""

    update: int
    """Updates that it had been trained for."""
    policy: str
    """`policy@N`, or `base`."""
    solved: float
    """Share of the tasks."""
    tasks: int


class RunFigures(NamedTuple):
    """All that is known of a run's figures."""

    curves: tuple[Curve, ...] = ()
    data: TrainingData | None = None
    held_out: HeldOutLoss | None = None
    critic_gains: tuple[float, ...] = ()
    """Of a critic's critiques, mean over each update in which something was criticised."""
    validated: tuple[ValidatedVersion, ...] = ()
    """In the order of training; the last is what the run became, once it has."""

    @property
    def best_validated(self) -> ValidatedVersion | None:
        """The version that solved most validation tasks, of equal ones the first; None for none."""
        return max(self.validated, key=lambda version: version.solved, default=None)


class _Sampling(msgspec.Struct, frozen=True):
    """Of `updates.jsonl`."""

    rollouts: int = 0
    solved: float = 0.0
    reward: float = 0.0
    tokens: float = 0.0
    tool_failures: float = 0.0
    process_reward: float = 0.0


class _Validation(msgspec.Struct, frozen=True):
    solved: float = 0.0
    tasks: int = 0


class _Critic(msgspec.Struct, frozen=True):
    attempts: int = 0
    full: int = 0
    gain: float = 0.0
    improved: float = 0.0


class _Update(msgspec.Struct, frozen=True):
    update: int
    policy: str = ""
    sampling: _Sampling = _Sampling()
    trained_tokens: int = 0
    validation: _Validation | None = None
    critic: _Critic | None = None


class _UpdateFigure(NamedTuple):
    name: str
    read: Callable[[_Update], float | None]
    falls: bool | None = False


_UPDATE_FIGURES = (
    _UpdateFigure("reward", lambda update: update.sampling.reward),
    _UpdateFigure("solved", lambda update: update.sampling.solved),
    _UpdateFigure("tokens a rollout", lambda update: update.sampling.tokens, None),
    _UpdateFigure("failed calls a rollout", lambda update: update.sampling.tool_failures, True),
    _UpdateFigure("process reward", lambda update: update.sampling.process_reward or None),
    _UpdateFigure("critic: gain", lambda update: update.critic.gain if update.critic else None),
    _UpdateFigure(
        "critic: improved", lambda update: update.critic.improved if update.critic else None
    ),
)
"""By curve, where its value stands; None where an update has none."""


class _Counts(msgspec.Struct, frozen=True):
    unit: str = "tokens"
    trained: int = 0
    unjudged: int = 0
    untrained: dict[str, int] = {}


class _Source(msgspec.Struct, frozen=True):
    held_out: bool = False


class _Manifest(msgspec.Struct, frozen=True):
    rows: int
    counts: _Counts
    sources: list[_Source] = []


class _Result(msgspec.Struct, frozen=True):
    rows: int = 0
    trained: int = 0
    held_out_before: float | None = None
    held_out_after: float | None = None
    held_out_rows: int = 0
    trained_labels: int = 0
    by_source: dict[str, int] = {}
    updates: int = 0
    policy: str = ""
    validation: _Validation | None = None


T = TypeVar("T")


_READ_FILES = (METRICS_NAME, UPDATES_NAME, "result.json", HELD_OUT_BEFORE_NAME,
               "manifest.json", "data/manifest.json")  # fmt: skip


def read_run_figures(folder: Path) -> RunFigures:
    """What the folder of a run says; files that are damaged count as not there.

    A folder whose files have not changed is read once in a process.
    """
    return _read_unchanged(folder, tuple(_signature(folder / name) for name in _READ_FILES))


def _signature(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=16)
def _read_unchanged(folder: Path, signature: tuple[tuple[int, int], ...]) -> RunFigures:
    steps = _read_lines(folder / METRICS_NAME, StepMetrics)
    updates = _read_lines(folder / UPDATES_NAME, _Update)
    result = read_json_file(folder / "result.json", _Result)
    held_out = _read_held_out(folder, result)
    last_step = max((line.step for line in steps), default=0)
    validated = tuple(_validated_versions(updates, result))
    return RunFigures(
        tuple(_curves(steps, updates, held_out, last_step, validated)),
        _read_data(folder, updates, result),
        held_out,
        tuple(
            update.critic.gain
            for update in updates
            if update.critic and update.critic.attempts > update.critic.full
        ),
        validated,
    )


def figures_of_metrics(metrics: dict[str, Any]) -> RunFigures:
    """What a policy's own metrics say, where the folder of its run is gone; no curve."""
    try:
        result = msgspec.convert(metrics, _Result)
    except msgspec.ValidationError:  # of a kind that calls something else by these names
        return RunFigures()
    return RunFigures((), _result_data(result), _result_held_out(result))


def _read_held_out(folder: Path, result: _Result | None) -> HeldOutLoss | None:
    if measured := _result_held_out(result):
        return measured
    before = read_json_file(folder / HELD_OUT_BEFORE_NAME, HeldOutBefore)
    return HeldOutLoss(before.loss, None, before.rows) if before else None


def _result_held_out(result: _Result | None) -> HeldOutLoss | None:
    if result is None or result.held_out_before is None:
        return None
    return HeldOutLoss(result.held_out_before, result.held_out_after, result.held_out_rows)


def _curves(
    steps: list[StepMetrics],
    updates: list[_Update],
    held_out: HeldOutLoss | None,
    last_step: int,
    validated: Sequence[ValidatedVersion],
) -> Iterator[Curve]:
    if steps:
        # A run that went on from a checkpoint has made some steps twice: the last word counts.
        losses = {line.step: line.loss for line in steps}
        yield Curve("loss", tuple(sorted(losses.items())), falls=True)
    if held_out is not None and held_out.after is not None and last_step:
        ends = ((0, held_out.before), (last_step, held_out.after))
        yield Curve("held-out loss", ends, falls=True)
    if validated:
        points = tuple((version.update, version.solved) for version in validated)
        yield Curve(VALIDATION_CURVE, points, "update", False)
    for figure in _UPDATE_FIGURES if updates else ():
        values = ((update.update, figure.read(update)) for update in updates)
        points = tuple((number, value) for number, value in values if value is not None)
        if points:
            yield Curve(figure.name, points, "update", figure.falls)


def _validated_versions(
    updates: list[_Update], result: _Result | None
) -> Iterator[ValidatedVersion]:
    """Of every validated update the version that it began with, and what the run became."""
    for update in updates:
        if figures := update.validation:
            yield ValidatedVersion(update.update, update.policy, figures.solved, figures.tasks)
    if result and (figures := result.validation):
        yield ValidatedVersion(result.updates, result.policy, figures.solved, figures.tasks)


def _read_data(folder: Path, updates: list[_Update], result: _Result | None) -> TrainingData | None:
    copy = read_json_file(folder / "manifest.json", _Manifest)
    if manifest := copy or read_json_file(folder / "data" / "manifest.json", _Manifest):
        counts = manifest.counts
        return TrainingData(
            manifest.rows,
            sum(not source.held_out for source in manifest.sources),
            counts.trained,
            counts.unit,
            counts.untrained,
            counts.unjudged,
        )
    if updates:
        rollouts = sum(update.sampling.rollouts for update in updates)
        trained = sum(update.trained_tokens for update in updates)
        return TrainingData(0, rollouts, trained, "tokens")
    return _result_data(result)


def _result_data(result: _Result | None) -> TrainingData | None:
    if result is not None and result.trained_labels:
        return TrainingData(0, 0, result.trained_labels, "labels")
    if result is not None and result.rows:
        return TrainingData(result.rows, 0, result.trained, "tokens")
    return None


def _read_lines(file: Path, kind: type[T]) -> list[T]:
    """The lines of a file that can be read; the last one may be half written."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return []
    decoder = msgspec.json.Decoder(kind)
    records: list[T] = []
    for line in lines:
        try:
            records.append(decoder.decode(line))
        except msgspec.MsgspecError:  # half a line, of a trainer that was killed
            continue
    return records
