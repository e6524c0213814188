"""Which rollouts refine which, and what a critic said."""

from typing import Any, NamedTuple

from houston_shared.records import Refinement
from houston_shared.store import rollout_queries
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.rollout_queries import RolloutRow


class RefinementRow(NamedTuple):
    """A rollout that refines another one."""

    rollout: str
    critic: str
    """The critic's policy, else its engine."""
    state: str
    score: float | None
    """Its last score, 0 to 100."""


def list_refinements(rollout: str) -> ReadPlan[list[RefinementRow]]:
    """Of a rollout (a whole id), in the order in which they were started."""
    rows = yield RunSql(
        "SELECT f.rollout, f.critic, r.state, r.last_score FROM refinements f"
        " JOIN rollouts r ON r.id = f.rollout WHERE f.refines = ? ORDER BY f.seq",
        (rollout,),
    )
    return [RefinementRow(*row) for row in rows]


def read_refined(rollout: RolloutRow) -> ReadPlan[Refinement | None]:
    """What a rollout refines; None where it refines nothing.

    The text is empty where the event that has it was erased.
    """
    rows = yield RunSql("SELECT refines, critic FROM refinements WHERE rollout = ?", (rollout.id,))
    for refines, critic in rows:
        spec = yield from rollout_queries.read_spec_if_kept(rollout)
        text = spec.refines.text if spec and spec.refines else ""
        return Refinement(rollout=refines, text=text, critic=critic)
    return None


def refinements_json(refines: Refinement | None, refined_by: list[RefinementRow]) -> dict[str, Any]:
    """What `rollout show --json` says of both sides."""
    return {
        "refines": None
        if refines is None
        else {"rollout": refines.rollout, "critic": refines.critic, "text": refines.text},
        "refined_by": [row._asdict() for row in refined_by],
    }
