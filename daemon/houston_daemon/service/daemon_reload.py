"""Reload what people edit while the daemon runs: houston.toml, task files, training recipes.

An edited houston.toml takes effect, or is refused and the previous settings stay. An edited task or
recipe is checked at once, and an error in it is a trouble of the status until it is fixed. Running
rollouts keep the settings that they started with, which are stored. The code that notices edits is
shared with the console and is in `houston_shared`.
"""

import sqlite3
import time
from collections.abc import Callable, Collection
from pathlib import Path

from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.engine_replicas import differs_in_servers_only
from houston_daemon.service.engine_supervisor import EngineSupervisor
from houston_daemon.service.home_setup import check_roles
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.worker_pool import WorkerPool
from houston_shared.config import LoadedConfiguration
from houston_shared.config_reload import ConfigurationFile, EditedFiles, FolderWatcher
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.task import load_task

CONFIGURATION_TROUBLE = "configuration"
FOLLOW_SECONDS = 1.0
"""Between two looks for new files: with each update of a training run come tasks by the dozen."""
WATCHED_TASKS_LIMIT = 200
"""Tasks whose files are looked at, the ones started last."""


class FilesTouched:
    """Something happened in a folder that is watched: the loop looks."""


class EditReloader:
    """Used from the supervisor's thread only."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recorder: RecorderHandle,
        inbox: SupervisorInbox,
        engines: EngineSupervisor,
        workers: WorkerPool,
        on_change: Callable[[], None],
    ) -> None:
        """on_change: called when another configuration is in force."""
        self._on_change = on_change
        self._loaded = loaded
        self._recorder = recorder
        self._engines = engines
        self._workers = workers
        self._file = ConfigurationFile(loaded)
        self._configuration, self._tasks, self._recipes = (
            EditedFiles(),
            EditedFiles(),
            EditedFiles(),
        )
        self._watcher = FolderWatcher(lambda: inbox.put(FilesTouched()))
        self._task_of_file: dict[Path, str] = {}
        """Task files and what belongs to them → the task."""
        self._task_seqs: dict[str, int] = {}
        """Task → the event that last told of it."""
        self._folder = self._file.path.parent / "recipes"
        self._problems: dict[str, str] = {}
        """What is wrong, by what it is wrong with."""
        self._needs_restart: set[str] = set()
        self._followed_before = False
        self._folder_followed = False
        """Whether the folder of recipes was there at the last look."""
        self._follow_due = 0.0
        """When to look for tasks and recipes that are new, monotonic."""
        self._unfollowed = False
        """Whether the last look was too early for that."""

    def update(self, now: float, used: Collection[str]) -> None:
        """Take what was edited. now: monotonic seconds. used: engines of rollouts that go on."""
        self._unfollowed = now < self._follow_due
        if not self._unfollowed:
            self._unfollowed = self._follow()
            self._follow_due = now + FOLLOW_SECONDS
        for _ in self._configuration.changed(now):
            self._reconfigure()
        for name in {self._task_of_file[path] for path in self._tasks.changed(now)}:
            self._check(f"task {name}", lambda name=name: self._check_task(name))  # type: ignore[misc]
        for path in self._recipes.changed(now):
            self._check(f"recipe {path.stem}", lambda path=path: _check_recipe(path))  # type: ignore[misc]
        self._engines.replace_edited(used)

    def due(self, now: float) -> float | None:
        """When to look again, monotonic; None for nothing that waits."""
        dues = [due.due(now) for due in (self._configuration, self._tasks, self._recipes)]
        dues += [self._follow_due] if self._unfollowed else []
        return min((due for due in dues if due is not None), default=None)

    def troubles(self) -> dict[str, str]:
        """What was refused, and what waits, for the status."""
        problems = dict(self._problems)
        waits = []
        if self._needs_restart:
            keys = ", ".join(sorted(self._needs_restart))
            waits.append(f"{keys}: in force after `houston daemon restart`")
        if stale := self._engines.edited_in_use:
            waits.append(f"engines.{', engines.'.join(stale)}: when no rollout uses it any more")
        if waits:
            waiting = f"{self._file.path} was edited; {'; '.join(waits)}"
            problems[CONFIGURATION_TROUBLE] = " ".join(
                filter(None, (problems.get(CONFIGURATION_TROUBLE, ""), waiting))
            )
        return problems

    def close(self) -> None:
        """Watch nothing any more."""
        self._watcher.close()

    # --- what is looked at ------------------------------------------------------------------

    def _follow(self) -> bool:
        """Follow what is there now; whether to look once more: what was written into a new folder
        before it was watched told nobody."""
        # Changed from the first: it was read some time ago, and may have been edited since.
        self._configuration.follow([self._file.path], report_existing=True)
        self._follow_tasks()
        self._recipes.follow(self._folder.glob("*.toml"), report_existing=self._followed_before)
        self._followed_before = True
        files = self._configuration.followed | self._tasks.followed
        self._watcher.follow([*files, self._folder / "*.toml"])
        new_folder = not self._folder_followed and self._folder.is_dir()
        self._folder_followed = self._folder.is_dir()
        return new_folder

    def _follow_tasks(self) -> None:
        """Files of the tasks of this home; those of one that was erased are not known any more."""
        try:
            with Reader(self._loaded.home) as reader:
                newest = reader.run(rollout_queries.list_newest_tasks(WATCHED_TASKS_LIMIT))
                new = dict(newest.items() - self._task_seqs.items())
                folders = [
                    (name, reader.run(rollout_queries.read_task_folder(seq)))
                    for name, seq in new.items()
                ]
        except (HoustonError, sqlite3.OperationalError) as problem:
            LOGGER.debug("tasks could not be read: %s", problem)
            return
        if not new and len(newest) == len(self._task_seqs):
            return
        self._task_seqs = newest
        read_again = {name for name, _ in folders}
        self._task_of_file = {
            path: name
            for path, name in self._task_of_file.items()
            if name in self._task_seqs and name not in read_again
        }
        for name, folder in folders:
            self._problems.pop(f"task {name}", None)  # it was just started: it was whole then
            if folder:
                self._task_of_file |= dict.fromkeys(_task_files(Path(folder)), name)
        self._tasks.follow(self._task_of_file)

    # --- what an edit does ------------------------------------------------------------------

    def _check(self, subject: str, check: Callable[[], str]) -> None:
        """Check an edited file, and keep what is wrong for the status."""
        try:
            effect = check()
        except Exception as problem:  # noqa: BLE001 packages check, too: no edit ends the daemon
            self._problems[subject] = (
                problem.cause
                if isinstance(problem, HoustonError)
                else f"{type(problem).__name__}: {problem}"
            )
            LOGGER.warning("%s was edited and is rejected: %s", subject, problem)
            return
        self._problems.pop(subject, None)
        LOGGER.info("%s was edited: %s", subject, effect)

    def _check_task(self, name: str) -> str:
        # What environments bring is imported for the first edit, not by every daemon.
        from houston_daemon.service.rollout_start_checks import check_task_names

        file = next(path for path, owner in self._task_of_file.items() if owner == name)
        folder = file.parent
        task = load_task(folder)
        check_task_names(task)
        files = dict.fromkeys(_task_files(folder), name)
        self._task_of_file |= files  # it may have other instructions now
        self._tasks.follow(self._task_of_file)
        return "new rollouts start with it, running ones keep what they have"

    def _reconfigure(self) -> None:
        before = self._loaded.config
        edit = self._file.take(check_roles)
        if edit.refused:
            self._problems[CONFIGURATION_TROUBLE] = edit.refused
            LOGGER.warning("configuration: %s", edit.refused)
            return
        self._problems.pop(CONFIGURATION_TROUBLE, None)
        self._needs_restart = set(edit.later)
        after = self._loaded.config
        if before.roles != after.roles:
            self._recorder.use_roles(after.roles)
        self._workers.limit = after.daemon.max_rollouts
        if self._workers.shared:
            self._workers.shared.capacity = after.daemon.rollouts_per_worker
        self._engines.patience = after.daemon.engine_patience_seconds
        for name in before.engines.keys() | after.engines.keys():
            self._engine_edited(name, before.engines.get(name), after.engines.get(name))
        self._on_change()
        if edit.changed:
            LOGGER.info("configuration was edited: %s in force", ", ".join(edit.changed))
        if edit.later:
            later = ", ".join(edit.later)
            LOGGER.warning("configuration: %s needs `houston daemon restart`", later)

    def _engine_edited(
        self, name: str, before: EngineSettings | None, after: EngineSettings | None
    ) -> None:
        """Workers have the address of a server in their settings, but of several they are told; a
        child is ours to end."""
        if before == after:
            return
        if differs_in_servers_only(before, after):
            self._engines.change_servers(name, time.monotonic())
        elif after is None or after.is_daemon_child:
            self._engines.mark_edited(name)
        else:
            self._engines.drop(name)


def _task_files(folder: Path) -> list[Path]:
    """The files of a task that are written by people, the task file first."""
    file = folder / "task.toml"
    try:
        instructions = load_task(file).task.instructions_file
    except HoustonError:
        instructions = ""
    return [file, *([folder / instructions] if instructions else [])]


def _check_recipe(path: Path) -> str:
    from houston_daemon.training.sft import sft_recipe

    sft_recipe.load_recipe(str(path), [])
    return "new runs of training start with it"
