"""Which rollouts an export is made of, and what its manifest says of each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from houston_daemon.training.export.split import Member
from houston_shared.errors import ExitCode, HoustonError
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


def named(
    names: Sequence[str], task: str = "", group: str = "", everything: bool = False
) -> Plan[list[str]]:
    """Whole ids of what was asked for, sorted; raises HoustonError where nothing is meant.

    Of `task`, `group` or everything those that never had a step are passed over: they have no rows.
    """
    if sum(map(bool, (names, task, group, everything))) != 1:
        raise HoustonError(
            "Name rollouts, or one of --task, --group and --all.",
            "Nothing was exported.",
            "houston export R… --format F --out DIR",
            ExitCode.USAGE,
        )
    found: Iterable[str]
    if names:
        ids = []
        for name in names:
            ids.append((yield from rollouts.resolve(name)))
        found = ids
    else:
        every = yield from rollouts.all_rollouts(task)
        found = [one.id for one in every if one.steps and group in ("", one.group_id)]
    if not found:
        what = f"the task {task!r}" if task else f"the group {group!r}" if group else "this home"
        raise HoustonError(
            f"No rollout of {what} has a step.", "Nothing was exported.", "houston rollout list"
        )
    return sorted(set(found))


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
