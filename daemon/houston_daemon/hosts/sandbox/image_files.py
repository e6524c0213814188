"""The files of a container's image as a rollout's own: unpacked once, copied for an evaluator.

An image is a tar file from `podman export` or `docker export`; no container runs. Device files in
it are left out, and set-user-id bits have no effect, since bubblewrap maps folders without them.
`sandbox_profile` maps it.
"""

import logging
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)
_UNPACK_SECONDS = 1_800
_COPY_SECONDS = 1_800
_AGENTS_DOING = (
    ": Permission denied",
    ": No such file or directory",
    ": Not a directory",
    ": Too many levels of symbolic links",
    ": File name too long",
    ", as it was replaced while being copied",
)
"""How cp's lines end of what an agent has made, or changes meanwhile."""
_SESSION_PROGRAMS = ("bash", "script", "tty")
"""What a session runs: of the packages bash, bsdutils or util-linux, and coreutils."""
_HOST_FILES = ("resolv.conf", "hosts")
"""In `etc`, what an engine leaves of its own; bubblewrap makes anew what is mapped there."""


def unpack_image(file: Path, folder: Path) -> None:
    """Unpack a tar file next to the folder and move it there; does nothing if that was done before.

    Raises HoustonError for a file that is no such image.
    """
    if folder.exists():
        return
    staging_folder = folder.with_name(f"{folder.name}.new")
    if staging_folder.exists():  # what an earlier try left
        untrusted_files.remove_folder(staging_folder)
    staging_folder.mkdir(parents=True)
    tar = ["tar", "-x", "-f", str(file), "-C", str(staging_folder), "--no-same-owner"]
    # Anchored: the image's own devices only, not what lies in any other folder of that name.
    tar += ["--anchored", "--exclude=dev/*", "--exclude=./dev/*"]
    _run(tar, _UNPACK_SECONDS, f"The image {file} cannot be unpacked")
    # Some images have files that not even their owner may read, which no copy could be made of.
    readable = ["chmod", "-R", "u+rwX", "--", str(staging_folder)]
    _run(readable, _UNPACK_SECONDS, f"The image {file} cannot be made readable")
    if not (staging_folder / "etc").is_symlink():  # it could lead to this machine's own
        for name in _HOST_FILES:
            (staging_folder / "etc" / name).unlink(missing_ok=True)
    if missing := [name for name in _SESSION_PROGRAMS if not _has_program(staging_folder, name)]:
        untrusted_files.remove_folder(staging_folder)
        raise HoustonError(
            f"The image {file} has no {', '.join(missing)}, which sessions need.",
            "The rollout has no sandbox.",
            "Add that to the image, and import the task again.",
        )
    staging_folder.rename(folder)


def check_image_file(file: Path, image: str) -> None:
    """Raise HoustonError for a tar file that lacks what sessions run. image: its name, for people.

    Both merged and separate `bin` folders are looked at; what links lead to is not.
    """
    listed = _run(["tar", "-t", "-f", str(file)], _UNPACK_SECONDS, f"{image} cannot be listed")
    names = {line.removeprefix("./") for line in listed.splitlines()}
    missing = [name for name in _SESSION_PROGRAMS if not {f"usr/bin/{name}", f"bin/{name}"} & names]
    if missing:
        raise HoustonError(
            f"The image {image} has no {', '.join(missing)}, which sessions need.",
            "No image was written.",
            "Install in it the packages that have them; in Debian: bash, bsdutils and coreutils.",
        )


def _has_program(root: Path, name: str) -> bool:
    """Whether an image has a program. `bin` is not followed where it is a link: it may be an
    absolute one, to this machine's own."""
    folders = [root / "usr/bin", *([] if (root / "bin").is_symlink() else [root / "bin"])]
    return any(os.path.lexists(folder / name) for folder in folders)


def copy_sandbox(sandbox: SandboxProfile, folder: Path) -> SandboxProfile:
    """The same sandbox over copies of its workspace and its image, which lie in `folder`."""
    workspace = folder / "workspace"
    copy_readable(sandbox.workspace, workspace)
    if sandbox.image is None:
        return replace(sandbox, workspace=workspace)
    image = folder / "image"
    copy_readable(sandbox.image, image)
    return replace(sandbox, workspace=workspace, image=image)


def copy_readable(source: Path, target: Path) -> None:
    """Copy with cp, which shares blocks where the file system can. Files that may not be read, have
    too long a path or vanish meanwhile are left out, so that no agent can use them to avoid its
    score."""
    program = shutil.which("cp") or "/bin/cp"
    words = [program, "--archive", "--reflink=auto", "--", str(source), str(target)]
    what = f"{source} cannot be copied for the evaluator"
    _run(words, _COPY_SECONDS, what, _AGENTS_DOING)
    if not target.is_dir():
        raise HoustonError(f"{what}: it is gone.")


def _run(words: list[str], seconds: int, what: str, passed_over: tuple[str, ...] = ()) -> str:
    """What it printed. Raises HoustonError, which begins with `what`.

    passed_over: how lines of errors end that are no failure.
    """
    try:
        result = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise HoustonError(f"{what}: {problem}.") from problem
    problems = result.stderr.splitlines() if passed_over and result.returncode == 1 else []
    if problems and all(line.endswith(passed_over) for line in problems):
        log.warning("%s whole: %s", what, "; ".join(problems)[:300])
    elif result.returncode:
        reason = " ".join(result.stderr.split())[:300]
        raise HoustonError(f"{what}: {reason or f'exit code {result.returncode}'}.")
    return result.stdout
