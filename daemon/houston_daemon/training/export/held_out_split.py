"""Decides which tasks of an export are held out, by the content of tasks and rollouts, not by their
names.

All rollouts of a task, and their branches, are on one side: with attempts at one task on both
sides, a model would be measured on its training data. A task that was copied under another name
counts as the same task. Also writes the manifest's entry for each exported rollout.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError, UsageError
from houston_shared.records import StepRecord, TaskRecord
from houston_shared.store import rollout_queries, step_queries
from houston_shared.store.journal_events import OPEN_END, ReadPlan
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.toml_file import parse_toml

_IGNORED_TASK_KEYS = frozenset(
    {"name", "instructions", "instructions_file", "budget", "sampling", "sandbox", "hosts", "gpus"}
    | {"gpus_shared", "hints", "activate", "domain", "tools"}
)
"""Keys of a task file that say how it is worked on, or that stand in the instructions."""
_STEPS_PER_PAGE = 200
"""Steps that are read at once."""
_MAX_HASHED_BYTES = 1 << 20
"""Bytes of a file that count; of a larger one its first and its size."""


def content_keys(reader: Reader, rollout: RolloutRow, folders: dict[str, str]) -> frozenset[str]:
    """Keys of a rollout's task and of all that was said and done in it; a key less for what was
    erased, or is not there any more.

    folders: digests of the task folders that were looked at, to be used again for the next one.
    """
    try:
        task = reader.run(rollout_queries.read_rollout_spec(rollout)).task
    except HoustonError:
        return frozenset()
    if task.folder not in folders:
        folders[task.folder] = _folder_digest(task.folder)
    keys = {
        _task_digest(task, folders[task.folder]),
        _transcript_digest(reader, rollout.id, task.instructions),
    }
    return frozenset(keys - {""})


def _task_digest(task: TaskRecord, files: str) -> str:
    """Instructions, environment and files of a task; empty where its folder is gone: instructions
    alone may be those of many."""
    tables = parse_toml(task.definition, task.name)
    environment = {key: value for key, value in tables.items() if key not in _IGNORED_TASK_KEYS}
    return _new_hash("task", task.instructions, environment, files) if files else ""


def _folder_digest(folder: str) -> str:
    """Digest of what lies in a task's folder beside the task file; empty where nothing does."""
    if not folder:  # of what was imported nothing lies here
        return ""
    digest, root = hashlib.sha256(), Path(folder)
    for path in sorted(_folder_files(root)):
        try:
            with path.open("rb") as file:
                part = hashlib.sha256(file.read(_MAX_HASHED_BYTES)).hexdigest()
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0{part}\0".encode())
        except OSError:
            return ""
    return digest.hexdigest() if root.is_dir() else ""


