"""Every command by name: what can be done here, rollouts to open, themes; found by a few letters.

Pure but for the screen at the end: what there is and what fits what was typed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.fuzzy import Matcher
from textual.widgets import Input

from houston_console.app.dialogs import Dialog
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, line, span, spread
from houston_console.app.drawing.themes import THEMES
from houston_console.app.keys import Area, chain, of
from houston_console.app.one_line import OneLine
from houston_shared.store.queries.rollouts import Rollout

HEIGHT = 14
"""Commands shown at once."""


class Command(NamedTuple):
    """One thing to do."""

    words: str
    action: str
    """As Textual writes actions; looked up from the focused widget outwards."""
    key: str = ""


def here(area: Area, rollouts: Iterable[Rollout]) -> list[Command]:
    """What can be done with the focus in `area`: its keys, then other rollouts, then themes."""
    found = [Command(one.does, one.action, one.shown.split()[0]) for one in of(*chain(area))]
    found += [Command(f"open {one.id}  ({one.state})", f"app.open({one.id!r})") for one in rollouts]
    found += [Command(f"theme {one.name}", f"app.dress({one.name!r})") for one in THEMES]
    return found


def fitting(commands: Sequence[Command], typed: str) -> list[Command]:
    """Commands whose words hold the letters of `typed` in order, the best first."""
    if not typed.strip():
        return list(commands)
    matcher = Matcher(typed)
    scored = [(matcher.match(one.words), at) for at, one in enumerate(commands)]
    kept = sorted((-score, at) for score, at in scored if score > 0)
    return [commands[at] for _, at in kept]


class _List(LineView, can_focus=False):
    """Commands; the keys that move in it come from the line above."""

    def __init__(self, commands: list[Command], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.commands = commands
        self.empty = line(span("  nothing is called that", "dim"))

    def line_count(self) -> int:
        """As many as fit."""
        return len(self.commands)

    def line_at(self, number: int) -> Line:
        """One command and its key."""
        one = self.commands[number]
        left = line(span("  "), span(one.words))
        return spread(left, line(span(f" {one.key} ", "tool")), self.room)

    def take(self, commands: list[Command]) -> None:
        """Show others, from the best."""
        self.commands = commands
        self.show()
        self.put_cursor(0)


class CommandLine(OneLine):
    """Letters of what is wanted; arrows move in the list below."""

    own = {
        **dict.fromkeys(("down", "ctrl+n"), "move(1)"),
        **dict.fromkeys(("up", "ctrl+p"), "move(-1)"),
        "pagedown": f"move({HEIGHT})",
        "pageup": f"move(-{HEIGHT})",
        "enter": "choose(True)",
        "escape": "choose(False)",
    }

    def action_move(self, by: int) -> None:
        """Another command is under the cursor."""
        listed = self.screen.query_one(_List)
        listed.put_cursor(listed.cursor + by)

    def action_choose(self, taken: bool) -> None:
        """Close the screen, with the command under the cursor or without."""
        screen = self.screen
        if isinstance(screen, Commands):
            screen.choose(taken)


class Commands(Dialog[Command | None]):
    """A line to type in above the commands that fit."""

    def __init__(self, commands: list[Command], name: str = "Commands") -> None:
        super().__init__()
        self._heading = name
        self._commands = commands
        self.typed = CommandLine(placeholder="a few letters of what you want to do")
        self.listed = _List(commands)

    def compose(self) -> ComposeResult:
        """The line and the list."""
        with Vertical(id="commands") as box:
            title(box, self._heading)
            subtitle(box, line("↑ ↓   enter do it   esc close"))
            self.listed.styles.height = HEIGHT
            yield self.typed
            yield self.listed

    def on_mount(self) -> None:
        """Letters go to the line at once."""
        self.set_focus(self.typed)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Other letters, other commands."""
        self.listed.take(fitting(self._commands, event.value))

    def choose(self, taken: bool) -> None:
        """Close, with the command under the cursor if it is wanted."""
        one = self.listed
        wanted = taken and one.cursor < len(one.commands)
        self.dismiss(one.commands[one.cursor] if wanted else None)
