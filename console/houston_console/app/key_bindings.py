"""Every key of the console, once: bindings, the hint line and the help page come from here.

Holds the registry of keys by area, and the keymap file in which a person gives actions other keys
(`[area]` tables of `action = "keys"`). Keys are safe inside tmux and over SSH: no ctrl+enter,
function keys only as a second way. The keymap has to be in force before any widget is imported,
so this module imports no widget. What an action does is in the widget or screen of its area.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from platformdirs import user_config_path
from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.toml_file import read_toml

Area = Literal[
    "app",
    "undo",
    "watch",
    "whole",
    "trajectory",
    "find",
    "hits",
    "search",
    "judging",
    "marks",
    "rollouts",
    "terminals",
    "files",
    "queue",
    "composer",
    "lines",
    "question",
    "home",
    "since",
    "compare",
    "policies",
    "resources",
    "words",
    "prompt",
]


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be done in one area."""

    area: Area
    keys: str
    """Comma separated, in Textual's names."""
    action: str
    label: str
    """How the keys are written for people."""
    description: str
    hint: str = ""
    """Word or two for the line of hints; empty when it is not there."""
    priority: bool = False
    """Taken before the focused widget sees it, so that what is typed next finds its place."""

    given_name: str = ""
    """Its name, where another of the area does the same."""

    @property
    def name(self) -> str:
        """What it does, in a person's file of keys: `area-files`, `nearest-error-back`."""
        if self.given_name:
            return self.given_name
        words = re.findall(r"-?\w+|[/:]", self.action.replace("screen.", ""))
        return "-".join(_ARGUMENT_NAMES.get(word, word) for word in words).replace("_", "-").lower()


_ARGUMENT_NAMES = {
    "1": "on",
    "-1": "back",
    "True": "on",
    "False": "back",
    "/": "search",
    ":": "step",
}


