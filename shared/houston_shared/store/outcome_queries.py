"""How finished rollouts ended, as reinforcement learning asks it of many at once."""

from collections.abc import Sequence

from houston_shared.store.journal_events import ReadPlan, RunSql, select_records, split_for_in
from houston_shared.store.rollout_queries import RolloutRow

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


def rollouts_with_cut_answers(rollouts: Sequence[str]) -> ReadPlan[set[str]]:
    """Those with an answer that reached its limit of tokens."""
    cut: set[str] = set()
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(
            f"SELECT DISTINCT st.rollout {_CURRENT_SAMPLES} st.rollout IN ({marks})"
            " AND sa.finish_reason = ?",
            (*part, _CUT_AT_LIMIT),
        )
        cut |= {rollout for (rollout,) in rows}
    return cut


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
