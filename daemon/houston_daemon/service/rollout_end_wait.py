"""Waits until rollouts have ended, as suites, trainers and experiments do.

State is read from the store, not from the daemon, which the waiting process may outlive. Blocks;
used by one thread at a time.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from houston_daemon.recorder.rollout_states import SELF_ENDING_PAUSES
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES
from houston_shared.store import outcome_queries, rollout_queries
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize
from houston_shared.worker_waits import read_worker_waits

_LOOK_SECONDS = 0.2
Rows = Mapping[str, RolloutRow]
"""Rollouts by id."""


def wait_until_ended(
    home: Home, rollouts: Sequence[str], look: Callable[[Rows], None]
) -> dict[str, RolloutRow]:
    """The rollouts by id, once all of them have ended.

    look: called about every 0.2 s with how they stand, until then; it ends the waiting by raising.
    Raises HoustonError where one of them is not in the home.
    """
    with Reader(home) as reader:
        while True:
            rows = reader.run(outcome_queries.find_rollouts(rollouts))
            if missing := [rollout for rollout in rollouts if rollout not in rows]:
                raise HoustonError(
                    f"Rollout {missing[0]} is no longer in the home.",
                    "The wait for it has ended.",
                    "houston rollout list",
                )
            if not unfinished(rows.values()):
                return rows
            look(rows)
            time.sleep(_LOOK_SECONDS)


def unfinished(rows: Iterable[RolloutRow]) -> list[RolloutRow]:
    """Those that have not ended."""
    return [row for row in rows if row.state not in ENDED_STATES]


def waiting_for_a_person(rows: Iterable[RolloutRow]) -> list[RolloutRow]:
    """Paused rollouts that nothing works on until a person resumes them; not those that the daemon
    resumes when engine, host or room is back."""
    return [
        row
        for row in rows
        if rollout_queries.is_at_rest(row) and row.paused_by not in SELF_ENDING_PAUSES
    ]


def waiting_sentence(home: Home, rows: Iterable[RolloutRow]) -> str:
    """What keeps rollouts from ending, with one of the paused ones; empty while nothing does."""
    unfinished_rows = unfinished(rows)
    paused = [row for row in unfinished_rows if row.state == "paused"]
    waits = read_worker_waits(home)
    queued = Counter(
        waits.reason(rollout_queries.sampling_engines(row))
        for row in unfinished_rows
        if row.state == "queued"
    )
    parts = []
    if paused:
        count, first = pluralize(len(paused), "rollout"), paused[0]
        parts.append(f"{count} paused, {first.id} by {first.paused_by}: {first.reason}")
    parts += [f"{pluralize(n, 'rollout')} queued: {why}" for why, n in queued.items() if why]
    return "; ".join(parts)