KEYS = (
    Key("watch", "0,backspace", "app.home", "0", "home: every rollout, who needs somebody first",
        "home"),
    Key("watch", "1", "area('rollouts')", "1", "go to the rollouts"),
    Key("watch", "2", "area('trajectory')", "2", "go to the trajectory"),
    Key("watch", "3", "area('terminals')", "3", "go to the terminals"),
    Key("watch", "4", "area('files')", "4", "go to files and searches"),
    Key("watch", "5,i", "area('composer')", "5 i", "say something to the agent", "guide", True),
    Key("watch", "6", "area('queue')", "6", "go to the guidance of this rollout"),
    Key("watch", "slash", "ask('/')", "/",
        "search the steps; in a list, filter it by words as you type", "search", True),
    Key("watch", "colon", "ask(':')", ":", "go to a step, a time or a permalink", "step",
        True),
    Key("watch", "tab", "next_area(1)", "tab", "next area", "area", True),
    Key("watch", "shift+tab", "next_area(-1)", "shift+tab", "area before", "", True),
    Key("whole", "p", "steer('pause')", "p", "pause this rollout", "pause"),
    Key("whole", "r", "steer('resume')", "r", "resume this rollout", "resume"),
    Key("whole", "ctrl+k", "steer('cancel')", "ctrl+k", "cancel this rollout (asks first)"),
    Key("whole", "I", "since", "I", "what happened since you were here; again to fold it", "since"),
    Key("whole", "percent_sign", "jobs", "%", "jobs: what it left running, and how that ended",
        "jobs"),
    Key("whole", "right_square_bracket", "walk(1)", "]", "next event since you were here"),
    Key("whole", "left_square_bracket", "walk(-1)", "[", "event since you were here before"),
    Key("whole", "c", "claim", "c", "look after this rollout, or hand it over", "claim"),
    Key("whole", "C", "claim(True)", "C", "look after it no longer, at once: takes a claim back"),
    Key("whole", "P", "ask_critic", "P", "have a critic draft what to say", "critic"),
    Key("whole", "equals_sign", "decide_draft('accept')", "=", "say what the critic drafted",
        given_name="accept-draft"),
    Key("whole", "asterisk", "decide_draft('edit')", "*", "edit what the critic drafted",
        given_name="edit-draft"),
    Key("whole", "underscore", "decide_draft('reject')", "_", "turn down what the critic drafted",
        given_name="reject-draft"),
    Key("whole", "plus", "branch", "+", "branch after the step at the cursor (asks first)"),
    Key("app", "y", "copy", "y", "copy the selection, or the line or step at the cursor", "copy"),
    Key("app", "ctrl+p", "commands", "ctrl+p", "every command and rollout by name", "commands",
        True),
    Key("app", "T", "policies", "T", "policies and training runs", "policies"),
    Key("app", "Q", "resources", "Q", "engines, machines, and what waits for them"),
    Key("app", "space", "menu", "space", "what each key does here; the next key does it", "keys"),
    Key("app", "question_mark,f1", "help", "? F1", "every key, with a filter", "help"),
    Key("app", "q", "quit", "q", "leave; daemon and agents go on", "quit"),
    Key("app", "ctrl+q", "quit", "ctrl+q", "leave, from anywhere", "", True, "quit-anywhere"),
    Key("undo", "Z", "take_back", "Z", "take back what a key just did, for five seconds", "", True),
    Key("undo", "ctrl+z", "take_back(True)", "ctrl+z", "the same, also while you type", "", True,
        "take-back-anywhere"),
    Key("trajectory", "j,down", "down", "j ↓", "next step; through an unfolded one line by line"),
    Key("trajectory", "k,up", "up", "k ↑", "step before"),
    Key("trajectory", "enter", "fold", "enter", "unfold or fold a step", "unfold"),
    Key("trajectory", "right", "open", "→", "unfold equal failures (×), else the step"),
    Key("trajectory", "left,h", "close", "← h", "fold the step; again: its equal failures (×)"),
    Key("trajectory", "z", "fold_all", "z", "unfold or fold all"),
    Key("find", "v", "inspect", "v", "prompt inspector: exactly what the model got", "prompt"),
    Key("hits", "n", "hit(1)", "n", "next hit"),
    Key("hits", "N", "hit(-1)", "N", "hit before"),
    Key("hits", "number_sign", "list", "#", "list all that was found, and go there"),
    Key("hits", "ampersand", "filter", "&", "show only the steps that were found, or all again"),
    Key("hits", "escape", "clear", "esc", "end a range; show all steps again; end the search"),
    Key("search", "ctrl+r", "turn('mode')", "ctrl+r", "as written, pattern, or words", "mode"),
    Key("search", "ctrl+o", "turn('where')", "ctrl+o", "this rollout, this task, or all rollouts",
        "where"),
    Key("search", "ctrl+t", "turn('what')", "ctrl+t", "steps, diffs, searches, or terminals",
        "what"),
    Key("search", "up", "earlier(-1)", "↑", "the search before", "earlier"),
    Key("search", "down", "earlier(1)", "↓", "the search after it"),
    Key("find", "e", "nearest('error', True)", "e", "next error", "error"),
    Key("find", "E", "nearest('error', False)", "E", "error before"),
    Key("find", "u", "nearest('guidance', True)", "u", "next guidance", "guidance"),
    Key("find", "U", "nearest('guidance', False)", "U", "guidance before"),
    Key("find", "s", "nearest('evaluation', True)", "s", "next evaluation"),
    Key("find", "S", "nearest('evaluation', False)", "S", "evaluation before"),
    Key("find", "x", "nearest('drop', True)", "x", "next fall of the score"),
    Key("find", "X", "nearest('drop', False)", "X", "fall of the score before"),
    Key("find", "d", "nearest('file', True)", "d", "next change of a file"),
    Key("find", "D", "nearest('file', False)", "D", "change of a file before"),
    Key("find", "o", "nearest('tool', True)", "o", "next step with the same tool as here"),
    Key("find", "O", "nearest('tool', False)", "O", "step with the same tool before"),
    Key("find", "a", "nearest('attention', True)", "a", "next attention mark"),
    Key("find", "A", "nearest('attention', False)", "A", "attention mark before"),
    Key("find", "w", "nearest('fork', True)", "w", "next context that began by summarising"),
    Key("find", "W", "nearest('fork', False)", "W", "such a context before"),
    Key("find", "b", "nearest('bookmark', True)", "b", "next bookmark or note"),
    Key("find", "B", "nearest('bookmark', False)", "B", "bookmark or note before"),
    Key("find", "full_stop", "nearest('verdict', True)", ".", "next step with a verdict"),
    Key("find", "comma", "nearest('verdict', False)", ",", "step with a verdict before"),
    Key("find", "less_than_sign", "lowest(False)", "<",
        "step with the lowest process reward; again: the next lowest", given_name="lowest-on"),
    Key("find", "greater_than_sign", "lowest(True)", ">", "back to the step that was lower",
        given_name="lowest-back"),
    Key("judging", "K", "judge('keep')", "K", "keep this step, or those that are chosen", "keep"),
    Key("judging", "M", "judge('mask')", "M", "mask it: it will not be trained on", "mask"),
    Key("judging", "minus", "judge('undecided')", "-", "take people's verdict on it back"),
    Key("judging", "V", "choose", "V", "choose a range: move, then K or M"),
    Key("judging", "R", "reason", "R", "say why, for the verdict that stands"),
    Key("judging", "Z,ctrl+z", "undo", "Z", "bring back what stood before your verdict, later too"),
    Key("judging", "H", "history", "H", "all that was said of this step"),
    Key("marks", "m", "bookmark", "m", "bookmark this step for everybody; again: take it away",
        "bookmark"),
    Key("marks", "semicolon", "note", ";", "leave a note on this step for everybody"),
    Key("marks", "L", "marks", "L", "list bookmarks and notes of everybody"),
    Key("marks", "Y", "permalink", "Y", "copy the permalink of this step; again: its command"),
    Key("trajectory", "f,end,G", "follow", "f end G", "go to the newest step and follow", "follow"),
    Key("trajectory", "g,home", "top", "g home", "go to the start"),
    Key("trajectory", "pagedown,ctrl+f", "page(1)", "pgdn", "a page on"),
    Key("trajectory", "pageup,ctrl+b", "page(-1)", "pgup", "a page back"),
    Key("home", "enter", "open", "enter",
        "open the rollout at the cursor; unfold or fold what has ended", "open", True),
    Key("home", "i", "write", "i", "say something to the agent at the cursor, from here", "guide",
        True),
    Key("home", "slash", "filter", "/", "filter by words as you type", "filter", True),
    Key("home", "t", "group", "t", "under their tasks, or all in one list", "tasks"),
    Key("home", "z", "fold_ended", "z", "unfold or fold what has ended, of every task", "ended"),
    Key("home", "circumflex_accent", "sort", "^", "by need at once, not only after some seconds"),
    Key("home", "0,1,2,3,4,5,6,7,8,9", "number", "0 … 9", "go to a rollout by its number"),
    Key("home", "V", "mark", "V", "choose two rollouts of a task to compare", "choose"),
    Key("home", "vertical_line", "compare", "|", "the two that are chosen, side by side",
        "compare"),
    Key("home", "c", "claim", "c", "look after a rollout, or hand it over", "claim"),
    Key("home", "C", "claim(True)", "C", "look after it no longer, at once: takes a claim back"),
    Key("home", "p", "steer('pause')", "p", "pause a rollout"),
    Key("home", "r", "steer('resume')", "r", "resume a rollout"),
    Key("home", "ctrl+k", "steer('cancel')", "ctrl+k", "cancel a rollout (asks first)"),
    Key("home", "escape", "back", "esc", "end the filter, or go back to the open rollout", "back"),
    Key("prompt", "right,l,tab", "turn(1)", "→ l", "messages, rendered text, token ids, difference",
        "text"),
    Key("prompt", "escape,v,backspace", "back", "esc v", "close the prompt inspector", "close"),
    Key("prompt", "left,h,shift+tab", "turn(-1)", "← h", "the text before"),
    Key("prompt", "1", "show(0)", "1", "the messages"),
    Key("prompt", "2", "show(1)", "2", "the rendered text"),
    Key("prompt", "3", "show(2)", "3", "the token ids"),
    Key("prompt", "4", "show(3)", "4", "what differs from the step before", "differs"),
    Key("prompt", "right_curly_bracket", "other(1)", "}", "the next step's request", "next step"),
    Key("prompt", "left_curly_bracket", "other(-1)", "{", "the request of the step before"),
    Key("prompt", "slash", "ask", "/", "look for words in this request", "find"),
    Key("prompt", "n", "hit(1)", "n", "next line that holds them"),
    Key("prompt", "N", "hit(-1)", "N", "line before that holds them"),
    Key("prompt", "dollar_sign", "cached", "$", "go to where the engine's cache ended", "cached"),
    Key("prompt", "enter", "choose", "enter", "show this step in the trajectory", "step"),
    Key("since", "enter", "choose", "enter", "go to the step of a line", "step"),
    Key("since", "escape", "screen.since", "esc", "fold it", "fold"),
    Key("compare", "escape,backspace", "back", "esc", "back to home", "back"),
    Key("policies", "enter", "activate", "enter", "have new rollouts sample with it (asks first)",
        "activate"),
    Key("policies", "slash", "filter", "/", "filter by words as you type", "filter", True),
    Key("policies", "tab", "app.focus_next", "tab", "from the list to what is known, and back",
        "details"),
    Key("policies", "Z", "rollback", "Z", "back to what they sampled with before (asks first)",
        "roll back"),
    Key("policies", "ctrl+k", "cancel", "ctrl+k", "end a training run (asks first)", "end a run"),
    Key("policies", "escape,backspace", "back", "esc", "back to where you came from", "back"),
    Key("resources", "escape,backspace", "back", "esc", "back to where you came from", "back"),
    Key("rollouts", "enter", "screen.choose_rollout", "enter", "open a rollout", "open",
        True),
    Key("rollouts", "circumflex_accent", "sort", "^",
        "by need at once, not only after some seconds"),
    Key("files", "enter", "choose", "enter", "from a file to its changes, from there to the step",
        "open"),
    Key("files", "right,l", "view(1)", "→ l", "files or searches", "view"),
    Key("files", "left,h", "view(-1)", "← h", "the other view"),
    Key("files", "escape", "back", "esc", "back to the list"),
    Key("files", "vertical_line", "beside", "|", "old and new side by side, or one below the other",
        "split"),
    Key("files", "ctrl+d", "scroll(1)", "ctrl+d", "half a page on in the diff or result"),
    Key("files", "ctrl+u", "scroll(-1)", "ctrl+u", "half a page back in it"),
    Key("files", "z", "screen.whole", "z", "over the whole screen, or back", "whole"),
    Key("terminals", "right,l", "terminal(1)", "→ l", "next terminal", "terminal"),
    Key("terminals", "left,h", "terminal(-1)", "← h", "terminal before"),
    Key("terminals", "at", "replay", "@", "as the step at the cursor left it; again: live",
        "at step"),
    Key("terminals", "right_curly_bracket", "printed(1)", "}", "the next step that printed here"),
    Key("terminals", "left_curly_bracket", "printed(-1)", "{", "the step before that printed here"),
    Key("terminals", "enter", "choose", "enter", "go to the step whose output is shown"),
    Key("terminals", "n", "screen.hit(1)", "n", "next line that a search has found"),
    Key("terminals", "N", "screen.hit(-1)", "N", "line that a search found before"),
    Key("terminals", "exclamation_mark", "attach", "!",
        "attach to the tmux session itself, read-only", "attach"),
    Key("terminals", "z", "screen.whole", "z", "over the whole screen, or back", "whole"),
    Key("terminals", "F", "fetch", "F", "fetch the log from another machine, or what is new of it"),
    Key("queue", "minus", "withdraw", "-", "withdraw guidance that is queued", "withdraw"),
    Key("queue", "quotation_mark", "edit", "\"", "edit guidance that is queued", "edit"),
    Key("queue", "right_curly_bracket,shift+down", "move(1)", "}",
        "have it heard later than the next that waits", "later"),
    Key("queue", "left_curly_bracket,shift+up", "move(-1)", "{", "have it heard earlier",
        "earlier"),
    Key("queue", "enter", "choose", "enter", "go to the step that heard it", "step"),
    Key("lines", "j,down", "down", "j ↓", "line down"),
    Key("lines", "k,up", "up", "k ↑", "line up"),
    Key("lines", "g,home", "first", "g home", "first line"),
    Key("lines", "G,end", "last", "G end", "last line"),
    Key("lines", "slash", "filter", "/", "filter a list by words as you type"),
    Key("lines", "pagedown,ctrl+f", "page(1)", "pgdn", "a page on"),
    Key("lines", "pageup,ctrl+b", "page(-1)", "pgup", "a page back"),
    Key("composer", "enter,ctrl+s", "send('next')", "enter", "send: joins the next observation",
        "send"),
    Key("composer", "ctrl+j,shift+enter,alt+enter", "newline", "ctrl+j", "a new line", "new line"),
    Key("composer", "ctrl+w", "send('wake')", "ctrl+w", "send and cut a sleep or wait short",
        "wake"),
    Key("composer", "ctrl+x", "send('interrupt')", "ctrl+x", "send and interrupt (asks first)",
        "interrupt"),
    Key("question", "y", "answer(True)", "y", "yes", "yes"),
    Key("question", "n,escape,q,enter", "answer(False)", "n", "no", "no"),
    Key("words", "escape", "leave", "esc", "cancel; enter does it", "cancel"),
    Key("composer", "ctrl+n", "complete", "ctrl+n", "finish a file or a step by name; again: next",
        "complete"),
    Key("composer", "ctrl+t", "snippets", "ctrl+t", "say what is kept for again, or keep this",
        "snippets"),
    Key("composer", "alt+up", "older", "↑ alt+↑", "what you said before; ↑ where nothing is"),
    Key("composer", "alt+down", "newer", "↓ alt+↓", "what you said after that, then your draft"),
    Key("composer", "escape", "leave", "esc", "back to the trajectory; the draft stays", "back"),
)  # fmt: skip


