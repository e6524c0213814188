"""Refinements: rollouts that try the task of an attempt again, given a critic's words on that
attempt (ECHO, section 3.1, stage 2).

A refinement has the task, variation and seed of the attempt, as they were stored, and its own
workspace; the attempt itself is not shown to the agent. Those of one attempt are a group. The
module queues nothing and waits for nothing.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.records import ENDED_STATES, Refinement, RolloutSpec
from houston_shared.store import rollout_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import RolloutRow

NOTHING_REFINED = "No refinement was started."


class RefinementText(NamedTuple):
    """A text that an attempt is to be refined by."""

    text: str
    critic: str
    """The critic's policy, else its engine."""


def require_ended(rollout: str) -> ReadPlan[RolloutRow]:
    """The row of an attempt (a whole id). Raises HoustonError for one that goes on."""
    row = yield from rollout_queries.find_rollout(rollout)
    if row.state not in ENDED_STATES:
        raise HoustonError(
            f"{rollout} is {row.state}: only an attempt that has ended can be refined.",
            NOTHING_REFINED,
            f"houston tail {rollout} -f",
        )
    return row


def refinement_specs(
    rollout: str, critiques: Sequence[RefinementText], policy: str = ""
) -> ReadPlan[tuple[RolloutSpec, ...]]:
    """A spec for each critique of a rollout (a whole id). policy: that of the attempt by default.

    Raises HoustonError for an attempt that goes on, or whose specification was erased.
    """
    row = yield from require_ended(rollout)
    stored = yield from rollout_queries.read_rollout_spec(row)
    group = f"g-{secrets.token_hex(4)}"
    return tuple(
        msgspec.structs.replace(
            stored,
            rollout="",
            group=group,
            policy=policy or stored.policy or BASE_MODEL,
            parent="",
            parent_step=None,
            origin=None,
            refines=Refinement(rollout=rollout, text=critique.text, critic=critique.critic),
        )
        for critique in critiques
    )
