"""What the manifest of an export says of each rollout that it is made of."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_daemon.training.export import content
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
    dialect: str
    """Dialect of its engine; empty where it is not known, or the endpoint renders by itself."""
    past_seq: int
    """Newest event of the rollouts whose steps it shares; 0 where it shares none."""


def read(reader: Reader, ids: Sequence[str]) -> list[Chosen]:
    """The rollouts of these whole ids, in their order; a short read each."""
    return [reader.run(_chosen(id)) for id in ids]


def members(reader: Reader, chosen: Sequence[Chosen]) -> list[Member]:
    """The rollouts as a split sees them."""
    folders: dict[str, str] = {}
    return [
        Member(one.id, one.task, one.parent, content.keys(reader, one, folders))
        for one in (known.rollout for known in chosen)
    ]


def _chosen(id: str) -> Plan[Chosen]:
    one = yield from rollouts.rollout(id)
    return Chosen(one, *(yield from _model(one)), (yield from _past(one.id)))


def _past(id: str) -> Plan[int]:
    newest = 0
    for part in (yield from lineage.stretches(id)):
        if part.rollout != id:
            newest = max(newest, (yield from progress.last_seq(part.rollout)))
    return newest


def _model(one: Rollout) -> Plan[tuple[str, str]]:
    """The model that a rollout's engine names, and the dialect of its texts."""
    try:
        settings = (yield from rollouts.spec(one)).engine_settings
    except HoustonError:
        return "", ""
    base = next((str(settings[key]) for key in _MODEL if settings.get(key)), one.engine)
    own = settings.get("kind") not in ("chat", "script")
    return base, str(settings.get("dialect", "")) if own else ""
