"""Keys that one can look up: the page of all keys with a filter, and the menu that space opens.

Both are made from the registry of keys. The page closes without an answer; the menu answers with
what the next key does, which the app then does where the focus was.
"""

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from houston_console.app.key_bindings import AREA_TITLES, Area, Key, focus_chain, keys_of_areas
from houston_console.widgets.dialogs import Dialog, OneLineInput, PaletteCommand
from houston_console.widgets.line_view import FixedLines, set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import TextLine, fit_text, line, span

KEY_COLUMN = 12
"""Cells for the keys of a line in the page."""
MENU_KEY_CELLS = 6
MENU_ENTRY_CELLS = 36
"""Least cells of an entry of the menu: as many columns as fit."""
_MOVING_ACTIONS = ("down", "up", "page", "next_area", "menu", "help")


class _FilterInput(OneLineInput):
    """Letters to look for; arrows and pages move in the keys below."""

    own = {
        "escape": "leave",
        "question_mark": "leave",
        "f1": "leave",
        "down": "move(1)",
        "up": "move(-1)",
        "pagedown": "page(1)",
        "pageup": "page(-1)",
    }

    def action_leave(self) -> None:
        """Close the page; one with a filter shows all keys first."""
        if self.value:
            self.value = ""
        elif isinstance(self.screen, HelpDialog):
            self.screen.action_close()

    def action_move(self, by: int) -> None:
        """A line of the keys down or up."""
        listed = self.screen.query_one(FixedLines)
        listed.jump(round(listed.scroll_y) + by)

    def action_page(self, by: int) -> None:
        """A page of the keys down or up."""
        self.screen.query_one(FixedLines).action_page(by)


