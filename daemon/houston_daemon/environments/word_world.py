"""A world of a few words: open the right box, read the code in it, enter that code; or do so for
several items, each of which is a part of the score.

Which box is right can only be learned by experience: nothing in the world says it, and a wrong box
has a paper with another code. So a policy of a million parameters learns here in minutes what takes
larger ones hours. The state follows from the calls alone (`journal_world`). A suite defines the
worlds, and the rule by which a box is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.environment_protocol import BudgetStatus
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
    """Enter a code; as many as there are items end the task."""

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


class CodeEntered(Observation, frozen=True, kw_only=True):
    """A code was entered, and further items are asked for."""

    kind: ClassVar[str] = "enter"
    right: bool


class CodeScored(WorldScored, frozen=True, kw_only=True):
    """100 for the right box's code; of several items the share of those whose code was entered."""

    right: bool | None = None
    """Whether the last code was right, where there are several items."""
    found: tuple[str, ...] = ()
    """Of several items, those whose code was entered."""
    missed: tuple[str, ...] = ()
    """The others."""


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
def _(result: CodeEntered) -> Text:
    return Text("right" if result.right else "wrong")


@render.register
def _(result: CodeScored) -> Text:
    right = result.overall_score > 0 if result.right is None else result.right
    return Text("right" if right else "wrong")


@dataclass(slots=True)
class WordWorld:
    """The world itself: what stands, and what an action does to it."""

    wanted: Mapping[str, str]
    """Item → the box that is right for it; of an only item the name is empty."""
    codes: Mapping[str, str]
    opened: str = ""
    """The open box."""
    entered: int = 0
    """Codes so far."""
    found: set[str] = field(default_factory=set)
    """Items whose code was entered."""

    @property
    def score(self) -> float:
        """The share of items that were found, 0 to 100."""
        return 100.0 * len(self.found) / len(self.wanted)

    @property
    def over(self) -> bool:
        """Whether as many codes were entered as there are items."""
        return self.entered >= len(self.wanted)

    def scored(self, right: bool | None = None) -> CodeScored:
        """The score as it stands. right: whether the last code was."""
        if len(self.wanted) == 1:
            return CodeScored(overall_score=self.score, finished=self.over)
        return CodeScored(
            overall_score=self.score,
            finished=self.over,
            right=right,
            found=tuple(item for item in self.wanted if item in self.found),
            missed=tuple(item for item in self.wanted if item not in self.found),
        )

    def do(self, action: Arguments) -> Observation:
        """What an action gives. One that cannot be done changes nothing."""
        if self.over:
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
                return self._enter("".join(code.split()))
        return Failed(error=UNKNOWN_WORDS)

    def _enter(self, code: str) -> Observation:
        self.entered += 1
        items_left = (item for item in self.wanted if item not in self.found)
        item = next((item for item in items_left if self.codes[self.wanted[item]] == code), None)
        if item is not None:
            self.found.add(item)
        right = item is not None
        return self.scored(right) if self.over else CodeEntered(right=right)


def _is_code(text: str) -> bool:
    digits = "".join(text.split())
    return len(digits) == 3 and digits.isdecimal() and digits.isascii()


class WordWorldEnvironment(JournalWorld[WordWorld]):
    """One world for one rollout. See `environment_protocol.Environment`."""

    def _new_world(self) -> WordWorld:
        settings = self._task.word_world
        return WordWorld(settings.wanted or {"": settings.right}, settings.codes)

    def _do_action(self, action: Arguments, budget_status: BudgetStatus) -> Observation:
        return self.world.do(action)

    def _score_spent(self) -> WorldScored:
        return self.world.scored(right=False)

    def _say_error(self, error: str) -> str:
        return UNKNOWN_WORDS


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError for names that are none, or that are missing."""
    return Catalog(chosen_actions(task, WORD_ACTIONS, "word_world", (Open.name, Enter.name)))


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task without a world."""
    catalog(task.task)
    world = task.task.word_world
    if world.wanted and (world.right or not set(world.wanted.values()) <= world.codes.keys()):
        raise ConfigurationError(
            f"{task.file}: `word_world.wanted` names an item's box that is not one of its boxes,"
            " or is set together with `right`."
        )
    if not world.wanted and world.right not in world.codes:
        boxes = ", ".join(world.codes) or "none"
        raise ConfigurationError(
            f"{task.file}: `word_world.right` is {world.right!r}, not one of its boxes ({boxes})."
        )


def build_environment(setup: EnvironmentSetup) -> WordWorldEnvironment:
    """The environment; nothing is touched before `open`."""
    return WordWorldEnvironment(setup, catalog(setup.task))
