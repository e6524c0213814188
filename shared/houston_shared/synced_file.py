"""A small file that is replaced whole: after a kill or a power cut it is the old one or the new."""

import os
from pathlib import Path


def write(file: Path, data: bytes) -> None:
    """Write beside, sync, replace. Its folder must be there. Raises OSError."""
    beside = file.with_suffix(".new")
    with beside.open("wb") as written:
        written.write(data)
        written.flush()
        os.fsync(written.fileno())
    beside.replace(file)
