"""What the manifest of an export says of each rollout that it is made of."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_daemon.training.export.split import Member
from houston_shared.errors import HoustonError
from houston_shared.store.plan import Plan
from houston_shared.store.queries import lineage, progress, rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

_MODEL = ("model", "url", "kind")
"""What tells the model of an engine's settings, the first that is there."""


class Chosen(NamedTuple):
    """A rollout to export."""

    rollout: Rollout
    base: str
    """Model that its engine names; empty where its specification was erased."""
    past_seq: int
    """Newest event of the rollouts whose steps it shares; 0 where it shares none."""

    @property
    def member(self) -> Member:
        """As a split sees it."""
        return Member(self.rollout.id, self.rollout.task, self.rollout.parent)


def read(reader: Reader, ids: Sequence[str]) -> list[Chosen]:
    """The rollouts of these whole ids, in their order; a short read each."""
    return [reader.run(_chosen(id)) for id in ids]


def _chosen(id: str) -> Plan[Chosen]:
    one = yield from rollouts.rollout(id)
    return Chosen(one, (yield from _base(one)), (yield from _past(one.id)))


def _past(id: str) -> Plan[int]:
    newest = 0
    for part in (yield from lineage.stretches(id)):
        if part.rollout != id:
            newest = max(newest, (yield from progress.last_seq(part.rollout)))
    return newest


def _base(one: Rollout) -> Plan[str]:
    try:
        settings = (yield from rollouts.spec(one)).engine_settings
    except HoustonError:
        return ""
    return next((str(settings[key]) for key in _MODEL if settings.get(key)), one.engine)
