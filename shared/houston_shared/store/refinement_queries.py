"""Which rollouts refine which, and what a critic said."""

from typing import Any, NamedTuple

from houston_shared.critic_gain import critique_gain, unit_score
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


class TriedCritique(NamedTuple):
    """A refinement with what it was told."""

    rollout: str
    critic: str
    text: str
    """Empty where it was erased."""
    state: str
    score: float | None
    """0 to 100."""
    gain: float | None
    """`critic_gain`; None while it goes on."""


class RefinementTree(NamedTuple):
    """An attempt and all that tried again."""

    attempt: str
    score: float | None
    """0 to 100."""
    tried: tuple[TriedCritique, ...]


def read_refinement_tree(rollout: str) -> ReadPlan[RefinementTree | None]:
    """The tree in which a rollout (a whole id) is, as the attempt or as a refinement; None where it
    is in none."""
    rows = yield RunSql("SELECT refines FROM refinements WHERE rollout = ?", (rollout,))
    attempt = yield from rollout_queries.find_rollout(rows[0][0] if rows else rollout)
    tried = []
    for row in (yield from list_refinements(attempt.id)):
        refined = yield from rollout_queries.find_rollout(row.rollout)
        refinement = yield from read_refined(refined)
        ended = refined.state == "finished"
        gain = critique_gain(unit_score(attempt.last_score), unit_score(row.score))
        text = refinement.text if refinement else ""
        tried.append(TriedCritique(*row[:2], text, row.state, row.score, gain if ended else None))
    return RefinementTree(attempt.id, attempt.last_score, tuple(tried)) if tried else None


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
