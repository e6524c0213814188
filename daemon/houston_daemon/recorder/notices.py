"""What leaves after a commit besides answers: notices on `live`, and pushes to workers."""

from collections.abc import Callable, Iterable

from houston_daemon.recorder.sockets import Live, Router
from houston_daemon.recorder.store import Store
from houston_shared.wire import PUSH, Control, ControlPush, Notice

CONTROL_KINDS = frozenset({"guidance", "edit", "withdraw", "delivery", "state", "cancel"})
"""Kinds of events that may change what is wanted of a worker."""


def publish(store: Store, live: Live, epoch: int) -> None:
    """One notice for each rollout and kind of the batch, with its newest sequence."""
    live.count()
    if not live.listeners:
        return
    newest = {(event.rollout, event.kind): event.seq for event in store.journal.appended}
    for (rollout, kind), seq in sorted(newest.items(), key=lambda item: item[1]):
        live.publish(Notice(epoch, seq, rollout, kind))


def touched(store: Store) -> set[str]:
    """Rollouts whose worker may have to hear something."""
    return {event.rollout for event in store.journal.appended if event.kind in CONTROL_KINDS}


def push(
    store: Store, router: Router, rollouts: Iterable[str], controls: Callable[[str], Control]
) -> None:
    """Tell workers at once what changed; who is not reached hears it in the next ack."""
    for rollout in rollouts:
        news = store.workers.push(rollout, controls(rollout))
        if news and not router.send(news.routing, PUSH, ControlPush(control=news.control)):
            worker = store.workers.of(rollout)
            if worker:
                worker.told = None
