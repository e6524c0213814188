"""One line of the doctor's report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from houston_shared.config import Loaded


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    next: str = ""


Check = Callable[[Loaded], Iterator[Finding]]


def ok(name: str, found: str) -> Finding:
    """All is well."""
    return Finding(name, "ok", found)
