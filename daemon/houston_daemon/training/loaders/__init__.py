"""Modules that an export puts beside its data: a trainer loads the data with them, where Houston is
not installed. They import the trainer's packages and nothing of Houston's.
"""

from importlib.resources import files


def loader_source(name: str) -> bytes:
    """The module `name` (`verl_rows.py`), as it is written into an export."""
    return (files(__name__) / name).read_bytes()
