"""When an export is refused: rows that a consumer would mistrain, or nothing left to train."""

from collections.abc import Sequence
from typing import Protocol

from houston_daemon.training.export.building import Building
from houston_daemon.training.export.manifest import File, LeftOut
from houston_shared.errors import HoustonError

NAMED = 5
"""Rows that an error names with each reason."""


class _Asked(Protocol):
    @property
    def format(self) -> str: ...
    @property
    def leave_out(self) -> bool: ...


def check(asked: _Asked, building: Building, data: File) -> None:
    """Raise HoustonError unless what was written is what will be trained."""
    if building.refused and not asked.leave_out:
        raise _mistrained(asked.format, building.refused)
    if not data.rows or not data.trained:
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
    what = "1 row" if count == 1 else f"{count} rows"
    return HoustonError(
        f"{what} cannot stand in a file for {format}: {_said(refused)}.",
        "Nothing was exported.",
        "Correct what is named (houston verdict, another --format), or the same with --leave-out,"
        " which names them in the manifest",
    )


def _said(rows: Sequence[LeftOut]) -> str:
    """Rows by reason."""
    by: dict[str, list[str]] = {}
    for one in rows:
        by.setdefault(one.why, []).append(one.row)
    parts = []
    for why, names in by.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        parts.append(f"{', '.join(names[:NAMED])}{more}: {why.rstrip('.')}")
    return "; ".join(parts)
