"""Dialogs above everything else: confirm, ask for text, the command palette.

Also here: the one-line input whose keys are handled in the order in which they came, and the
prompt at the lower edge of the trajectory. The command palette lists what can be done here,
rollouts to open and themes. What is done with an answer is up to whoever asked.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Vertical
from textual.fuzzy import Matcher
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input

from houston_console.app.error_boundary import PaneBoundary
from houston_console.app.key_bindings import (
    Area,
    bindings_for,
    focus_chain,
    keys_of_areas,
)
from houston_console.app.key_order import FrameAfterKey
from houston_console.screens.base_screen import HintBar
from houston_console.widgets.color_themes import THEMES
from houston_console.widgets.line_view import (
    FixedLines,
    ItemList,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.styled_text import (
    TextLine,
    justify_line,
    line,
    span,
    text_block,
)
from houston_shared.safe_text import safe_line
from houston_shared.store.rollout_queries import RolloutRow

EDITING_ACTIONS = {
    key: binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding)
    for key in binding.key.split(",")
}
"""What Textual's own line does by a key."""


class OneLineInput(PaneBoundary, Input):
    """Textual's line, whose keys do not overtake each other: bindings are done before the letters
    that were typed before them."""

    own: ClassVar[dict[str, str]] = {}
    """Actions by key that a kind of line has besides."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(select_on_focus=False, **arguments)
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        """A key that does something waits for the letters before it; a letter is Textual's, which
        takes it by itself after this."""
        if action := self.own.get(event.key) or EDITING_ACTIONS.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def validate_value(self, value: str) -> str:
        """Whatever is typed or pasted is one line of safe text."""
        return safe_line(value)


T = TypeVar("T", bound=Hashable)


class InputHistory(Generic[T]):
    """What was typed before, the newest last, and where in it somebody walks."""

    def __init__(self, entries: Sequence[T] = ()) -> None:
        """entries: the same one is there once, where it came last."""
        self._entries = list(dict.fromkeys(reversed(entries)))[::-1]
        self._draft: T | None = None
        self.leave()

    def leave(self) -> None:
        """What is typed now is an entry of its own: the next walk begins at the newest."""
        self._place = len(self._entries)

    @property
    def walking(self) -> bool:
        """Whether an entry from before is shown."""
        return self._place < len(self._entries)

    def walk(self, by: int, draft: T | None = None) -> T | None:
        """The entry before (-1) or after (1), behind the newest the draft; None past either end.

        draft: what is typed now; it comes back at the end of the walk.
        """
        if not self.walking:
            self._draft = draft
        place = self._place + by
        if place < 0 or place > len(self._entries) - (self._draft is None):
            return None
        self._place = place
        return self._entries[place] if self.walking else self._draft


class Dialog(FrameAfterKey, ModalScreen[ScreenResultType]):
    """Above everything else until it is answered, once."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Answer and close. A second key may have come before the first had closed it: that one
        does nothing, where Textual would close what lies below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_close(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class ConfirmDialog(Dialog[bool]):
    """Yes or no; anything but `y` is no."""

    BINDINGS = bindings_for("question")

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__()
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        """The question and what it is about."""
        with Vertical(id="confirm") as box:
            set_frame_title(box, "Sure?")
            set_frame_subtitle(box, line("y yes   n no"))
            lines = text_block(self._question, 58, "strong")
            if self._text:
                lines += [(), *text_block(self._text, 58, "guidance_text")[:8]]
            text = FixedLines(lines)
            text.styles.height = len(lines)
            yield text
        keys = HintBar()  # in place of the keys of the area behind it
        keys.show_area("question")
        keys.styles.dock = "bottom"
        yield keys

    def action_answer(self, yes: bool) -> None:
        """Close with this answer."""
        self.dismiss(yes)


class BottomPrompt(OneLineInput):
    """One line to type in, at the lower edge of the trajectory: a search, or a step's number."""

    own = {"escape": "leave"}
    kind = ""

    def __init__(self, on_submit: Callable[[str], None] | None = None, **arguments: Any) -> None:
        """on_submit: told at once what was typed, before any key that follows."""
        super().__init__(**arguments)
        self._on_submit = on_submit

    def watch_has_focus(self, has_focus: bool) -> None:
        """What is hidden already needs no other style: it takes the focus when it appears again."""
        if has_focus or all(node.display for node in self.ancestors_with_self):
            super().watch_has_focus(has_focus)

    def ask(self, kind: str, placeholder: str) -> None:
        """Appear and take the focus. kind: `/` or `:`."""
        self.kind, self.value, self.placeholder = kind, "", placeholder
        self.display = True
        self.screen.set_focus(self)  # at once: the next key is its own

    async def action_submit(self) -> None:
        """Ask, and leave at once: the next key is no letter of this."""
        self.close()
        if self._on_submit is None:
            await super().action_submit()
        else:
            self._on_submit(self.value.strip())

    def close(self) -> None:
        """Hide, and keep what was typed."""
        self.action_leave()

    def action_leave(self) -> None:
        """Hide without an answer."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#transcript"))


QUESTION_WIDTH = 58
"""Cells of a line in the box."""


class QuestionDialog(Dialog[tuple[str, ...] | None]):
    """One box with a line for each thing that is asked; None when it was left."""

    BINDINGS = bindings_for("words")

    def __init__(self, name: str, text: str, initial_values: dict[str, str]) -> None:
        """name: on the frame. initial_values: what stands in each line, by what is asked."""
        super().__init__()
        self._title, self._text, self._initial_values = name, text, initial_values
        self.fields = [OneLineInput(value=value) for value in initial_values.values()]

    def compose(self) -> ComposeResult:
        """The question, then each line under what it is for."""
        with Vertical(id="question") as box:
            set_frame_title(box, self._title)
            set_frame_subtitle(box, line("enter do it   esc cancel"))
            yield _static_lines(text_block(self._text, QUESTION_WIDTH, "strong"))
            for name, field in zip(self._initial_values, self.fields, strict=True):
                yield _static_lines(text_block(name, QUESTION_WIDTH, "dim"))
                yield field
        keys = HintBar()  # in place of the keys of the area behind it
        keys.show_area("words")
        keys.styles.dock = "bottom"
        yield keys

    def on_mount(self) -> None:
        """Write in the last line: those before it stand right as a rule."""
        self.fields[-1].focus()

    def on_input_submitted(self) -> None:
        """Close with what was typed."""
        self.dismiss(tuple(field.value for field in self.fields))

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


def _static_lines(lines: list[TextLine]) -> FixedLines:
    text = FixedLines(lines, focusable=False)
    text.styles.height = len(lines)
    return text


PALETTE_HEIGHT = 14
"""Commands shown at once."""


class PaletteCommand(NamedTuple):
    """A command of the palette."""

    text: str
    action: str
    """As Textual writes actions; looked up from the focused widget outwards."""
    key: str = ""


def available_commands(area: Area, rollouts: Iterable[RolloutRow]) -> list[PaletteCommand]:
    """What can be done with the focus in `area`: its keys, then other rollouts, then themes."""
    commands = [
        PaletteCommand(binding.description, binding.action, binding.label.split()[0])
        for binding in keys_of_areas(*focus_chain(area))
    ]
    commands += [
        PaletteCommand(f"open {rollout.id}  ({rollout.state})", f"app.open({rollout.id!r})")
        for rollout in rollouts
    ]
    commands += [
        PaletteCommand(f"theme {theme.name}", f"app.apply_theme({theme.name!r})")
        for theme in THEMES
    ]
    return commands


def match_commands(commands: Sequence[PaletteCommand], typed: str) -> list[PaletteCommand]:
    """Commands whose words hold the letters of `typed` in order, the best first."""
    if not typed.strip():
        return list(commands)
    matcher = Matcher(typed)
    scored = [(matcher.match(command.text), at) for at, command in enumerate(commands)]
    ranked = sorted((-score, at) for score, at in scored if score > 0)
    return [commands[at] for _, at in ranked]


class _CommandList(ItemList[PaletteCommand], can_focus=False):
    """Commands; the keys that move in it come from the line above."""

    def __init__(self, commands: list[PaletteCommand], **arguments: Any) -> None:
        super().__init__(commands, **arguments)
        self.empty = line(span("  nothing has that name", "dim"))

    def line_at(self, number: int) -> TextLine:
        """One command and its key."""
        command = self.items[number]
        label = line(span("  "), span(command.text))
        return justify_line(label, line(span(f" {command.key} ", "tool")), self.line_cells)

    def take(self, commands: list[PaletteCommand]) -> None:
        """Show other commands, from the best match."""
        self.items = commands
        self.show()
        self.set_cursor(0)


class CommandInput(OneLineInput):
    """Letters of what is wanted; arrows move in the list below."""

    own = {
        **dict.fromkeys(("down", "ctrl+n"), "move(1)"),
        **dict.fromkeys(("up", "ctrl+p"), "move(-1)"),
        "pagedown": f"move({PALETTE_HEIGHT})",
        "pageup": f"move(-{PALETTE_HEIGHT})",
        "enter": "choose(True)",
        "escape": "choose(False)",
    }

    def action_move(self, by: int) -> None:
        """Move the cursor in the list."""
        listed = self.screen.query_one(_CommandList)
        listed.set_cursor(listed.cursor + by)

    def action_choose(self, accepted: bool) -> None:
        """Close the screen, with the command under the cursor or without."""
        screen = self.screen
        if isinstance(screen, CommandPalette):
            screen.choose(accepted)


class CommandPalette(Dialog[PaletteCommand | None]):
    """A line to type in above the commands that fit."""

    def __init__(self, commands: list[PaletteCommand], name: str = "Commands") -> None:
        super().__init__()
        self._heading = name
        self._commands = commands
        self.typed = CommandInput(placeholder="a few letters of what you want to do")
        self.list = _CommandList(commands)

    def compose(self) -> ComposeResult:
        """The line and the list."""
        with Vertical(id="commands") as box:
            set_frame_title(box, self._heading)
            set_frame_subtitle(box, line("↑ ↓   enter do it   esc close"))
            self.list.styles.height = PALETTE_HEIGHT
            yield self.typed
            yield self.list

    def on_mount(self) -> None:
        """Focus the line to type in."""
        self.set_focus(self.typed)

    def on_input_changed(self, event: Input.Changed) -> None:
        """List the commands that match."""
        self.list.take(match_commands(self._commands, event.value))

    def choose(self, accepted: bool) -> None:
        """Close, with the command under the cursor if it is wanted."""
        self.dismiss(self.list.under_cursor if accepted else None)
