"""Policies of a few words for tests of training, each made once in a run of tests.

Making one takes a processor for up to a minute, so the processes that run tests share it: the first
that needs it makes it, and others wait meanwhile.
"""

import contextlib
import fcntl
from pathlib import Path
from typing import Literal

import pytest

from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy
from houston_shared.errors import HoustonError

RECIPES = {
    "medium": TinyRecipe(parameters=300_000, worlds=64, wrong=0.5, enough=0.25, settled=1),
    "errands": TinyRecipe(
        parameters=300_000, level="errands", wrong=0.1, worlds=64, enough=0.2, settled=1
    ),
}
"""Of levels of word-worlds. They solve a tenth and a fifth, so that groups of few differ: of a
worse one an update may train nothing, and makes no version."""


def tiny_policy(level: Literal["medium", "errands"], factory: pytest.TempPathFactory) -> Path:
    """The folder of that policy; how much it solves is not promised."""
    own = factory.getbasetemp()
    shared = own.parent if own.name.startswith("popen-") else own  # as xdist names them
    folder = shared / f"tiny-policy-{level}"
    with (shared / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with contextlib.suppress(HoustonError):  # it solves fewer or more than it should
                make_tiny_policy(folder, RECIPES[level], lambda line: None)
    return folder
