"""What a rollout's world lacks on this machine, brought from the store before it is opened.

The workspace of a rollout that has begun, as it was after its last closed step; the snapshots that
a branch begins from. Asked only where the configuration names a store and the files are not here.
How they are fetched is `artifacts.missing_files`'s.
"""

import asyncio
from pathlib import Path

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_setup import has_begun
from houston_daemon.environments.environment_registry import kind
from houston_shared import wire
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.records import StepRecord
from houston_shared.task import Task
from houston_shared.terminal_log_files import rollout_folder

RECENT_STEPS = 20
"""Steps looked through for one with a snapshot; a step may have none."""


async def bring_missing_files(
    url: str, welcome: wire.Welcome, task: Task, line: RecorderClient
) -> None:
    """Fetch what is not here; nothing without a store, or where all is here.

    url: the store's. Raises NeedsPerson where it could not be fetched.
    """
    if not url or LOCAL_HOST not in task.hosts or not kind(task.environment).workspace:
        return
    spec, root = welcome.spec, Path(welcome.spec.host_root)
    is_first = task.hosts[0] == LOCAL_HOST
    if has_begun(welcome):
        if (rollout_folder(root, spec.rollout) / "workspace").exists():
            return
        from houston_daemon.artifacts.missing_files import fetch_missing_workspace

        steps = await line.read_steps(max(1, welcome.next_step - RECENT_STEPS))
        commit, step = _last_snapshot(steps, is_first)
        await asyncio.to_thread(fetch_missing_workspace, url, root, spec.rollout, commit, step)
    elif spec.origin is not None:
        origin = spec.origin
        commit = origin.snapshot if is_first else origin.snapshots.get(LOCAL_HOST, "")
        if commit and not (rollout_folder(root, spec.parent) / "shadow").is_dir():
            from houston_daemon.artifacts.missing_files import fetch_parent_shadow

            await asyncio.to_thread(
                fetch_parent_shadow, url, root, spec.parent, commit, spec.rollout
            )


def _last_snapshot(steps: list[StepRecord], is_first: bool) -> tuple[str, int]:
    """The snapshot of the newest closed step that has one, and the step; empty where none has."""
    for record in reversed(steps):
        body = record.observation
        if body is None:
            continue
        commit = body.snapshot if is_first else body.snapshots.get(LOCAL_HOST, "")
        if commit:
            return commit, record.step
    return "", 0
