"""`houston task new NAME`: a small task folder that works as it is, to start from."""

import argparse
import re
from pathlib import Path

from houston_daemon import demo
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError

TEMPLATES = demo.TASK.parent.parent
"""The packaged tasks, a folder each."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--from`, `--dir`."""
    parser.add_argument("name", help="lower-case letters, digits and hyphens")
    parser.add_argument(
        "--from",
        dest="template",
        choices=templates(),
        default=demo.TASK.parent.name,
        help="the packaged task to start from: %(choices)s (%(default)s)",
        metavar="TASK",
    )
    parser.add_argument("--dir", default=".", help="where the folder NAME is made (here)")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write the folder; refuses to write into one that is there."""
    folder = write(arguments.name, Path(arguments.dir), arguments.template)
    out.line(f"{folder}/task.toml")
    out.note(f"next: houston rollout start {folder}/task.toml")
    return int(ExitCode.DONE)


def templates() -> list[str]:
    """Names of the packaged tasks."""
    return sorted(file.parent.name for file in TEMPLATES.glob("*/task.toml"))


def write(name: str, beside: Path, template: str = demo.TASK.parent.name) -> Path:
    """Make the task folder `beside/name`, a copy of the packaged task. Raises HoustonError."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is no task name; allowed: lower-case letters, digits, hyphens, at most 40.",
            "Nothing was written.",
            "Choose another name.",
        )
    folder = beside / name
    try:
        folder.mkdir(parents=True)
        for file in sorted((TEMPLATES / template).rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            target = folder / file.relative_to(TEMPLATES / template)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = file.read_bytes()
            if file.suffix == ".toml":  # the name, also with something behind it
                data = data.replace(f'name = "{template}'.encode(), f'name = "{name}'.encode())
            target.write_bytes(data)
    except FileExistsError:
        raise HoustonError(
            f"{folder} is there already.", "Nothing was written.", "Choose another name or --dir."
        ) from None
    except OSError as problem:
        raise HoustonError(f"{folder} cannot be written: {problem.strerror}.") from None
    return folder
