"""Runs pip as a child process and turns its failure into one sentence.

It is this Python's pip, or where that has none (environments of uv) that of the environment which
is made.

Knows pip's command line only. Indexes, proxies and certificates are the user's own pip settings.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from houston_shared.errors import HoustonError

_QUIET = ("--disable-pip-version-check", "--no-input", "--quiet")


def here() -> bool:
    """Whether this Python has a pip."""
    return importlib.util.find_spec("pip") is not None


def download(python: Path, requirement: str, folder: Path) -> Path:
    """Download the wheel of `requirement` for `python`, without its dependencies."""
    words = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    _pip(python, words)
    return next(folder.glob("*.whl"))


def install(python: Path, arguments: Sequence[str]) -> None:
    """Install into the environment of `python`; it needs a pip only where this Python has none."""
    _pip(python, ["install", *arguments])


def _pip(python: Path, arguments: Sequence[str]) -> None:
    which = [sys.executable, "-m", "pip", "--python", str(python)]
    command = [*(which if here() else [str(python), "-m", "pip"]), *_QUIET]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise HoustonError(
            f"pip could not get {arguments[-1]}: {_reason(done.stderr or done.stdout)}",
            next="Check the network and pip's index settings, then run the command again.",
        )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it gave no reason."])[-1].removeprefix("ERROR: ")
