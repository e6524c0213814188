"""Where the packaged tasks lie, and what each is; what is in them is the daemon's.

The daemon's package is found and not imported: a command that lists tasks stays light.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from houston_shared.task import LoadedTask, load_task


@cache
def folder() -> Path:
    """The folder with a folder for each packaged task."""
    found = find_spec("houston_daemon")
    assert found is not None and found.submodule_search_locations, "one distribution holds both"
    return Path(found.submodule_search_locations[0]) / "demo" / "tasks"


def tasks() -> list[LoadedTask]:
    """Every packaged task, those of research first, by name. Raises ConfigurationError."""
    found = [load_task(file) for file in sorted(folder().glob("*/task.toml"))]
    return sorted(found, key=lambda one: (not one.task.domain, one.task.domain, one.task.name))