TRANSCRIPT_AREAS: tuple[Area, ...] = ("trajectory", "find", "hits", "judging", "marks")
"""Areas of the steps, whose keys are hinted at together."""
LIST_AREAS: tuple[Area, ...] = ("rollouts", "files", "queue", "since")
"""Areas of a list, which the key that searches the steps filters."""
FOCUS_CHAINS: tuple[tuple[Area, ...], ...] = (
    (*TRANSCRIPT_AREAS, "watch", "whole", "app"),
    ("rollouts", "watch", "whole", "app"),
    ("terminals", "watch", "whole", "app"),
    ("files", "watch", "whole", "app"),
    ("queue", "watch", "whole", "app"),
    ("home", "app"),
    ("since", "watch", "whole", "app"),
    ("compare", "app"),
    ("policies", "app"),
    ("resources", "app"),
    ("prompt", "app"),
    ("composer",),
    ("question",),
    ("words",),
    ("search",),
)
"""Areas whose keys can be pressed at the same place, from the focus outwards."""


def focus_chain(area: Area) -> tuple[Area, ...]:
    """The areas whose keys can be pressed with the focus in `area`."""
    return next((chain for chain in FOCUS_CHAINS if area in chain), (area, "app"))


class _KeyRegistry:
    """The keys that are in use."""

    def __init__(self) -> None:
        self.keys: tuple[Key, ...] = KEYS
        self.was_read = False


