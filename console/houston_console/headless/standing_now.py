"""Rollouts as they stand at this moment: what their rows cannot say, from the home's other files.

For the commands and the console alike: a plan reads the database and nothing else.
"""

from collections.abc import Sequence

from houston_console.headless import full_disk, gpu_waits
from houston_shared.home import Home
from houston_shared.need import Standing


def as_it_is(found: Sequence[Standing], home: Home) -> list[Standing]:
    """With what waits for a GPU, or for room on the disk."""
    rows = [one.rollout for one in found]
    now = gpu_waits.as_it_is(full_disk.as_it_is(rows, home), home)
    return [one._replace(rollout=row) for one, row in zip(found, now, strict=True)]
