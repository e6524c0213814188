"""What `verify` found: one sentence each, with where it is."""

from collections.abc import Iterable
from typing import Literal

import msgspec

What = Literal["structure", "chain", "body", "blob", "missing", "table", "head", "end"]
LIMIT = 1_000
"""Findings that are kept; a store with more is beyond listing."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is not as it was stored."""

    what: What
    text: str
    seq: int = 0
    """The event, 0 where it is none's."""
    rollout: str = ""
    table: str = ""


class Findings:
    """All of them, in the order in which they were met."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(self, what: What, text: str, seq: int = 0, rollout: str = "", table: str = "") -> None:
        """Take note of one."""
        if len(self.all) < LIMIT:
            self.all.append(Finding(what, _clean(text), seq, _clean(rollout), table))

    def join(self, others: Iterable[Finding]) -> None:
        """Take over what was found elsewhere."""
        self.all += list(others)[: LIMIT - len(self.all)]


def _clean(text: object) -> str:
    """Text that quotes damaged bytes, as text that can be shown and encoded."""
    return str(text).encode("utf-8", "backslashreplace").decode()
