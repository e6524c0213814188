"""Every key of the console, once: bindings, the line of hints and the help page come from here.

Keys are safe inside tmux and over SSH: no ctrl+enter, function keys only as a second way.
"""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Area = Literal[
    "app",
    "watch",
    "trajectory",
    "find",
    "rollouts",
    "terminals",
    "files",
    "queue",
    "composer",
    "lines",
    "question",
]


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be done in one area."""

    area: Area
    keys: str
    """Comma separated, in Textual's names."""
    action: str
    shown: str
    """How the keys are written for people."""
    does: str
    hint: str = ""
    """Word or two for the line of hints; empty when it is not there."""
    priority: bool = False
    """Taken before the focused widget sees it, so that what is typed next finds its place."""


KEYS = (
    Key("watch", "1", "area('rollouts')", "1", "go to the rollouts"),
    Key("watch", "2", "area('trajectory')", "2", "go to the trajectory"),
    Key("watch", "3", "area('terminals')", "3", "go to the terminals"),
    Key("watch", "4", "area('files')", "4", "go to files and searches"),
    Key("watch", "5,i", "area('composer')", "5 i", "say something to the agent", "guide", True),
    Key("watch", "6", "area('queue')", "6", "go to the guidance of this rollout"),
    Key("watch", "slash", "ask('/')", "/", "search this rollout", "search", True),
    Key("watch", "colon", "ask(':')", ":", "go to a step, a time or a permalink", "step",
        True),
    Key("watch", "tab", "next_area(1)", "tab", "next area", "area", True),
    Key("watch", "shift+tab", "next_area(-1)", "shift+tab", "area before", "", True),
    Key("watch", "p", "steer('pause')", "p", "pause this rollout", "pause"),
    Key("watch", "r", "steer('resume')", "r", "resume this rollout", "resume"),
    Key("watch", "ctrl+k", "steer('cancel')", "ctrl+k", "cancel this rollout (asks first)"),
    Key("app", "question_mark,f1", "help", "? F1", "every key", "help"),
    Key("app", "q", "quit", "q", "leave; daemon and agents go on", "quit"),
    Key("app", "ctrl+q", "quit", "ctrl+q", "leave, from anywhere", "", True),
    Key("trajectory", "j,down", "down", "j ↓", "next step; through an unfolded one line by line"),
    Key("trajectory", "k,up", "up", "k ↑", "step before"),
    Key("trajectory", "enter,space", "fold", "enter", "unfold or fold a step", "unfold"),
    Key("trajectory", "z", "fold_all", "z", "unfold or fold all"),
    Key("find", "v", "eye", "v", "the eye: exactly what the model was given", "eye"),
    Key("find", "n", "hit(1)", "n", "next hit"),
    Key("find", "N", "hit(-1)", "N", "hit before"),
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
    Key("trajectory", "f,end", "follow", "f end", "go to the newest step and follow", "follow"),
    Key("trajectory", "G", "follow", "G", "the same"),
    Key("trajectory", "g,home", "top", "g home", "go to the start"),
    Key("trajectory", "pagedown,ctrl+f", "page(1)", "pgdn", "a page on"),
    Key("trajectory", "pageup,ctrl+b", "page(-1)", "pgup", "a page back"),
    Key("find", "escape", "clear", "esc", "end the search"),
    Key("rollouts", "enter,space", "screen.choose_rollout", "enter", "open a rollout", "open",
        True),
    Key("files", "enter", "choose", "enter", "from a file to its changes, from there to the step",
        "open"),
    Key("files", "right,l", "view(1)", "→ l", "files or searches", "view"),
    Key("files", "left,h", "view(-1)", "← h", "the other view"),
    Key("files", "escape", "back", "esc", "back to the list"),
    Key("terminals", "right,l", "terminal(1)", "→ l", "next terminal", "terminal"),
    Key("terminals", "left,h", "terminal(-1)", "← h", "terminal before"),
    Key("queue", "d", "withdraw", "d", "withdraw guidance that is queued", "withdraw"),
    Key("queue", "E", "edit", "E", "edit guidance that is queued", "edit"),
    Key("queue", "enter", "choose", "enter", "go to the step that heard it", "step"),
    Key("lines", "j,down", "down", "j ↓", "line down"),
    Key("lines", "k,up", "up", "k ↑", "line up"),
    Key("lines", "g,home", "first", "g home", "first line"),
    Key("lines", "G,end", "last", "G end", "last line"),
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
    Key("composer", "escape", "leave", "esc", "back to the trajectory; the draft stays", "back"),
)  # fmt: skip


def bindings(area: Area) -> list[BindingType]:
    """Textual bindings of one area."""
    return [
        Binding(key, one.action, one.does, show=False, priority=one.priority)
        for one in KEYS
        if one.area == area
        for key in one.keys.split(",")
    ]


def actions(area: Area) -> dict[str, str]:
    """Actions of one area by key, for a widget that must take keys in the order they came."""
    return {key: one.action for one in KEYS if one.area == area for key in one.keys.split(",")}


def hints(area: Area) -> list[tuple[str, str]]:
    """Keys and their words for the line at the bottom: the area's, then those of everywhere."""
    alone = area in ("composer", "question")
    here: tuple[Area, ...] = (area, "find") if area == "trajectory" else (area,)
    everywhere: tuple[Area, ...] = () if alone else ("watch", "app")
    shown = [one for part in (here, everywhere) for one in KEYS if one.area in part]
    return [(one.shown.split()[0], one.hint) for one in shown if one.hint]


TITLES: tuple[tuple[Area, str], ...] = (
    ("app", "Everywhere"),
    ("watch", "Everywhere at a rollout but in the composer"),
    ("trajectory", "Trajectory"),
    ("find", "Finding in the trajectory"),
    ("rollouts", "Rollouts"),
    ("terminals", "Terminals"),
    ("files", "Files and searches"),
    ("queue", "Guidance"),
    ("composer", "Composer"),
    ("question", "Questions"),
    ("lines", "Lists and texts"),
)
