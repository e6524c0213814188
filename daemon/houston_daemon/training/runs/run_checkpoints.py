"""Checkpoints of a training run: complete or absent.

A checkpoint is written into a separate folder, synced, marked and renamed. With the marker it can
be resumed, even after a kill or a power cut. The module knows files, not their content, and imports
no torch.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from houston_shared import atomic_file

MARKER_FILE = "complete.json"
_UNFINISHED_FOLDER = ".unfinished"
_PREFIX = "checkpoint-"


class CheckpointMarker(msgspec.Struct, frozen=True, kw_only=True):
    """Written last."""

    step: int
    files: dict[str, int]
    """Bytes of every other file."""
    kind: str = ""
    """How the state of training lies in them (`sft_run_folder.SHARDING_KINDS`); empty in older
    ones."""


@contextmanager
def unfinished_checkpoint(folder: Path) -> Iterator[Path]:
    """Where a checkpoint is written, for every process alike."""
    unfinished = folder / _UNFINISHED_FOLDER
    unfinished.mkdir(parents=True, exist_ok=True)
    yield unfinished


@contextmanager
def atomic_checkpoint(arguments: Any) -> Iterator[Path]:
    """While it lasts, transformers' trainer writes its checkpoint where it is unfinished; gives the
    folder of checkpoints. arguments: of that trainer."""
    folder = Path(arguments.output_dir)
    with unfinished_checkpoint(folder) as unfinished:
        arguments.output_dir = str(unfinished)
        try:
            yield folder
        finally:
            arguments.output_dir = str(folder)


def finish_checkpoint(folder: Path, step: int, keep: int, kind: str = "") -> Path:
    """Mark what lies beside and put it in its place; then remove all but the newest `keep`."""
    name = f"{_PREFIX}{step}"
    unfinished, place = folder / _UNFINISHED_FOLDER / name, folder / name
    files = {}
    for file in sorted(path for path in unfinished.rglob("*") if path.is_file()):
        atomic_file.sync_to_disk(file)
        files[str(file.relative_to(unfinished))] = file.stat().st_size
    marker = CheckpointMarker(step=step, files=files, kind=kind)
    atomic_file.write_atomically(unfinished / MARKER_FILE, msgspec.json.encode(marker))
    atomic_file.sync_to_disk(unfinished)
    if place.exists():  # of an earlier try that was not whole
        shutil.rmtree(place)
    unfinished.replace(place)
    atomic_file.sync_to_disk(folder)
    shutil.rmtree(folder / _UNFINISHED_FOLDER)
    for old in whole_checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return place


def whole_checkpoints(folder: Path) -> list[Path]:
    """Every whole checkpoint, oldest first."""
    steps = {path: _checkpoint_step(path) for path in folder.glob(f"{_PREFIX}*")}
    whole = sorted((step, path) for path, step in steps.items() if step is not None)
    return [path for _, path in whole]


def newest_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint."""
    return next(reversed(whole_checkpoints(folder)), None)


def checkpoint_kind(checkpoint: Path) -> str:
    """The kind of a whole checkpoint; empty where nobody has noted it."""
    return msgspec.json.decode((checkpoint / MARKER_FILE).read_bytes(), type=CheckpointMarker).kind


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process left unfinished."""
    shutil.rmtree(folder / _UNFINISHED_FOLDER, ignore_errors=True)


def _checkpoint_step(folder: Path) -> int | None:
    """The step of a checkpoint; None where it is not whole."""
    try:
        marker = msgspec.json.decode((folder / MARKER_FILE).read_bytes(), type=CheckpointMarker)
        sizes = {name: (folder / name).stat().st_size for name in marker.files}
    except (OSError, msgspec.DecodeError):
        return None
    return marker.step if sizes == marker.files else None