class HelpDialog(Dialog[None]):
    """Every key, those of where one is before the others; what is typed narrows them."""

    def __init__(self, area: Area) -> None:
        """area: where the focus is."""
        super().__init__()
        self._area: Area = area

    def compose(self) -> ComposeResult:
        """The line to type in, and the keys."""
        with Vertical(id="help") as box:
            set_frame_title(box, "Keys")
            set_frame_subtitle(box, line("type to filter   ↑ ↓ pgdn   esc close"))
            yield _FilterInput(placeholder="filter: a key, or words of what it does")
            yield FixedLines(help_lines(self._area), focusable=False)

    def on_mount(self) -> None:
        """What is typed filters."""
        self.set_focus(self.query_one(_FilterInput))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the keys that are meant."""
        lines = help_lines(self._area, event.value)
        listed = self.query_one(FixedLines)
        listed.show_lines(lambda width: lines)
        listed.jump(0)


def help_lines(focused: Area, typed: str = "") -> list[TextLine]:
    """Every key under the name of its area, the nearest area first.

    typed: words that a key's line or its area must hold, in any case; a single character is also
    the key itself.
    """
    lines: list[TextLine] = []
    near = focus_chain(focused)
    for area, name in sorted(
        AREA_TITLES, key=lambda pair: near.index(pair[0]) if pair[0] in near else len(near)
    ):
        keys = [key for key in keys_of_areas(area) if _is_meant(key, name, typed)]
        if not keys:
            continue
        mark = span("  here", "dim") if area in near else span("")
        lines.append(line(span(f" {name}", "title"), mark))
        lines += [
            line(span("   "), span(fit_text(key.label, KEY_COLUMN), "tool"), span(key.description))
            for key in keys
        ]
        lines.append(())
    return lines or [line(span(f" no key does that: {typed}", "dim"))]


def _is_meant(key: Key, area_name: str, typed: str) -> bool:
    if len(typed) == 1 and not typed.isspace():
        return typed in key.label.split()
    searched = f"{key.label} {key.description} {area_name}".casefold()
    return all(word in searched for word in typed.casefold().split())


class KeyMenu(Dialog[PaletteCommand | None]):
    """What each key does here, at the lower edge; the next key does it and closes the menu."""

    def __init__(self, area: Area) -> None:
        """area: where the focus is."""
        super().__init__()
        self._area: Area = area
        self._keys = _menu_keys(area)

    def compose(self) -> ComposeResult:
        """The keys in columns."""
        with Vertical(id="key-menu") as box:
            set_frame_title(box, dict(AREA_TITLES).get(self._area, "Keys"))
            set_frame_subtitle(box, line("press a key   ? all keys   esc close"))
            yield FixedLines(focusable=False)

    def on_mount(self) -> None:
        """As many columns as there is room for."""
        self._arrange()

    def on_resize(self) -> None:
        """More columns, or fewer."""
        self._arrange()

    def _arrange(self) -> None:
        most_rows = max(3, self.app.size.height - 6)
        lines = menu_lines(self._keys, self.app.size.width - 4, most_rows)
        text = self.query_one(FixedLines)
        text.styles.height = len(lines)
        text.show_lines(lambda width: lines)

    def on_key(self, event: events.Key) -> None:
        """Do what the key does, or close."""
        event.stop()
        event.prevent_default()
        area_keys = keys_of_areas(*focus_chain(self._area))
        pressed_key = next((key for key in area_keys if event.key in key.keys.split(",")), None)
        if pressed_key is not None and (pressed_key in self._keys or pressed_key.action == "help"):
            self.dismiss(PaletteCommand(pressed_key.description, pressed_key.action))
        elif event.key == "escape" or (pressed_key is not None and pressed_key.action == "menu"):
            self.dismiss(None)


def _menu_keys(area: Area) -> list[Key]:
    """Keys of a place that do something there: those that only move are known to everybody."""
    return [
        key
        for key in keys_of_areas(*focus_chain(area))
        if not key.action.startswith(_MOVING_ACTIONS) and not key.given_name.endswith("anywhere")
    ]


def menu_lines(keys: Sequence[Key], width: int, most_rows: int) -> list[TextLine]:
    """The keys in columns, downwards, those that go forth and back as one entry.

    Where they do not fit, those of the line of hints are left, and the last place says how many
    more there are.
    """
    columns = max(1, width // MENU_ENTRY_CELLS)
    cells = width // columns
    entries = _menu_entries(keys)
    room = columns * most_rows
    if len(entries) > room:
        hinted = [entry for entry in entries if entry.hinted]
        others = [entry for entry in entries if not entry.hinted]
        shown_ids = {id(entry) for entry in (hinted + others)[: room - 1]}
        more = _MenuEntry("?", f"{len(entries) - room + 1} more", False)
        entries = [*(entry for entry in entries if id(entry) in shown_ids), more]
    rows = -(-len(entries) // columns)
    return [
        tuple(part for entry in entries[row::rows] for part in _entry_spans(entry, cells))
        for row in range(rows)
    ]


class _MenuEntry(NamedTuple):
    label: str
    description: str
    hinted: bool
    """Whether it stands in the line of hints."""


def _menu_entries(keys: Sequence[Key]) -> list[_MenuEntry]:
    """An entry a key; the key that does the same backwards stands beside its other."""
    entries: list[_MenuEntry] = []
    before = ""
    for key in keys:
        label, forth = key.label.split()[0], _pair_stem(key)
        if entries and forth and forth == before:
            last = entries.pop()
            entries.append(last._replace(label=f"{last.label} {label}"))
            before = ""
        else:
            entries.append(_MenuEntry(label, key.description, bool(key.hint)))
            before = forth
    return entries


def _pair_stem(key: Key) -> str:
    """What the two keys of one pair have in common; empty for a key that has no other."""
    name = key.name
    return next((name[: -len(end)] for end in ("-on", "-back") if name.endswith(end)), "")


def _entry_spans(entry: _MenuEntry, cells: int) -> TextLine:
    room = cells - MENU_KEY_CELLS - 2
    return line(
        span(entry.label.rjust(MENU_KEY_CELLS), "tool"),
        span(f" {fit_text(entry.description, room)} "),
    )
