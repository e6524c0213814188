"""A rollout's files on this machine and in the store: fetched before its world is opened, copied
while it works.

Fetched are the workspace of a rollout that has started, as it was after its last closed step, and
the snapshots that a branch starts from, if the configuration names a store and the files are not
here. Copied are the snapshots of a worker on a machine other than the daemon's, because the
daemon's copies do not cover them. `artifacts` does both.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_setup import has_begun
from houston_daemon.environments.environment_registry import kind
from houston_shared import wire
from houston_shared.backoff import Backoff
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import HoustonError
from houston_shared.records import StepRecord
from houston_shared.task import Task
from houston_shared.terminal_log_files import rollout_folder

if TYPE_CHECKING:
    from houston_daemon.artifacts.snapshot_bundles import RolloutSnapshots

log = logging.getLogger(__name__)
RECENT_STEPS = 20
"""Steps looked through for one with a snapshot; a step may have none."""
MAX_SNAPSHOT_LAG = 3
"""A workspace may be that many snapshots old at most: a copy takes its time, and a node that is
lost may not have finished it. The agent is told which step it is of."""
LOOK_SECONDS = 0.5
"""How often it is looked whether there is a new snapshot."""
RETRY_SECONDS, MAX_DELAY_SECONDS = 5.0, 300.0
LAST_COPY_SECONDS = 20.0
"""How long the end of a worker waits for its last copy."""


class WorkerStore(NamedTuple):
    """The store that a worker was given."""

    url: str = ""
    """Empty: there is none."""
    owner: str = ""
    """As `store_owner.name_owner` has it, of the home whose snapshots this worker copies; empty
    where the daemon does that."""


def keeps_snapshots_here(task: Task) -> bool:
    """Whether rollouts of a task have a workspace on the worker's machine."""
    return LOCAL_HOST in task.hosts and kind(task.environment).workspace


class SnapshotCopies:
    """Copies the snapshots of one rollout into the store, while its steps continue without
    waiting."""

    def __init__(
        self, store: WorkerStore, rollout: str, host_root: Path, tell: Callable[[str], None]
    ) -> None:
        """tell: called with what is wrong, whenever that changes; "" for nothing."""
        self._store, self._rollout, self._tell = store, rollout, tell
        self._shadow = rollout_folder(host_root, rollout) / "shadow"
        self._snapshots: RolloutSnapshots | None = None
        self._copied = ""
        """The snapshot that the store has."""
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._copy_until_end())

    async def end(self) -> None:
        """Copy the last snapshot; wait only a limited time for a store that does not answer."""
        self._ending.set()
        _, late = await asyncio.wait([self._task], timeout=LAST_COPY_SECONDS)
        if late:
            log.warning("the store took too long: it may lack the last snapshot")

    async def _copy_until_end(self) -> None:
        backoff, last_trouble = Backoff(RETRY_SECONDS, MAX_DELAY_SECONDS), ""
        while True:
            is_last, seconds, trouble, cause = self._ending.is_set(), LOOK_SECONDS, "", ""
            try:
                await asyncio.to_thread(self._copy)
                backoff.failures = 0
            except (HoustonError, OSError) as problem:
                seconds = backoff.fail(time.monotonic())
                cause = str(problem)
                trouble = f"snapshots are not in the store; Houston tries again: {cause}"
            if trouble != last_trouble:
                last_trouble = trouble
                self._tell(trouble)
                if trouble and not is_last:
                    log.warning("%s", trouble)
            if is_last:
                if cause:
                    log.warning("the store lacks the last snapshot: %s", cause)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), seconds)

    def _copy(self) -> None:
        """Raises HoustonError, OSError."""
        from houston_daemon.artifacts.artifact_store import ArtifactStore
        from houston_daemon.artifacts.snapshot_bundles import RolloutSnapshots, read_head
        from houston_daemon.artifacts.store_owner import check_owner_name

        head = read_head(self._shadow)
        if head == self._copied:
            return
        store = ArtifactStore(self._store.url)
        check_owner_name(store, self._store.owner)
        if self._snapshots is None:
            self._snapshots = RolloutSnapshots(store, self._rollout, self._shadow)
        self._snapshots.copy()
        self._copied = head


async def bring_missing_files(
    store: WorkerStore, welcome: wire.Welcome, task: Task, line: RecorderClient
) -> None:
    """Fetch what is missing here; nothing without a store, or where everything is here.

    Where the worker itself copies snapshots, a workspace from before the rollout continued on
    another machine is moved aside. Raises NeedsPerson where something could not be fetched.
    """
    url = store.url
    if not url or not keeps_snapshots_here(task):
        return
    spec, root = welcome.spec, Path(welcome.spec.host_root)
    is_first = task.hosts[0] == LOCAL_HOST
    if has_begun(welcome):
        is_here = (rollout_folder(root, spec.rollout) / "workspace").exists()
        if is_here and not store.owner:
            return
        from houston_daemon.artifacts.missing_files import (
            fetch_missing_workspace,
            set_old_workspace_aside,
        )

        steps = await line.read_steps(max(1, welcome.next_step - RECENT_STEPS))
        snapshots = _last_snapshots(steps, is_first)
        if snapshots and store.owner:
            newest = snapshots[0][0]
            await asyncio.to_thread(set_old_workspace_aside, root, spec.rollout, newest)
        await asyncio.to_thread(fetch_missing_workspace, url, root, spec.rollout, *snapshots)
    elif spec.origin is not None:
        origin = spec.origin
        commit = origin.snapshot if is_first else origin.snapshots.get(LOCAL_HOST, "")
        if commit and not (rollout_folder(root, spec.parent) / "shadow").is_dir():
            from houston_daemon.artifacts.missing_files import fetch_parent_shadow

            await asyncio.to_thread(
                fetch_parent_shadow, url, root, spec.parent, commit, spec.rollout
            )


def _last_snapshots(steps: list[StepRecord], is_first: bool) -> list[tuple[str, int]]:
    """Snapshots of the newest closed steps that have one, and their steps, the newest first."""
    closed = [(record.step, record.observation) for record in reversed(steps) if record.observation]
    commits = [
        (body.snapshot if is_first else body.snapshots.get(LOCAL_HOST, ""), step)
        for step, body in closed
    ]
    return [(commit, step) for commit, step in commits if commit][:MAX_SNAPSHOT_LAG]
