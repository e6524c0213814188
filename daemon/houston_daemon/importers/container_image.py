"""A container's image as one file, made by podman or docker: built or pulled, then exported.

No container ever runs: the file is unpacked for each rollout and becomes the root of its sandbox
(`hosts.sandbox.image_files`). This module finds the engine to use; the importers decide what a task
does with the file.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.secret_redaction import find_placeholders

ENGINES = ("podman", "docker")
"""Programs that make images, in the order in which they are asked."""
_ASK_SECONDS = 30
_EXPORT_SECONDS = 1_800
_UNKNOWN_COMMAND = "/bin/true"
"""Of the container that is made to be exported, and never started."""
_SHOWN_CHARACTERS = 600


class ImageSettings(NamedTuple):
    """What an image says of the processes in it."""

    workdir: str
    """Absolute; empty where it has none of its own."""
    environment: dict[str, str]
    user: str


def find_container_engine() -> str:
    """The engine that answers on this machine; empty where there is none."""
    for name in ENGINES:
        program = shutil.which(name)
        if program is not None and _answers(program):
            return program
    return ""


def _answers(program: str) -> bool:
    """Whether it can work: docker's program may be here without its daemon."""
    try:
        result = subprocess.run(
            [program, "info"], capture_output=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def build_image(engine: str, dockerfile: Path, name: str, seconds: float) -> None:
    """Build the image of a Dockerfile in its folder under a name. Raises HoustonError."""
    words = ["build", "--tag", name, "--file", str(dockerfile), str(dockerfile.parent)]
    _ask(engine, words, seconds, f"The image of {dockerfile} cannot be built")


def load_image(engine: str, file: Path, seconds: float) -> str:
    """Load an archive's image; returns its name, else its id. Raises HoustonError."""
    result = _ask(engine, ["load", "--input", str(file)], seconds, f"{file} is no image's archive")
    named = [line for line in result.stdout.splitlines() if line.startswith("Loaded image")]
    if not named:
        raise HoustonError(
            f"{Path(engine).name} does not say which image {file} holds.", "Nothing was imported."
        )
    return named[0].split(": ", 1)[1].strip()


def fetch_image(engine: str, image: str, seconds: float) -> None:
    """Have an image here that somebody else has built. Raises HoustonError."""
    result = _run([engine, "image", "inspect", image], _ASK_SECONDS)
    if result.returncode:
        _ask(engine, ["pull", image], seconds, f"The image {image} cannot be fetched")


def read_image_settings(engine: str, image: str) -> ImageSettings:
    """Working folder, variables and user of an image that is here. Raises HoustonError, also as
    `refuse_placeholders` does."""
    result = _ask(engine, ["image", "inspect", image], _ASK_SECONDS, f"{image} cannot be looked at")
    config: dict[str, Any] = msgspec.json.decode(result.stdout)[0].get("Config") or {}
    pairs = [entry.partition("=") for entry in config.get("Env") or ()]
    variables = {name: value for name, _, value in pairs}
    refuse_placeholders(f"The image {image}", variables)
    workdir = str(config.get("WorkingDir") or "")
    return ImageSettings(
        workdir="" if workdir == "/" else workdir,
        environment=variables,
        user=str(config.get("User") or ""),
    )


def refuse_placeholders(source: str, variables: Mapping[str, str]) -> None:
    """Raise HoustonError for a variable with the placeholder of a secret: in a task file it would
    hand a secret of the daemon's to whoever made the task. source: begins the sentence."""
    for name, value in variables.items():
        if secrets := find_placeholders(value):
            raise HoustonError(
                f"{source} sets {name} to the secret {secrets[0]} of the user who runs it.",
                "Nothing was imported.",
                "Use one without that; a task's secrets belong in its own file.",
            )


def export_image(engine: str, image: str, file: Path) -> None:
    """Write the files of an image as a tar file. Raises HoustonError."""
    what = f"The image {image} cannot be exported"
    result = _ask(engine, ["create", image, _UNKNOWN_COMMAND], _EXPORT_SECONDS, what)
    container = result.stdout.strip().splitlines()[-1]
    try:
        _ask(engine, ["export", "--output", str(file), container], _EXPORT_SECONDS, what)
    finally:
        _run([engine, "rm", container], _ASK_SECONDS)


def copy_image_folder(file: Path, place: str, target: Path) -> None:
    """Unpack what lies below a folder (absolute) of an exported image into `target`, which is made.

    Raises HoustonError, also where the image has no such folder.
    """
    if not place.startswith("/"):
        raise HoustonError(
            f"The working folder {place!r} is not an absolute path.", "Nothing was imported."
        )
    target.mkdir(parents=True, exist_ok=True)
    inner = place.strip("/")
    words = ["tar", "-x", "-f", str(file), "-C", str(target), "--no-same-owner"]
    words += [f"--strip-components={inner.count('/') + 1}", "--", inner]
    result = _run(words, _EXPORT_SECONDS)
    if result.returncode:
        reason = " ".join(result.stderr.split())[:_SHOWN_CHARACTERS]
        raise HoustonError(f"{place} of {file} cannot be read: {reason}", "Nothing was imported.")


def _ask(
    engine: str, words: Sequence[str], seconds: float, what: str
) -> "subprocess.CompletedProcess[str]":
    result = _run([engine, *words], seconds)
    if result.returncode:
        output = " ".join(result.stderr.split()) or " ".join(result.stdout.split())
        raise HoustonError(
            f"{what}: {output[-_SHOWN_CHARACTERS:] or f'exit code {result.returncode}'}",
            "Nothing was imported.",
            f"{Path(engine).name} {' '.join(words[:1])} shows more.",
        )
    return result


def _run(words: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise HoustonError(
            f"{Path(words[0]).name} failed: {problem}.", "Nothing was imported."
        ) from problem
