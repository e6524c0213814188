"""Exports again and again, each killed one operation on files later, and tells what was left.

    python -m tests.training.export.killed_exports HOME FOLDER ROLLOUT… [--over FORMAT]

Prints a JSON line for each kill. With --over an export of that format lies there whole before.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_shared.home import Home

OPERATIONS = [(os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "touch"), (Path, "mkdir")]


def arm(last: int) -> None:
    """Let this process die before its `last`-th operation."""
    countdown = [last]

    def deadly(act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*arguments: Any, **keywords: Any) -> Any:
            countdown[0] -= 1
            if not countdown[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*arguments, **keywords)

        return acting

    for owner, name in OPERATIONS:
        setattr(owner, name, deadly(getattr(owner, name)))


def contents(folder: Path) -> dict[str, str]:
    """Its files as hexadecimal digits, by name."""
    return {path.name: path.read_bytes().hex() for path in folder.iterdir()}


def main() -> None:
    home, folder, *ids = sys.argv[1:]
    over = ids[ids.index("--over") + 1] if "--over" in ids else ""
    ids = ids[: ids.index("--over")] if over else ids
    request = ExportRequest(tuple(ids), parquet=False, force=bool(over))
    for count in range(1, 100):
        place = Path(folder) / str(count)
        if over:
            write_export(Home(Path(home)), ExportRequest(tuple(ids), over), place)
        child = os.fork()
        if not child:
            arm(count)
            write_export(Home(Path(home)), request, place)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return
        files = contents(place) if place.exists() else {}
        write_export(
            Home(Path(home)), ExportRequest(tuple(ids), force="manifest.json" in files), place
        )
        print(json.dumps({"left": files, "after": contents(place)}), flush=True)
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
