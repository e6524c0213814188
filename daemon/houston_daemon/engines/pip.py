"""Runs pip of this Python as a child process and turns its failure into one sentence.

Knows pip's command line only. Indexes, proxies and certificates are the user's own pip settings.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from houston_shared.errors import HoustonError

_QUIET = ("--disable-pip-version-check", "--no-input", "--quiet")


def download(requirement: str, folder: Path) -> Path:
    """Download the wheel of `requirement` without its dependencies; return its path."""
    _pip(["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement])
    return next(folder.glob("*.whl"))


def install(python: Path, arguments: Sequence[str]) -> None:
    """Install into the environment of `python`, which needs no pip of its own."""
    _pip(["--python", str(python), "install", *arguments])


def _pip(arguments: Sequence[str]) -> None:
    if importlib.util.find_spec("pip") is None:
        raise HoustonError(
            f"{sys.executable} has no pip.", next="Run `python -m ensurepip` and try again."
        )
    done = subprocess.run(
        [sys.executable, "-m", "pip", *_QUIET, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise HoustonError(
            f"pip could not get {arguments[-1]}: {_reason(done.stderr or done.stdout)}",
            next="Check the network and pip's index settings, then run the command again.",
        )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it gave no reason."])[-1].removeprefix("ERROR: ")
