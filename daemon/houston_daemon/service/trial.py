"""One evaluation of a folder outside any rollout: what `eval` would say of it, as a person's trial.

The folder is copied into a place of its own first, so that nothing of it can change.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.environments.local_host_setup import local_host
from houston_daemon.environments.protocol import Standing, Stop
from houston_daemon.environments.typed_observation import Observation
from houston_daemon.environments.workstation.evaluation_slots import Slots
from houston_daemon.environments.workstation.evaluator import Evaluation
from houston_daemon.hosts import emptying
from houston_shared.records import RolloutSpec
from houston_shared.task import LoadedTask

_AGES = 1e9
"""Seconds left: a trial has no rollout whose time it could use."""


def evaluate(task: LoadedTask, workspace: Path | None, hidden: Sequence[str]) -> Observation:
    """Score a folder (None: an empty workspace). Raises HoustonError where nothing can run here.

    hidden: places that no sandbox may map.
    """
    root = Path(tempfile.mkdtemp(prefix="houston-trial-"))
    try:
        return asyncio.run(_evaluate(task, workspace, hidden, root))
    finally:
        emptying.remove(root)


async def _evaluate(
    task: LoadedTask, workspace: Path | None, hidden: Sequence[str], root: Path
) -> Observation:
    spec = RolloutSpec(
        rollout="trial",
        task=task.record(),
        engine="",
        engine_settings={},
        host_root=str(root),
        hidden=tuple(hidden),
    )
    own = task.task.budget
    budget = msgspec.structs.replace(own, evaluations=max(1, own.evaluations))
    once = msgspec.structs.replace(task.task, budget=budget)
    host = local_host(spec, once)
    try:
        await host.prepare(workspace)
        slots = Slots(root, once.name, 1)
        evaluation = Evaluation(host, once, task.folder, slots, _unmarked)
        return await evaluation.run(Standing(1, 1, 0.0, _AGES, 0, None, None), Stop())
    finally:
        await host.destroy_terminals()
        await host.close()


async def _unmarked() -> str:
    """A trial needs no snapshot."""
    return ""
