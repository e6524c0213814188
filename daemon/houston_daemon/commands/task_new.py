"""`houston task new NAME`: a small task folder that works as it is, to start from."""

import argparse
import re
from pathlib import Path

from houston_daemon import demo
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError

FILES = ("task.toml", "evaluate.py", "workspace/README.md", "workspace/corpus.txt")
"""The demo's task, under the name that was asked for."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--dir`."""
    parser.add_argument("name", help="lower-case letters, digits and hyphens")
    parser.add_argument("--dir", default=".", help="where the folder NAME is made (here)")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write the folder; refuses to write into one that is there."""
    folder = write(arguments.name, Path(arguments.dir))
    out.line(f"{folder}/task.toml")
    out.note(f"next: houston rollout start {folder}/task.toml")
    return int(ExitCode.DONE)


def write(name: str, beside: Path) -> Path:
    """Make the task folder `beside/name`. Raises HoustonError."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is no task name; allowed: lower-case letters, digits, hyphens, at most 40."
        )
    folder = beside / name
    try:
        folder.mkdir(parents=True)
        for file in FILES:
            target = folder / file
            target.parent.mkdir(exist_ok=True)
            text = (demo.TASK.parent / file).read_text(encoding="utf-8")
            target.write_text(text.replace('name = "count-words"', f'name = "{name}"'), "utf-8")
    except FileExistsError:
        raise HoustonError(
            f"{folder} is there already.", "Nothing was written.", "Choose another name or --dir."
        ) from None
    except OSError as problem:
        raise HoustonError(f"{folder} cannot be written: {problem.strerror}.") from None
    return folder