_ACTIVE_REGISTRY = _KeyRegistry()


def set_active_keys(keys: Iterable[Key]) -> None:
    """Use a person's keys from now on: before any widget is imported, which takes its own then."""
    active_keys = tuple(keys)
    if _ACTIVE_REGISTRY.was_read and active_keys != _ACTIVE_REGISTRY.keys:
        raise RuntimeError("widgets have taken their keys already")
    _ACTIVE_REGISTRY.keys = active_keys


def keys_of_areas(*areas: Area) -> list[Key]:
    """What can be done in these areas, area by area."""
    return [binding for area in areas for binding in _ACTIVE_REGISTRY.keys if binding.area == area]


def bindings_for(area: Area) -> list[BindingType]:
    """Textual bindings of one area."""
    _ACTIVE_REGISTRY.was_read = True
    return [
        Binding(key, binding.action, binding.description, show=False, priority=binding.priority)
        for binding in keys_of_areas(area)
        for key in binding.keys.split(",")
    ]


def key_label(area: Area, action: str) -> str:
    """How the key for an action is written for this person."""
    return next(
        binding.label.split()[0] for binding in keys_of_areas(area) if binding.action == action
    )


def actions_by_key(area: Area) -> dict[str, str]:
    """Actions of one area by key, for a widget that must take keys in the order they came."""
    return {key: entry.action for entry in keys_of_areas(area) for key in entry.keys.split(",")}


