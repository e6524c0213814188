"""What a rollout is of, whatever it is called: keys that two rollouts share when their content is.

A split that goes by names puts a task that was copied under another name on both sides, and a
rollout that was brought in twice. Budgets, sampling and the place of a task make it no other one.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.records import StepRecord, TaskRecord
from houston_shared.store.plan import END
from houston_shared.store.queries import rollouts, steps
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader
from houston_shared.toml_file import parse

_HOW = frozenset(
    {"name", "instructions", "instructions_file", "budget", "sampling", "sandbox", "hosts", "gpus"}
    | {"gpus_shared", "hints", "activate", "domain", "tools"}
)
"""Keys of a task file that say how it is worked on, or that stand in the instructions."""
_PAGE = 200
"""Steps that are read at once."""
_WHOLE = 1 << 20
"""Bytes of a file that count; of a larger one its first and its size."""


def keys(reader: Reader, one: Rollout, folders: dict[str, str]) -> frozenset[str]:
    """Keys of a rollout's task and of all that was said and done in it; a key less for what was
    erased, or is not there any more.

    folders: digests of the task folders that were looked at, to be used again for the next one.
    """
    try:
        task = reader.run(rollouts.spec(one)).task
    except HoustonError:
        return frozenset()
    if task.folder not in folders:
        folders[task.folder] = _files(task.folder)
    found = {_task(task, folders[task.folder]), _transcript(reader, one.id, task.instructions)}
    return frozenset(found - {""})


def _task(task: TaskRecord, files: str) -> str:
    """Instructions, environment and files of a task; empty where its folder is gone: instructions
    alone may be those of many."""
    tables = parse(task.definition, task.name)
    what = {key: value for key, value in tables.items() if key not in _HOW}
    return _hash("task", task.instructions, what, files) if files else ""


def _files(folder: str) -> str:
    """Digest of what lies in a task's folder beside the task file; empty where nothing does."""
    digest, root = hashlib.sha256(), Path(folder)
    for path in sorted(_walk(root)):
        try:
            with path.open("rb") as file:
                part = hashlib.sha256(file.read(_WHOLE)).hexdigest()
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0{part}\0".encode())
        except OSError:
            return ""
    return digest.hexdigest() if root.is_dir() else ""


def _walk(root: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(set(inner) - {".git", "__pycache__"})
        paths = (Path(folder, name) for name in names)
        yield from (path for path in paths if path.is_file() and path.name != "task.toml")


def _transcript(reader: Reader, rollout: str, instructions: str) -> str:
    """Instructions, answers and results, in order; empty for a rollout without a step."""
    digest = hashlib.sha256(instructions.encode())
    first, last = 1, reader.run(steps.last(rollout))
    while first <= last:
        for record in reader.run(steps.records(rollout, first, min(first + _PAGE - 1, END))):
            digest.update(_step(record))
        first += _PAGE
    return _hash("transcript", digest.hexdigest()) if last else ""


def _step(record: StepRecord) -> bytes:
    calls = [(call.name, call.arguments) for call in record.sample.calls]
    results = [result.text for result in record.results]
    return msgspec.msgpack.encode((record.sample.thought, calls, results), order="sorted")


def _hash(*parts: Any) -> str:
    data = msgspec.msgpack.encode(parts, order="sorted", enc_hook=str)
    return hashlib.sha256(data).hexdigest()
