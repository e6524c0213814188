"""`houston task image`: uses a container's image as the programs of a task.

podman or docker builds, loads or fetches it on this machine; the result is one file next to the
task file, so a machine that runs the task needs no container engine. Only keys that the task file
lacks are written into it; existing keys are left, and named.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from houston_daemon.hosts.sandbox import image_files
from houston_daemon.importers import container_image
from houston_daemon.importers.container_image import ImageSettings
from houston_daemon.importers.harbor_importer import IMAGE_FILE
from houston_daemon.importers.imported_task import tables_to_toml
from houston_shared import atomic_file, command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError, NotFound
from houston_shared.safe_text import safe_line
from houston_shared.task import LoadedTask, load_task
from houston_shared.toml_file import read_toml

_MAKE_SECONDS = 3_600.0
_DOCKERFILES = ("Containerfile", "Dockerfile")
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of most images, which is a sandbox's own."""
_ROOT_NAMES = ("", "0", "root", "root:root", "0:0")


def add_task_image_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE`, `IMAGE`, `--json`."""
    parser.add_argument("file", metavar="FILE", help="task.toml, or the folder that holds it")
    parser.add_argument(
        "image",
        metavar="IMAGE",
        help="a folder with a Containerfile or Dockerfile, a file that `podman save` or `docker"
        " save` wrote (also oci-archive), or the name of an image, which is fetched if it is"
        " missing",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_task_image(arguments: argparse.Namespace, _: LoadedConfiguration) -> int:
    """Write the image's files beside the task file, and name them there."""
    task = load_task(Path(arguments.file))
    engine = container_image.find_container_engine()
    if not engine:
        raise HoustonError(
            "Neither podman nor docker works on this machine.",
            "No image was written.",
            "Install podman, or make the image elsewhere and copy the task's folder here: to run"
            " it, no engine is needed.",
            ExitCode.CONFIGURATION,
        )
    image = _have_image(engine, arguments.image, task)
    settings = container_image.read_image_settings(engine, image)
    file = task.folder / IMAGE_FILE
    _export(engine, image, file)
    written, owed = _name_in_task(task, settings)
    if arguments.json:
        facts = {"task": task.task.name, "file": str(file), "image": image}
        more = {"written": sorted(written), "owed": sorted(owed), "workdir": settings.workdir}
        command_output.print_json_line({**facts, **more})
    else:
        _say_result(task, file, written, owed, settings)
    return int(ExitCode.DONE)


def _have_image(engine: str, source: str, task: LoadedTask) -> str:
    """The name or id of the image, which is here then. Raises HoustonError."""
    path = Path(source)
    if path.is_dir():
        for name in _DOCKERFILES:
            if (path / name).is_file():
                built = f"localhost/houston-{task.task.name}:latest"
                container_image.build_image(engine, path / name, built, _MAKE_SECONDS)
                return built
        raise NotFound(
            f"{path} has neither a {' nor a '.join(_DOCKERFILES)}.", "No image was written."
        )
    if path.is_file():
        return container_image.load_image(engine, path, _MAKE_SECONDS)
    container_image.fetch_image(engine, source, _MAKE_SECONDS)
    return source


def _export(engine: str, image: str, file: Path) -> None:
    """Replace the task's image, once the new one is known to serve."""
    temp_file = atomic_file.temporary_sibling(file)
    try:
        container_image.export_image(engine, image, temp_file)
        image_files.check_image_file(temp_file, image)
        temp_file.replace(file)
    finally:
        temp_file.unlink(missing_ok=True)


def _name_in_task(
    task: LoadedTask, settings: ImageSettings
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Add what the task file lacks. Returns the tables that were written, and those that are owed
    since the file has such a table."""
    new_tables: dict[str, dict[str, str]] = {"sandbox": {"image": IMAGE_FILE}}
    variables = {
        name: value
        for name, value in settings.environment.items()
        if name and (name, value) != ("PATH", _USUAL_PATH)
    }
    if variables:
        new_tables["environment_variables"] = variables
    task_tables = read_toml(task.file)
    lacking = {
        name: _missing_entries(task_tables.get(name), table) for name, table in new_tables.items()
    }
    written = {name: table for name, table in lacking.items() if table and name not in task_tables}
    owed = {name: table for name, table in lacking.items() if table and name in task_tables}
    if written:
        _append_tables(task.file, written)
    return written, owed


def _missing_entries(there: Any, table: Mapping[str, str]) -> dict[str, str]:
    """What of a table the file does not say; another value of the image's file counts as that."""
    if not isinstance(there, dict):
        return dict(table)
    return {
        key: value
        for key, value in table.items()
        if key not in there or (key == "image" and there[key] != value)
    }


def _append_tables(file: Path, tables: Mapping[str, Mapping[str, str]]) -> None:
    before = file.read_bytes()
    text = before.decode("utf-8").rstrip("\n") + "\n\n" + tables_to_toml(tables).strip("\n") + "\n"
    atomic_file.write_atomically(file, text.encode("utf-8"))
    try:
        load_task(file)
    except ConfigurationError:
        atomic_file.write_atomically(file, before)
        raise


def _say_result(
    task: LoadedTask,
    file: Path,
    written: Mapping[str, Mapping[str, str]],
    owed: Mapping[str, Mapping[str, str]],
    settings: ImageSettings,
) -> None:
    command_output.print_line(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")
    for name, table in written.items():
        command_output.print_line(f"  [{name}] of {task.file.name}: {safe_line(', '.join(table))}")
    if owed:
        tables = tables_to_toml(owed).strip()
        lines = "\n".join(f"  {safe_line(line)}" for line in tables.splitlines())
        command_output.print_note(
            f"{task.file} already has such tables; the image also sets what they lack:\n{lines}"
        )
    if settings.workdir:
        command_output.print_note(
            f"The image works in {safe_line(settings.workdir)}. The workspace is at /workspace;"
            " with `workdir` of [sandbox] it is mounted there, too, over the files of the image."
        )
    if settings.user not in _ROOT_NAMES:
        command_output.print_note(f"Programs run as root, not as {safe_line(settings.user)}.")
    command_output.print_note(f"next: houston task validate {task.file}")
