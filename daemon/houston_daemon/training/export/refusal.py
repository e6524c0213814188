"""When an export is refused: rows that a consumer would mistrain, or nothing of use to it."""

from collections.abc import Sequence
from typing import Protocol

from houston_daemon.training.export.building import Building
from houston_daemon.training.export.manifest import File, LeftOut
from houston_shared.errors import HoustonError

NAMED = 5
"""Rows that an error names with each reason."""
REASONS = 4
"""Reasons that it names."""


class _Asked(Protocol):
    @property
    def format(self) -> str: ...
    @property
    def leave_out(self) -> bool: ...


def check(asked: _Asked, building: Building, data: File) -> None:
    """Raise HoustonError unless what was written is what will be trained, or raw."""
    if building.refused and not asked.leave_out:
        raise _mistrained(asked.format, building.refused)
    if not data.rows or not (data.trained or building.format.untrained):
        left = [*building.refused, *building.untrained]
        why = f": {_said(left)}" if left else ": these rollouts have no closed step"
        verdicts = "houston verdict R shows what was masked and why"
        raise HoustonError(
            f"Nothing would be trained{why}.",
            "Nothing was exported.",
            "Correct what is named" if building.refused else verdicts,
        )


def _mistrained(format: str, refused: Sequence[LeftOut]) -> HoustonError:
    count = len(refused)
    what = "1 row or step" if count == 1 else f"{count} rows or steps"
    return HoustonError(
        f"{what} cannot stand in a file for {format}: {_said(refused)}.",
        "Nothing was exported.",
        "Mask what is named (houston verdict), or export ids (--format trl); the same with"
        " --leave-out goes without it and names all of it in the manifest",
    )


def _said(rows: Sequence[LeftOut]) -> str:
    """Rows by reason: some of them, and how many more."""
    by: dict[str, list[str]] = {}
    for one in rows:
        by.setdefault(one.why, []).append(one.row)
    parts = []
    for why, names in list(by.items())[:REASONS]:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        parts.append(f"{', '.join(names[:NAMED])}{more}: {why.rstrip('.')}")
    if len(by) > REASONS:
        parts.append(f"{len(by) - REASONS} more reasons")
    return "; ".join(parts)