def hints_for(area: Area, described: bool = False) -> list[tuple[str, str]]:
    """Keys and their words for the line at the bottom: the area's, then those of everywhere.

    described: what each does in full, in place of its word.
    """
    shown_areas = focus_chain(area)
    if area == "trajectory":  # what a narrow screen leaves out comes late: speaking comes early
        shown_areas = ("trajectory", "watch", *TRANSCRIPT_AREAS[1:], "whole", "app")

    def word(binding: Key) -> str:
        if described:
            return binding.description
        is_filter = area in LIST_AREAS and binding.action == "ask('/')"
        return "filter" if is_filter else binding.hint

    return [
        (binding.label.split()[0], word(binding))
        for binding in keys_of_areas(*shown_areas)
        if binding.hint
    ]


AREA_TITLES: tuple[tuple[Area, str], ...] = (
    ("app", "Everywhere"),
    ("undo", "While something can be taken back"),
    ("home", "Home"),
    ("compare", "Two side by side"),
    ("policies", "Policies and training"),
    ("resources", "Engines, machines, and what waits"),
    ("watch", "Everywhere at a rollout but in the composer"),
    ("whole", "The rollout as a whole"),
    ("trajectory", "Trajectory"),
    ("find", "Finding in the trajectory"),
    ("prompt", "Prompt inspector"),
    ("hits", "What a search has found"),
    ("search", "While a search is written"),
    ("judging", "Judging steps"),
    ("marks", "Bookmarks and permalinks"),
    ("since", "Since you were here"),
    ("rollouts", "Rollouts"),
    ("terminals", "Terminals"),
    ("files", "Files and searches"),
    ("queue", "Guidance"),
    ("composer", "Composer"),
    ("question", "Questions"),
    ("words", "Questions that are answered with words"),
    ("lines", "Lists and texts"),
)


