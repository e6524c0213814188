"""A world of a few words: open the right box, read the code in it, enter that code.

Which box is right is known by experience only: nothing in the world says it, and a wrong box has a
paper with a code of its own. So a policy of a million parameters learns here in minutes what larger
ones need hours for. The world is what was done in it (`journal_world`). Which worlds there are, and
by which rule a box is right, is a suite's to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.environment_protocol import Standing
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.journal_world import JournalWorld, WorldScored
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task

UNKNOWN_WORDS = "unknown words"
"""What is said of a call that is none of the world's; the journal has why."""


class WordAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of a world of words."""

    family: ClassVar[str] = "word_world"


class Look(WordAction, frozen=True, kw_only=True):
    """Name the boxes and the one that is open."""

    name: ClassVar[str] = "look"


class Open(WordAction, frozen=True, kw_only=True):
    """Open a box; another one that was open is closed."""

    name: ClassVar[str] = "open"
    box: Annotated[str, Meta(max_length=40, description="Its colour.")]


class Read(WordAction, frozen=True, kw_only=True):
    """Read the paper in the open box."""

    name: ClassVar[str] = "read"


class Enter(WordAction, frozen=True, kw_only=True):
    """Enter a code, which ends the task."""

    name: ClassVar[str] = "enter"
    code: Annotated[str, Meta(max_length=40, description="Three digits.")]


WORD_ACTIONS: tuple[type[WordAction], ...] = (Look, Open, Read, Enter)


class BoxesSeen(Observation, frozen=True, kw_only=True):
    """The boxes of the world."""

    kind: ClassVar[str] = "look"
    boxes: tuple[str, ...]
    open: str


class BoxOpened(Observation, frozen=True, kw_only=True):
    """A box that is open now."""

    kind: ClassVar[str] = "open"
    box: str


class PaperRead(Observation, frozen=True, kw_only=True):
    """What the paper in the open box says."""

    kind: ClassVar[str] = "read"
    code: str


class CodeScored(WorldScored, frozen=True, kw_only=True):
    """100 for the right box's code."""


@render.register
def _(result: BoxesSeen) -> Text:
    return Text(" ".join((*result.boxes, "open", result.open or "nothing")))


@render.register
def _(result: BoxOpened) -> Text:
    return Text(f"{result.box} open")


@render.register
def _(result: PaperRead) -> Text:
    return Text(f"paper says {' '.join(result.code)}")


@render.register
def _(result: CodeScored) -> Text:
    return Text("right" if result.overall_score else "wrong")


@dataclass(slots=True)
class WordWorld:
    """The world itself: what stands, and what an action does to it."""

    right: str
    codes: Mapping[str, str]
    opened: str = ""
    """The open box."""
    score: float | None = None
    """Known once a code was entered."""

    def do(self, action: Arguments) -> Observation:
        """What an action gives. One that cannot be done changes nothing."""
        if self.score is not None:
            return Failed(error="the world is over")
        match action:
            case Look():
                return BoxesSeen(boxes=tuple(self.codes), open=self.opened)
            case Open(box=box) if box in self.codes:
                self.opened = box
                return BoxOpened(box=box)
            case Open():
                return Failed(error="unknown box")
            case Read() if self.opened:
                return PaperRead(code=self.codes[self.opened])
            case Read():
                return Failed(error="nothing open")
            case Enter(code=code) if _is_code(code):
                self.score = 100.0 * ("".join(code.split()) == self.codes[self.right])
                return CodeScored(overall_score=self.score, finished=True)
        return Failed(error=UNKNOWN_WORDS)


def _is_code(text: str) -> bool:
    digits = "".join(text.split())
    return len(digits) == 3 and digits.isdecimal() and digits.isascii()


class WordWorldEnvironment(JournalWorld[WordWorld]):
    """One world for one rollout. See `environment_protocol.Environment`."""

    def _new_world(self) -> WordWorld:
        settings = self._task.word_world
        return WordWorld(settings.right, settings.codes)

    def _do_action(self, action: Arguments, standing: Standing) -> Observation:
        return self.world.do(action)

    def _score_spent(self) -> WorldScored:
        return CodeScored(overall_score=self.world.score or 0.0, finished=False)

    def _say_error(self, error: str) -> str:
        return UNKNOWN_WORDS


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError for names that are none, or that are missing."""
    return Catalog(chosen_actions(task, WORD_ACTIONS, "word_world", (Open.name, Enter.name)))


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task without a world."""
    catalog(task.task)
    world = task.task.word_world
    if world.right not in world.codes:
        boxes = ", ".join(world.codes) or "none"
        raise ConfigurationError(
            f"{task.file}: `word_world.right` is {world.right!r}, none of its boxes ({boxes})."
        )


def build_environment(setup: EnvironmentSetup) -> WordWorldEnvironment:
    """The environment; nothing is touched before `open`."""
    return WordWorldEnvironment(setup, catalog(setup.task))
