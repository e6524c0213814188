"""Which rollouts a command is for: those that are named, or all of a task, a group or the home."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.plan import Plan
from houston_shared.store.queries import rollouts


class Selection(NamedTuple):
    """What was asked for; one of these."""

    names: Sequence[str] = ()
    """Ids, or parts of them."""
    task: str = ""
    group: str = ""
    everything: bool = False

    @property
    def given(self) -> bool:
        """Whether anything was asked for."""
        return any(self)


def chosen(selection: Selection, effect: str, as_named: bool = False) -> Plan[list[str]]:
    """Whole ids of what was asked for, sorted or, where ids are named, `as_named`; each once.

    Of a task, a group or everything those that never had a step are passed over. effect: what was
    not done, for the HoustonError where nothing is meant, or more than one.
    """
    names, task, group, _ = selection
    if sum(map(bool, selection)) != 1:
        raise HoustonError(
            "Name rollouts, or one of --task, --group and --all.",
            effect,
            "houston rollout list",
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
        raise HoustonError(f"No rollout of {what} has a step.", effect, "houston rollout list")
    return list(dict.fromkeys(found)) if names and as_named else sorted(set(found))
