"""Scores of process reward models: one per policy for each attempt at a step.

An existing score stays. A step that is missing, erased or replaced by another attempt gets none,
and the answer names it. A step that a branch shares is scored with the rollout that owns it. The
sender decides what is scored (`training.prm`).
"""

from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import UNCHANGED
from houston_shared.control_messages import MAX_SCORED_STEPS, StepScore, StoreProcessRewards
from houston_shared.errors import NotFound, UsageError
from houston_shared.store.event_bodies import ProcessRewardGiven
from houston_shared.wire import RequestStored

_SELECT_SCORABLE = """
SELECT EXISTS (SELECT 1 FROM process_rewards p WHERE p.rollout = s.rollout AND p.step = s.step
               AND p.attempt = s.attempt AND p.policy = ?4)
FROM steps s JOIN events e ON e.seq = s.sample_seq WHERE s.rollout = ?1 AND s.step = ?2
AND s.attempt = ?3 AND s.current AND s.observation_seq IS NOT NULL AND NOT e.erased
"""
"""A row where an attempt can have a score: whether this policy has given it one."""


def store_process_rewards(
    store: Store, message: StoreProcessRewards, author: Author
) -> RequestStored:
    """Store the scores that are new; sent again, they change nothing.

    Raises HoustonError for a policy that is not there, and for too many scores.
    """
    if not 0 < len(message.scores) <= MAX_SCORED_STEPS:
        raise UsageError(f"A message scores 1 to {MAX_SCORED_STEPS} steps.", UNCHANGED)
    policy_row = store.connection.execute(
        "SELECT 1 FROM policies WHERE name = ?", (message.policy,)
    ).fetchone()
    if policy_row is None:
        raise NotFound(
            f"There is no policy {message.policy[:80]!r} that could have scored steps.",
            UNCHANGED,
            "houston policy list",
        )
    skipped = [
        place
        for place, score in enumerate(message.scores)
        if not _store_score(store, message.policy, score, author)
    ]
    return RequestStored(seq=store.journal.seq, skipped=tuple(skipped))


def _store_score(store: Store, policy: str, score: StepScore, author: Author) -> bool:
    """Whether the attempt has a score of the policy now."""
    key = EventKey(score.rollout, score.step, score.attempt)
    is_scored = store.connection.execute(_SELECT_SCORABLE, (*key[:3], policy)).fetchone()
    if is_scored is None:
        return False
    if not is_scored[0]:
        body = ProcessRewardGiven(
            policy=policy, score=score.score, weak=score.weak, by=author.name, **author.event_fields
        )
        store.journal.append(key, "process-reward", body)
    return True
