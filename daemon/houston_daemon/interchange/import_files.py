"""Detects which format a file has, and reads its rollouts, ready to be sent to the recorder.

The only entry point for `houston rollout import`: a trajectory in ATIF, the folder of a Harbor
trial, a log of inspect_ai. The request key of a rollout is made from the file's bytes, so the same
file is imported only once.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.interchange import atif_import, inspect_import
from houston_daemon.interchange.atif_import import RESULT_FILE, TRAJECTORY_FILE
from houston_daemon.interchange.imported_rollout import NOTHING_IMPORTED
from houston_shared.control_messages import ImportRollout
from houston_shared.errors import HoustonError, unreadable_as_error

MAX_FILE_BYTES = 1_000_000_000
"""Bytes of the longest file that is read."""
_LOG_SUFFIX = ".eval"


def read_imports(path: Path, task: str = "") -> Iterator[ImportRollout]:
    """The rollouts of a file or a trial's folder, one after the other.

    task: their task's name, where not the file's own. Raises HoustonError for what cannot be read,
    or not be stored.
    """
    try:
        yield from _read_rollouts(path, task)
    except (OverflowError, RecursionError) as problem:
        raise HoustonError(
            f"{path} holds values that the journal cannot store: a number of more than 64 "
            "bits, or values that are nested too deeply.",
            NOTHING_IMPORTED,
        ) from problem


def _read_rollouts(path: Path, task: str) -> Iterator[ImportRollout]:
    if path.is_dir():
        yield from _read_trial(path, task)
        return
    data = _read(path)
    if path.suffix == _LOG_SUFFIX or inspect_import.is_json_log(data):
        yield from inspect_import.read_log(path, request_key(data), task)
        return
    document = atif_import.read_trajectory(data, path.name)
    rollout = atif_import.convert_trajectory(document, path.name)
    yield rollout.message(task or atif_import.task_of(document, None), request_key(data))


def _read_trial(folder: Path, task: str) -> Iterator[ImportRollout]:
    """The trajectory of a trial of Harbor, with its rewards."""
    file = folder / TRAJECTORY_FILE
    if not file.is_file():
        raise HoustonError(
            f"{folder} is not a Harbor trial: it has no {TRAJECTORY_FILE}, which agents that "
            "support ATIF write.",
            NOTHING_IMPORTED,
            "Name a trajectory, a trial's folder or a log of inspect_ai.",
        )
    data, name = _read(file), f"{folder.name}/{TRAJECTORY_FILE}"
    result = folder / RESULT_FILE
    trial_data = _read(result) if result.is_file() else b""
    trial = atif_import.read_trial_result(trial_data, str(result)) if trial_data else None
    document = atif_import.read_trajectory(data, name)
    rollout = atif_import.convert_trajectory(document, name, trial)
    yield rollout.message(
        task or atif_import.task_of(document, trial), request_key(data + trial_data)
    )


def _read(path: Path) -> bytes:
    with unreadable_as_error(path, NOTHING_IMPORTED):
        if path.stat().st_size > MAX_FILE_BYTES:
            raise HoustonError(f"{path} is larger than {MAX_FILE_BYTES} bytes.", NOTHING_IMPORTED)
        return path.read_bytes()


def request_key(data: bytes) -> str:
    """By which the recorder knows that it has the same file already."""
    return f"import-{hashlib.sha256(data).hexdigest()[:40]}"
