"""What of a script an environment would refuse: names and arguments that no tool of a task takes.

Nothing runs. A script may mean to be refused, so these are warnings and no errors.
"""

from pathlib import Path

from houston_daemon.engines.script import read_script
from houston_daemon.environments.tool_arguments import Catalog
from houston_shared.records import Call


def refused(path: Path, catalog: Catalog) -> list[str]:
    """A sentence for each call that would be refused, with its step. Raises ConfigurationError."""
    return [
        f"step {number}: {checked.error}"
        for number, line in enumerate(read_script(path), 1)
        for one in line.calls
        if (checked := catalog.check(Call("", one.name, one.arguments))).error
    ]
