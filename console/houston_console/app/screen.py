"""What every full screen of the console has: the line at the top, its areas, the line of keys."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from textual.app import ComposeResult
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from houston_console.app.bars import HintBar, StatusBar, UndoBar
from houston_console.app.drawing.lines import Tone
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import Area, shown
from houston_console.app.state import ConsoleState
from houston_shared.errors import HoustonError


class HoustonScreen(ErrorBoundary, Screen[None]):
    """A screen that the app brings up to date. Its areas are composed by `body`."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """As Textual's own, which draws the whole screen for it: frames and cursors change, no more."""

    def _compositor_refresh(self) -> None:
        """Nothing while another full screen hides it: Textual would draw that one again, whole."""
        stack = self.app.screen_stack
        above = stack[stack.index(self) + 1 :] if self in stack else ()
        if any(isinstance(one, HoustonScreen) for one in above):
            self._dirty_widgets.clear()
            self._compositor._dirty_regions.clear()
            self._repaint_required = True  # once it is seen again
            return
        super()._compositor_refresh()

    def __init__(self, state: ConsoleState, home: str) -> None:
        """home: how the home is named to people."""
        super().__init__()
        self.state = state
        self.status, self.hints = StatusBar(id="status"), HintBar(id="hints")
        self.undo = UndoBar(id="undo")
        self._home = home

    def compose(self) -> ComposeResult:
        """The areas between two lines."""
        yield self.status
        yield from self.body()
        yield self.undo
        yield self.hints

    def leave(self) -> None:
        """Back to the screen below; nothing when a key before it has done so."""
        if self.is_active:
            self.app.pop_screen()

    def body(self) -> ComposeResult:
        """What is between the two lines."""
        raise NotImplementedError

    @property
    def area(self) -> Area:
        """Where the focus is: which keys can be pressed."""
        raise NotImplementedError

    async def caught_up(self, changed: bool) -> None:
        """The state is as new as the newest commit. changed: the rollouts are others than before.

        Raises HoustonError.
        """
        raise NotImplementedError

    def judged(self) -> None:
        """Who needs a person, and who is where, was read again."""

    def pressed(self, key: str) -> None:
        """A key was pressed: somebody is here. key: as Textual names it."""

    @property
    def place(self) -> tuple[str, int]:
        """Which rollout is looked at here, and at which step; an empty name for none."""
        return "", 0

    def later(self, work: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Do something that no key waits for; instead of what the group was doing."""
        self.run_worker(cast(Any, work), group=group, exclusive=True)

    def linked(self) -> None:
        """The daemon came, or went, or took what was sent."""

    def on_screen_resume(self) -> None:
        """It is shown, for the first time or again."""
        self.say()

    def say(self) -> None:
        """Say how things stand; called once a second, so it draws only what has changed."""
        self.status.take(self.state, self._home)
        self.offer()

    def offer(self) -> None:
        """Say what can be taken back, and by which key: a letter is none while somebody types."""
        key = shown("undo", "take_back(True)" if self.types else "take_back")
        self.undo.take(self.state.offered, key)

    @property
    def types(self) -> bool:
        """Whether somebody types here: letters are letters."""
        return isinstance(self.app.focused, (Input, TextArea))

    def tell(self, text: str, tone: Tone) -> None:
        """Say something until the next key."""
        self.hints.tell(text, tone)

    def told(self, problem: HoustonError) -> None:
        """Show an error: cause, effect, next."""
        follow = f"  next: {problem.next}" if problem.next else ""
        text = " ".join(part for part in (problem.cause, problem.effect) if part)
        self.tell(text + follow, "error")