_KEY_SYMBOLS = {
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}
_KEY_NAMES = {key.value for key in Keys}
_CHARACTER_OF_KEY_NAME = {
    KEY_NAME_REPLACEMENTS.get(name, name): character
    for character in string.punctuation
    for name in [re.sub("[ -]", "_", unicodedata.name(character)).lower()]
}
"""Characters by the names that Textual gives their keys."""


def keymap_path() -> Path:
    """Where a person keeps their keys."""
    return user_config_path("houston") / "keys.toml"


def load_keymap(path: Path) -> tuple[Key, ...]:
    """The registry with the keys of a person's file; as it is when there is none.

    Raises HoustonError for a file that cannot be read, names what does not exist, or gives one key
    two meanings in one place.
    """
    if not path.exists():
        return KEYS
    overrides = _read_key_overrides(path)
    actions = {(binding.area, binding.name) for binding in KEYS}
    for area, name in overrides:
        if (area, name) not in actions:
            raise _keymap_error(path, f"names `[{area}] {name}`, which is not a console action")
    changed = tuple(_override_keys(key, overrides.get((key.area, key.name)), path) for key in KEYS)
    for key, first, second in find_key_conflicts(changed):
        raise _keymap_error(
            path, f"leaves {key!r} with two meanings: {first.description}, and {second.description}"
        )
    return changed


