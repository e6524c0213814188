"""What purification did to rollouts: failures before and after it, recoveries, and what they cost.

Failures are calls whose result was an error. Everything is counted from the rows of steps, samples
and events; no body is read, so that a trainer may ask for a whole batch.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from houston_shared.records import PURIFIED_ENGINE
from houston_shared.store.journal_events import ReadPlan, RunSql, split_for_in

_ATTEMPTS = """
SELECT s.rollout, s.step, s.attempt, s.current, s.errors, s.calls, p.role = 'lookahead',
 p.engine = ?, p.seconds + iif(p.role = 'lookahead', (SELECT coalesce(max(e.at) - s.started_at, 0)
 FROM events e WHERE e.rollout = s.rollout AND e.step = s.step AND e.attempt = s.attempt
 AND e.part IS NOT NULL) / 1e6, 0)
FROM steps s JOIN samples p ON p.seq = s.sample_seq
WHERE EXISTS (SELECT 1 FROM steps c WHERE c.rollout = s.rollout AND c.step = s.step AND c.current
 AND c.observation_seq IS NOT NULL) AND s.rollout IN
"""


class PurificationCounts(msgspec.Struct, kw_only=True):
    """What purification did to one rollout; a part of the JSON of `rollout show --json`."""

    steps: int = 0
    """Closed steps of its own."""
    failures: int = 0
    """Failed calls that the policy made, in every attempt: tool failures of the trajectory."""
    failures_before: int = 0
    """Of them, those of first attempts: what the trajectory would hold as it was sampled."""
    failures_after: int = 0
    """Failed calls of the attempts that count: what later prompts and rows hold."""
    no_action_before: int = 0
    """First attempts that were no action."""
    no_action_after: int = 0
    """Steps that are none as they count."""
    purified: int = 0
    """Steps that were replaced by a correction."""
    recovered_at: dict[int, int] = {}
    """By number of the correction that came right, from 1, how many steps it replaced."""
    not_recovered: int = 0
    """Steps whose corrections were sampled and that stayed as they were."""
    lookahead_samples: int = 0
    """Corrections that were sampled."""
    lookahead_seconds: float = 0.0
    """Time that sampling and running them took."""


def count_purification(rollouts: Sequence[str]) -> ReadPlan[dict[str, PurificationCounts]]:
    """By rollout (whole ids), over its closed steps; of a branch without the past that it shares.

    Erased bodies change nothing here.
    """
    counts = {rollout: PurificationCounts() for rollout in rollouts}
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(
            f"{_ATTEMPTS} ({marks}) ORDER BY s.rollout, s.step, s.attempt",
            (PURIFIED_ENGINE, *part),
        )
        for rollout, *row in rows:
            _count_attempt(counts[rollout], *row)
    return counts


def _count_attempt(
    counts: PurificationCounts,
    step: int,
    attempt: int,
    current: int,
    errors: int,
    calls: int,
    ahead: int,
    purified: int,
    seconds: float,
) -> None:
    """Add one attempt at a step; attempts come in order."""
    first = attempt == 1
    counts.steps += first
    counts.failures += errors
    counts.failures_before += errors * first
    counts.failures_after += errors * current
    counts.no_action_before += first and not calls
    counts.no_action_after += bool(current and not calls)
    if ahead:
        counts.lookahead_samples += 1
        counts.lookahead_seconds = round(counts.lookahead_seconds + seconds, 6)
        counts.not_recovered += attempt == 2  # taken back where a purified attempt follows
    if purified:
        number = attempt - 2  # attempt 2 is the first correction, and the purified one comes last
        counts.purified += 1
        counts.not_recovered -= 1
        counts.recovered_at[number] = counts.recovered_at.get(number, 0) + 1


def purification_json(counts: PurificationCounts) -> dict[str, Any]:
    """As `rollout show --json` has it: keys of objects are texts."""
    fields = msgspec.structs.asdict(counts)
    return {**fields, "recovered_at": {str(key): n for key, n in counts.recovered_at.items()}}


def purification_text(counts: PurificationCounts) -> str:
    """One line for people; empty where no correction was sampled."""
    if not counts.lookahead_samples:
        return ""
    return (
        f"{counts.purified} steps purified, {counts.not_recovered} not; failed calls"
        f" {counts.failures_before} before, {counts.failures_after} after;"
        f" {counts.lookahead_samples} corrections in {counts.lookahead_seconds:.1f} s"
    )
