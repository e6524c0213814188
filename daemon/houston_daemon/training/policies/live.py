"""How many versions of a policy may be live on an engine at once, and which must stay.

A version is live while it is what new rollouts get, or while a rollout that has not ended samples
with it: 30 hours after its activation, perhaps. Pure arithmetic over names.
"""

from collections.abc import Collection, Mapping, Sequence

from houston_daemon.engines.install import ADAPTERS
from houston_shared.config_engine import Engine
from houston_shared.errors import HoustonError
from houston_shared.store.plan import Plan
from houston_shared.store.queries import policies

EMBEDDED = 8
"""Adapters that the embedded server holds; SmolLM2's of rank 16 are 10 MB each."""
_SHOWN = 3


def limit(engine: Engine) -> int:
    """Adapters that an engine holds at once; 0 where nobody can know.

    Configured (`max_adapters`), or as its command says: vLLM keeps `--max-cpu-loras` in memory, at
    least `--max-loras`, which is how many one batch may mix.
    """
    if engine.max_adapters:
        return engine.max_adapters
    if engine.kind == "embedded":
        return EMBEDDED
    if engine.kind != "vllm" or engine.url:
        return 0
    if not engine.command:
        return ADAPTERS
    said = [_flag(engine.command, name) for name in ("--max-cpu-loras", "--max-loras")]
    return max(*said, 1)


def _flag(command: Sequence[str], name: str) -> int:
    """The number behind a flag of a command, 0 without it; the last one counts."""
    found = 0
    for index, word in enumerate(command):
        flag, _, value = word.partition("=")
        if flag == name:
            value = value or (command[index + 1] if index + 1 < len(command) else "")
            found = int(value) if value.isdigit() else found
    return found


def room(engine: str, policy: str, most: int) -> Plan[None]:
    """Raise HoustonError where new rollouts with this policy would make more live than fit.

    most: the engine's limit, 0 for none. What is active stays live for those that name none.
    """
    used = {
        one.policy: one.rollouts for one in (yield from policies.uses()) if one.engine == engine
    }
    used.setdefault((yield from policies.active(engine)), ("new rollouts",))
    unload(most, policy, (), used)


def unload(
    most: int, wanted: str, loaded: Sequence[str], used: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    """What must leave the engine so that `wanted` fits, the oldest first.

    most: the engine's limit, 0 for none. loaded: adapters that it has, the oldest activation first.
    used: policy → rollouts that have not ended. Raises HoustonError where those alone fill it.
    """
    needed = {name for name, rollouts in used.items() if name and rollouts} | {wanted}
    if most and len(needed) > most:
        others = sorted(needed - {wanted})
        said = "; ".join(f"{name} by {_few(used[name])}" for name in others)
        raise HoustonError(
            f"{most} policies may be live at once, and {len(others)} are used: {said}.",
            "What new rollouts sample with is as it was.",
            "Wait for one of them, cancel it, or raise the limit: --max-cpu-loras of vLLM, "
            "`max_adapters` of the engine.",
        )
    free = [name for name in loaded if name not in needed]
    over = len(set(loaded) | needed) - most if most else 0
    return tuple(free[: max(0, over)])


def _few(rollouts: Collection[str]) -> str:
    names = sorted(rollouts)
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