def _read_key_overrides(path: Path) -> dict[tuple[str, str], str]:
    """Keys by area and action."""
    overrides: dict[tuple[str, str], str] = {}
    for area, table in read_toml(path).items():
        if not isinstance(table, Mapping):
            raise _keymap_error(path, f"has {area!r} outside a table")
        for name, keys in table.items():
            if not isinstance(keys, str):
                raise _keymap_error(path, f"gives `[{area}] {name}` a value that is not text")
            overrides[area, name] = keys
    return overrides


def _override_keys(binding: Key, keys: str | None, path: Path) -> Key:
    if keys is None:
        return binding
    names = [key.strip() for key in keys.split(",")]
    for name in names:
        if not _is_valid_key_name(name):
            raise _keymap_error(
                path, f"gives `[{binding.area}] {binding.name}` {name!r}, which is not a key"
            )
    label = " ".join(
        _KEY_SYMBOLS.get(name) or _CHARACTER_OF_KEY_NAME.get(name, name) for name in names
    )
    return replace(binding, keys=",".join(names), label=label)


def _is_valid_key_name(name: str) -> bool:
    *modifiers, last = name.split("+")
    is_key = (
        last in _KEY_NAMES or last in _CHARACTER_OF_KEY_NAME or (len(last) == 1 and last.isalnum())
    )
    return is_key and set(modifiers) <= {"ctrl", "shift", "alt"}


def find_key_conflicts(keys: Iterable[Key]) -> list[tuple[str, Key, Key]]:
    """Keys that mean two things where they can be pressed. The keys of lists are there to be
    taken over by an area's own."""
    conflicts: list[tuple[str, Key, Key]] = []
    every = list(keys)
    for chain in FOCUS_CHAINS:
        meanings: dict[str, Key] = {}
        for binding in (binding for area in chain for binding in every if binding.area == area):
            for key in binding.keys.split(","):
                same_key = meanings.setdefault(key, binding)
                if same_key is not binding and (key, same_key, binding) not in conflicts:
                    conflicts.append((key, same_key, binding))
    return conflicts


def keymap_toml(keys: Iterable[Key]) -> str:
    """Every action with its keys, as a file to begin with."""
    lines = ["# Keys of `houston console`. What is left out keeps its key.", ""]
    area = ""
    for binding in sorted(keys, key=lambda binding: binding.area):
        if binding.area != area:
            area = binding.area
            lines += ["", f"[{area}]"]
        lines.append(f'{binding.name} = "{binding.keys}"  # {binding.description}')
    return "\n".join(lines) + "\n"


def _keymap_error(path: Path, problem_text: str) -> HoustonError:
    return HoustonError(
        f"{path} {problem_text}.",
        "The console was not opened.",
        "houston console --keymap prints every action with its keys",
        ExitCode.CONFIGURATION,
    )
