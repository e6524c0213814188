"""Freeing what ended rollouts keep on the host: who may be freed, and what the journal says of it.

The order is carried out by a process of its own (`upkeep.cleaning`), which the recorder starts
after the commit; when it is done, a `cleaned` event says who asked, how much went, and what stayed.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.hosts.ssh.there import there
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import rebuild, states
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Rollout, Store
from houston_daemon.recorder.upkeep.cleaner import Order, Report
from houston_shared.errors import ExitCode
from houston_shared.records import RolloutSpec
from houston_shared.secret_values import redact
from houston_shared.store.bodies import Cleaned
from houston_shared.wire import Done
from houston_shared.wire_operators import CleanRollouts

LIMIT = 10_000
"""Rollouts of one message."""


class Asked(NamedTuple):
    """An order, and who gave it."""

    order: Order
    author: Author


def clean(store: Store, message: CleanRollouts, author: Author) -> Done:
    """Take the orders of one message; all of its rollouts must have ended. Raises HoustonError.

    What it says is the newest event before: those of the answer come behind it.
    """
    if not 0 < len(message.rollouts) <= LIMIT:
        raise denial(f"Name 1 to {LIMIT} rollouts.", code=ExitCode.USAGE)
    before = store.journal.seq
    named = dict.fromkeys(message.rollouts)
    asked = [Asked(_order(store, one, message), author) for one in named]
    for one in asked:
        if not Path(one.order.root).is_absolute():  # it keeps nothing on a host
            note(store, one, Report(one.order.rollout, 0))
    somewhere = [one for one in asked if Path(one.order.root).is_absolute()]
    store.later.append(lambda: store.cleaning.extend(somewhere))
    return Done(seq=before)


def portion(waiting: list[Asked]) -> dict[str, Asked]:
    """Take out of `waiting` what one process does: each rollout once, for who asked first.

    Who else asked for the same has an answer of their own: they may have asked for more.
    """
    taken: dict[str, Asked] = {}
    rest = [one for one in waiting if taken.setdefault(one.order.rollout, one) is not one]
    waiting[:] = rest
    return taken


def note(store: Store, asked: Asked, report: Report) -> None:
    """Say in the journal what was freed, inside the open transaction."""
    body = Cleaned(
        by=asked.author.by,
        bytes=report.bytes,
        snapshots=asked.order.snapshots and not report.left,
        left=redact(report.left),
        **asked.author.fields,
    )
    store.journal.append(Key(asked.order.rollout), "cleaned", body)


def _order(store: Store, rollout: str, message: CleanRollouts) -> Order:
    row = store.rollout(rollout)
    if row is None:
        raise denial(f"There is no rollout {rollout[:80]!r}.", "houston rollout list")
    if not states.ended(row) or store.workers.of(row.id) is not None:
        why = f"has not ended ({row.state})" if not states.ended(row) else "is just ending"
        raise denial(
            f"{row.id} {why}: it works with what would be freed.",
            f"houston rollout cancel {row.id} --wait",
            "Nothing was freed.",
        )
    waiting = store.connection.execute(
        "SELECT id FROM rollouts WHERE parent = ? AND steps = parent_step"
        " AND state IN ('queued', 'running', 'paused')",
        (row.id,),
    ).fetchone()
    if waiting:
        raise denial(
            f"The branch {waiting[0]} has yet to take its workspace from {row.id}.",
            f"houston rollout show {waiting[0]}",
            "Nothing was freed.",
        )
    spec = _spec(store, row)
    if spec is None:
        return Order("", row.id, message.snapshots)
    elsewhere = tuple(there(spec, host) for host in sorted(spec.hosts))
    return Order(spec.host_root, row.id, message.snapshots, elsewhere)


def _spec(store: Store, row: Rollout) -> RolloutSpec | None:
    """What the rollout was started with: the hosts that it used, and their roots."""
    try:
        return rebuild.record(store, row.spec_seq, RolloutSpec)
    except msgspec.MsgspecError:
        raise denial(
            f"Event {row.spec_seq} is damaged: where {row.id} keeps its files is not known.",
            "houston verify",
            "Nothing was freed.",
            ExitCode.DAMAGED,
        ) from None
