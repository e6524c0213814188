"""How finished rollouts ended, as reinforcement learning asks it of many at once."""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from houston_shared.store import journal_events
from houston_shared.store.journal_events import (
    JournalEvent,
    ReadPlan,
    RunSql,
    column_list,
    rows_to_records,
    select_records,
    split_for_in,
)
from houston_shared.store.rollout_queries import RolloutRow

BUDGET_REASON = "budget: "
"""Begins why a rollout is over whose steps or time were spent."""
_CUT_AT_LIMIT = "length"
"""How an answer ended that reached its limit of tokens."""
_CURRENT_SAMPLES = "FROM steps st JOIN samples sa ON sa.seq = st.sample_seq WHERE st.current AND"


def find_rollouts(rollouts: Sequence[str]) -> ReadPlan[dict[str, RolloutRow]]:
    """Rollouts by id; those that are not there are left out."""
    by_id: dict[str, RolloutRow] = {}
    for marks, part in split_for_in(rollouts):
        rows = yield from select_records(RolloutRow, f"rollouts WHERE id IN ({marks})", part)
        by_id |= {row.id: row for row in rows}
    return by_id


Overlong = Literal["answer", "result", "budget"]
"""What a limit broke off: an answer at its limit of tokens, a tool's result that was too long for
an observation, or the rollout itself when its steps or its time were spent."""


class _ResultFacts(msgspec.Struct, frozen=True):
    cut: bool = False


def overlong_rollouts(
    rollouts: Sequence[str], kinds: Collection[Overlong]
) -> ReadPlan[dict[str, Overlong]]:
    """Ended rollouts that a limit of one of `kinds` cut off, with the first such kind in the order
    of `Overlong`; others are left out. Attempts that do not count are ignored."""
    by_rollout: dict[str, Overlong] = {}
    for marks, part in split_for_in(rollouts):
        if "budget" in kinds:
            spent = yield RunSql(
                f"SELECT id FROM rollouts WHERE id IN ({marks}) AND reason LIKE ?",
                (*part, f"{BUDGET_REASON}%"),
            )
            by_rollout |= {rollout: "budget" for (rollout,) in spent}
        if "result" in kinds:
            cut = yield from _rollouts_with_cut_results(marks, part)
            by_rollout |= dict.fromkeys(cut, "result")
        if "answer" in kinds:
            answers = yield RunSql(
                f"SELECT DISTINCT st.rollout {_CURRENT_SAMPLES} st.rollout IN ({marks})"
                " AND sa.finish_reason = ?",
                (*part, _CUT_AT_LIMIT),
            )
            by_rollout |= {rollout: "answer" for (rollout,) in answers}
    return by_rollout


def _rollouts_with_cut_results(marks: str, part: tuple[str, ...]) -> ReadPlan[set[str]]:
    """Those of `part` with a result that was cut; every result is read."""
    results = yield RunSql(
        f"SELECT {column_list(JournalEvent, 'e')} FROM events e JOIN steps st USING (rollout,"
        f" step, attempt) WHERE e.rollout IN ({marks}) AND e.part LIKE 'call.%' AND st.current",
        part,
    )
    cut: set[str] = set()
    for event in rows_to_records(JournalEvent, results):
        facts = yield from journal_events.read_event_record(event, _ResultFacts, _NOT_CUT)
        if facts.cut:
            cut.add(event.rollout)
    return cut


_NOT_CUT = _ResultFacts()


def longest_contexts(rollouts: Sequence[str]) -> ReadPlan[dict[str, int]]:
    """Tokens of the longest prompt with its answer, by rollout; none where ids are not known."""
    longest: dict[str, int] = {}
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(
            "SELECT st.rollout,"
            " max(coalesce(sa.prompt_tokens, sa.kept + sa.new_ids) + sa.sampled_ids)"
            f" {_CURRENT_SAMPLES} st.rollout IN ({marks}) GROUP BY st.rollout",
            part,
        )
        longest |= {rollout: int(tokens) for rollout, tokens in rows if tokens is not None}
    return longest


def cached_share(rollouts: Sequence[str]) -> ReadPlan[float]:
    """Share of the prompt tokens of these rollouts that engines had in their caches; 0 for none.

    Samples of which an engine did not say it are left out."""
    cached = prompts = 0
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(
            "SELECT total(sa.cached_tokens), total(sa.prompt_tokens) FROM samples sa JOIN events e"
            f" ON e.seq = sa.seq WHERE sa.cached_tokens IS NOT NULL AND e.rollout IN ({marks})",
            part,
        )
        for some, whole in rows:
            cached, prompts = cached + some, prompts + whole
    return cached / prompts if prompts else 0.0
