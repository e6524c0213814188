"""Derived rows: what each event means for the small tables. A pure function of the events.

The live path calls `apply` in the transaction that stores an event; `verify` calls it with every
event of a home on empty tables and compares. Therefore nothing here reads the journal, a clock or
anything outside the tables it writes, and the order of events is all that matters.

Not derived, and not verified: `rollouts.activity`, `annotators` and `looks` (presence: seconds old
at best).
"""

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from houston_daemon.recorder.derived import people as derive_people
from houston_daemon.recorder.derived import rollout as derive_rollout
from houston_daemon.recorder.derived import step as derive_step
from houston_daemon.recorder.derived import training as derive_training
from houston_shared.records import Record


class Event(NamedTuple):
    """The header of one event, in the order in which the chain covers it."""

    seq: int
    rollout: str
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    """UTC microseconds."""


Rule = Callable[[sqlite3.Connection, Any, Any], None]

RULES: dict[str, Rule] = {
    "daemon": derive_rollout.daemon,
    "task": derive_rollout.task,
    "spec": derive_rollout.spec,
    "assigned": derive_rollout.assigned,
    "state": derive_rollout.state,
    "cancel": derive_rollout.cancel,
    "clock": derive_rollout.nothing,
    "head": derive_rollout.head,
    "sample": derive_step.sample,
    "intent": derive_step.intent,
    "result": derive_step.result,
    "observation": derive_step.observation,
    "delivery": derive_step.delivery,
    "fork": derive_step.fork,
    "guidance": derive_people.guidance,
    "edit": derive_people.edit,
    "withdraw": derive_people.withdraw,
    "bookmark": derive_people.bookmark,
    "reorder": derive_people.reorder,
    "verdict": derive_people.verdict,
    "claim": derive_people.claim,
    "stop": derive_rollout.nothing,
    "jumped": derive_rollout.nothing,
    "refused": derive_rollout.nothing,
    "erased": derive_rollout.nothing,  # rows that change are derived again from the remainders
    "repaired": derive_rollout.nothing,
    "cleaned": derive_rollout.nothing,
    "policy": derive_training.policy,
    "training": derive_training.asked,
    "training-moved": derive_training.moved,
    "training-cancel": derive_training.cancel,
    "activation": derive_training.activation,
    "activated": derive_training.activated,
}

TABLES: dict[str, str] = {
    "meta": "key",
    "tasks": "name",
    "rollouts": "id",
    "steps": "rollout, step, attempt",
    "samples": "seq",
    "forks": "rollout, number",
    "guidance": "id",
    "verdicts": "rollout, step, attempt, source",
    "evaluations": "rollout, number",
    "terminals": "rollout, host, name",
    "terminal_spans": "rollout, step, attempt, host, terminal",
    "file_changes": "rollout, step, attempt, path",
    "searches": "rollout, step, attempt, idx",
    "policies": "name",
    "training_runs": "id",
    "activations": "seq",
    "bookmarks": "rollout, step, author",
    "claims": "rollout",
    "notes": "seq",
}
"""Every derived table and its key."""

PRESENCE: dict[str, frozenset[str]] = {"rollouts": frozenset({"activity"})}
"""Columns of derived tables that no event decides."""


def apply(connection: sqlite3.Connection, event: Event, body: Record) -> None:
    """Write the derived rows of one event. Active time only grows.

    Raises KeyError for a kind without a rule and sqlite3.Error for what the tables refuse.
    """
    RULES[event.kind](connection, event, body)
    if event.rollout and event.kind != "observation":  # its rule does this with the rest
        connection.execute(
            "UPDATE rollouts SET updated_at = ?, last_seq = ?, active_us = max(active_us, ?)"
            " WHERE id = ?",
            (event.at, event.seq, getattr(body, "active_us", 0), event.rollout),
        )
