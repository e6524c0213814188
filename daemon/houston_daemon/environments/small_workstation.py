"""A small workstation: a few files in memory, and four actions that list, read, write and finish.

For suites in which a small model finds, reads and changes files in short contexts: no terminal, no
sandbox, no folder on a host. The state follows from the calls alone (`journal_world`). The score is
exact: 100 where every wanted file has the right content, else 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.call_handling import early_finish_refusal
from houston_daemon.environments.environment_protocol import BudgetStatus
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.journal_world import JournalWorld, WorldScored
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task


class FileAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of a small workstation."""

    family: ClassVar[str] = "small_workstation"


class ListNames(FileAction, frozen=True, kw_only=True):
    """Name all files."""

    name: ClassVar[str] = "list"


class ReadText(FileAction, frozen=True, kw_only=True):
    """Show what a file says."""

    name: ClassVar[str] = "read"
    path: Annotated[str, Meta(max_length=80, description="Its name.")]


class WriteText(FileAction, frozen=True, kw_only=True):
    """Write a file whole; one that is there is replaced."""

    name: ClassVar[str] = "write"
    path: Annotated[str, Meta(max_length=80, description="Its name.")]
    text: Annotated[str, Meta(max_length=2_000, description="All that it says.")]


class FinishFiles(FileAction, frozen=True, kw_only=True):
    """End the task when every file is as it should be."""

    name: ClassVar[str] = "finish"


FILE_ACTIONS: tuple[type[FileAction], ...] = (ListNames, ReadText, WriteText, FinishFiles)


class NamesListed(Observation, frozen=True, kw_only=True):
    """The files there are."""

    kind: ClassVar[str] = "list"
    names: tuple[str, ...]


class TextRead(Observation, frozen=True, kw_only=True):
    """What a file says."""

    kind: ClassVar[str] = "read"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    path: str
    text: str


class TextWritten(Observation, frozen=True, kw_only=True):
    """A file that was written."""

    kind: ClassVar[str] = "write"
    path: str
    characters: int


class FilesScored(WorldScored, frozen=True, kw_only=True):
    """100 where every wanted file says what it must."""


@render.register
def _(result: NamesListed) -> Text:
    return Text(" ".join(result.names) or "no files")


@render.register
def _(result: TextRead) -> Text:
    return Text("", result.text or "(empty)")


@render.register
def _(result: TextWritten) -> Text:
    return Text(f"{result.path} written")


@render.register
def _(result: FilesScored) -> Text:
    return Text("Finished." if result.finished else "The budget is spent.")


@dataclass(slots=True)
class FileTable:
    """The files, and what an action does to them."""

    wanted: Mapping[str, str]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """100 where every wanted file is as it must be, else 0."""
        same = (
            self.files.get(name, "").strip() == text.strip() for name, text in self.wanted.items()
        )
        return 100.0 * all(same)

    def do(self, action: Arguments) -> Observation:
        """What an action gives. One that cannot be done changes nothing."""
        match action:
            case ListNames():
                return NamesListed(names=tuple(sorted(self.files)))
            case ReadText(path=path) if path in self.files:
                return TextRead(path=path, text=self.files[path])
            case WriteText(path=path, text=text) if path:
                self.files[path] = text
                return TextWritten(path=path, characters=len(text))
            case ReadText(path=path):
                return Failed(error=f"there is no file {path!r}; list() names them")
        return Failed(error="a file needs a name")


class SmallWorkstation(JournalWorld[FileTable]):
    """The files of one rollout. See `environment_protocol.Environment`."""

    def _new_world(self) -> FileTable:
        settings = self._task.small_workstation
        return FileTable(settings.wanted, dict(settings.files))

    def _do_action(self, action: Arguments, budget_status: BudgetStatus) -> Observation:
        if not isinstance(action, FinishFiles):
            return self.world.do(action)
        if error := early_finish_refusal(budget_status, self._task.budget.minimum_steps):
            return Failed(error=error)
        return FilesScored(overall_score=self.world.score, finished=True)

    def _score_spent(self) -> WorldScored:
        return FilesScored(overall_score=self.world.score, finished=False)


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError for names that are none, or that are missing."""
    return Catalog(chosen_actions(task, FILE_ACTIONS, "small_workstation", (FinishFiles.name,)))


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task that every rollout would solve by doing nothing."""
    catalog(task.task)
    settings = task.task.small_workstation
    if FileTable(settings.wanted, dict(settings.files)).score:
        raise ConfigurationError(
            f"{task.file}: `small_workstation.wanted` names only what is already there."
        )


def build_environment(setup: EnvironmentSetup) -> SmallWorkstation:
    """The environment; nothing is touched before `open`."""
    return SmallWorkstation(setup, catalog(setup.task))
