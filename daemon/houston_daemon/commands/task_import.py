"""`houston task import FILE.yaml`: a task of InnovatorBench as a task folder, and what it lacks."""

import argparse
from pathlib import Path

from houston_daemon.importers import innovatorbench, writing
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.safe_text import safe_line
from houston_shared.task import load_task


def arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE`, `--out`, `--from`, `--json`."""
    parser.add_argument("file", metavar="FILE", help="research_gym/configs/tasks/task_N.yaml")
    parser.add_argument("--out", metavar="DIR", help="the new task folder (the task's name, here)")
    parser.add_argument(
        "--from",
        dest="beside",
        metavar="DIR",
        default=".",
        help="where relative paths of FILE start: the checkout of InnovatorBench (here)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write the folder and say of every field what became of it."""
    found = innovatorbench.read(Path(arguments.file))
    made = innovatorbench.imported(found, Path(arguments.beside))
    file = writing.write(made, Path(arguments.out or made.name))
    load_task(file)  # what was written can be read
    if arguments.json:
        fields = [{"field": one.field, "how": one.how, "said": one.said} for one in made.lines]
        out.json_line({"task": made.name, "file": str(file), "fields": fields})
        return int(ExitCode.DONE)
    out.line(str(file))
    for one in made.lines:
        out.line(f"  {safe_line(one.field):<34} {one.how:<13} {safe_line(one.said)}")
    missing = sum(one.how == "not mapped" for one in made.lines)
    out.note(f"{missing} of {len(made.lines)} are not mapped; next: houston task validate {file}")
    return int(ExitCode.DONE)