def _folder_files(root: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(set(inner) - {".git", "__pycache__"})
        paths = (Path(folder, name) for name in names)
        yield from (path for path in paths if path.is_file() and path.name != "task.toml")


def _transcript_digest(reader: Reader, rollout: str, instructions: str) -> str:
    """Instructions, answers and results, in order; empty for a rollout without a step."""
    digest = hashlib.sha256(instructions.encode())
    first, last = 1, reader.run(step_queries.find_last_step(rollout))
    while first <= last:
        for record in reader.run(
            step_queries.read_steps(rollout, first, min(first + _STEPS_PER_PAGE - 1, OPEN_END))
        ):
            digest.update(_step_content(record))
        first += _STEPS_PER_PAGE
    return _new_hash("transcript", digest.hexdigest()) if last else ""


def _step_content(record: StepRecord) -> bytes:
    calls = [(call.name, call.arguments) for call in record.sample.calls]
    results = [result.text for result in record.results]
    return msgspec.msgpack.encode((record.sample.thought, calls, results), order="sorted")


def _new_hash(*parts: Any) -> str:
    data = msgspec.msgpack.encode(parts, order="sorted", enc_hook=str)
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """What is held out: a share of the tasks, or these."""

    fraction: float = 0.0
    """Share of the tasks, of which at least one is held out and one is not; 0: by name."""
    tasks: tuple[str, ...] = ()
    seed: int = 0

    def __bool__(self) -> bool:
        return bool(self.fraction or self.tasks)


class SplitMember(NamedTuple):
    """A rollout, as far as a split goes by it."""

    rollout: str
    task: str
    parent: str
    """The rollout that it is a branch of; empty for none."""
    content: frozenset[str] = frozenset()
    """Keys of what it is of (`content_keys`): tasks whose rollouts share one stay together."""


def parse_held_out(words: Sequence[str], seed: int = 0) -> HeldOutSplit:
    """`--held-out` as it was typed: a share between 0 and 1, or names. Raises HoustonError."""
    if len(words) == 1:
        try:
            fraction = float(words[0])
        except ValueError:
            return HeldOutSplit(tasks=(words[0],), seed=seed)
        if not 0 < fraction < 1:
            raise _held_out_error(f"{words[0]} is no share of the tasks between 0 and 1")
        return HeldOutSplit(fraction, seed=seed)
    return HeldOutSplit(tasks=tuple(sorted(set(words))), seed=seed)


def choose_held_out(members: Sequence[SplitMember], held_out: HeldOutSplit) -> frozenset[str]:
    """The tasks that are held out; empty when none is. Raises HoustonError where it is impossible.

    By share, tasks are taken in the order of a hash of seed and name, so that an added task does
    not reorder the others. Naming the tasks fixes a split.
    """
    if not held_out:
        return frozenset()
    families = _task_families(members)
    tasks = {task for family in families for task in family}
    if missing := sorted(set(held_out.tasks) - tasks):
        raise _held_out_error(
            f"none of these rollouts is of the task {missing[0]!r}; they are of:"
            f" {', '.join(sorted(tasks))}"
        )
    if held_out.tasks:
        chosen = [family for family in families if family & set(held_out.tasks)]
    else:
        chosen = _held_out_share(families, held_out)
    if len(chosen) == len(families):
        same = " (tasks of equal content count as one)" if len(tasks) > len(families) else ""
        raise _held_out_error(f"no task would be left to train on: a split goes by task{same}")
    return frozenset(task for family in chosen for task in family)


def _held_out_share(families: list[frozenset[str]], held_out: HeldOutSplit) -> list[frozenset[str]]:
    def place(family: frozenset[str]) -> bytes:
        return hashlib.sha256(f"{held_out.seed}\n{min(family)}".encode()).digest()

    count = round(held_out.fraction * len(families), 9)  # 0.07 * 100 is 7.000000000000001
    return sorted(families, key=place)[: math.ceil(count)]


def _task_families(members: Sequence[SplitMember]) -> list[frozenset[str]]:
    """Tasks that must stay together: a branch may run under another task than its parent, and one
    task may have two names."""
    task_of = {member.rollout: member.task for member in members}
    family = {task: frozenset({task}) for task in task_of.values()}
    first_of: dict[str, str] = {}
    for member in members:
        others = [task_of.get(member.parent, member.task)]
        others += [first_of.setdefault(key, member.task) for key in member.content]
        for other in others:
            joined = family[member.task] | family[other]
            for task in joined:
                family[task] = joined
    return sorted(set(family.values()), key=sorted)


def _held_out_error(reason: str) -> HoustonError:
    return UsageError(
        f"Nothing can be held out: {reason}.",
        "Nothing was exported.",
        "houston task list, then --held-out TASK …",
    )


_MODEL_KEYS = ("model", "url", "kind")
"""What tells the model of an engine's settings, the first that is there."""


class ChosenRollout(NamedTuple):
    """A rollout to export."""

    rollout: RolloutRow
    base: str
    """Model that its engine names; empty where its specification was erased."""
    dialect: str
    """Dialect of its engine; empty where it is not known, or the endpoint renders by itself."""
    past_seq: int
    """Newest event of the rollouts whose steps it shares; 0 where it shares none."""


def read_chosen(reader: Reader, ids: Sequence[str]) -> list[ChosenRollout]:
    """The rollouts of these whole ids, in their order; a short read each."""
    return [reader.run(_query_chosen(id)) for id in ids]


def read_split_members(reader: Reader, chosen: Sequence[ChosenRollout]) -> list[SplitMember]:
    """The rollouts as a split sees them."""
    folders: dict[str, str] = {}
    return [
        SplitMember(row.id, row.task, row.parent, content_keys(reader, row, folders))
        for row in (each.rollout for each in chosen)
    ]


def _query_chosen(id: str) -> ReadPlan[ChosenRollout]:
    row = yield from rollout_queries.find_rollout(id)
    return ChosenRollout(row, *(yield from _query_model(row)), (yield from _query_past_seq(row.id)))


def _query_past_seq(id: str) -> ReadPlan[int]:
    newest = 0
    for part in (yield from rollout_queries.step_ranges(id)):
        if part.rollout != id:
            newest = max(newest, (yield from rollout_queries.newest_seq(part.rollout)))
    return newest


def _query_model(rollout: RolloutRow) -> ReadPlan[tuple[str, str]]:
    """The model that a rollout's engine names, and the dialect of its texts."""
    try:
        settings = (yield from rollout_queries.read_rollout_spec(rollout)).engine_settings
    except HoustonError:
        return "", ""
    base = next((str(settings[key]) for key in _MODEL_KEYS if settings.get(key)), rollout.engine)
    own = settings.get("kind") not in ("chat", "script")
    return base, str(settings.get("dialect", "")) if own else ""
