"""Modules that an export writes next to its data. A trainer loads the data with them where Houston
is not installed. They import the trainer's packages and nothing of Houston's.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files


def support_module(name: str) -> Callable[[Sequence[tuple[str, str]]], Mapping[str, bytes]]:
    """`ExportFormat.support_files` of a format that brings the module `name` (`verl_rows.py`)."""
    return lambda data: {name: (files(__name__) / name).read_bytes()}
