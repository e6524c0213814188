"""Names of policies, `policy@7`, and where their files lie in a home."""

import re
from pathlib import Path
from typing import NamedTuple

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home

FAMILY = "policy"
"""What a policy is called where nobody named it."""
BASE = "base"
"""Stands for an engine's own model where a policy is asked for."""
_FAMILY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_NAME = re.compile(rf"({_FAMILY.pattern})@([1-9][0-9]{{0,8}})")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,79}")


class PolicyName(NamedTuple):
    """`policy@7` in its parts."""

    family: str
    number: int
    """1 is the base model."""

    def __str__(self) -> str:
        return f"{self.family}@{self.number}"


def parse(text: str) -> PolicyName:
    """The parts of a name. Raises HoustonError (usage) for what is none."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise HoustonError(
            f"{text[:80]!r} is no policy's name; they read policy@2.",
            next="houston policy list",
            code=ExitCode.USAGE,
        )
    return PolicyName(found[1], int(found[2]))


def is_policy(text: str) -> bool:
    """Whether this reads as the name of a policy."""
    return _NAME.fullmatch(text) is not None


def check_family(text: str) -> str:
    """A family's name as it is. Raises HoustonError (usage)."""
    if not _FAMILY.fullmatch(text) or text == BASE:
        raise HoustonError(
            f"{text[:80]!r} cannot name a policy: letters, digits, `.`, `_` and `-`, at most 48; "
            f"`{BASE}` is the engine's own model.",
            code=ExitCode.USAGE,
        )
    return text


def is_run(text: str) -> bool:
    """Whether this can name a training run: it is the name of a folder, too."""
    return _RUN.fullmatch(text) is not None


def policies_folder(home: Home) -> Path:
    """Where weights of policies lie."""
    return home.path / "policies"


def training_folder(home: Home) -> Path:
    """Where training runs have their folders: data, checkpoints, progress.json, log.txt."""
    return home.path / "training"
