"""Asks the terminal whether it shows 16 million colours and takes UTF-8.

SSH forwards neither COLORTERM nor, often, the locale, so the terminal is asked before the console
opens. A colour is set and read back (DECRQSS), the terminal's name is asked (XTVERSION), and a
character of two bytes is written between two queries of the cursor (CPR). Every terminal answers
the last query (DA1), so its answer ends the wait. tmux is asked by its own command. Text that is
typed meanwhile is passed on. `widgets.color_themes` and `widgets.ascii_marks` decide what follows
from the answers.
"""

import os
import re
import select
import subprocess
import termios
import time
import tty
from collections.abc import Mapping
from typing import Literal, NamedTuple

_QUERY = (
    b"\x1b[48;2;1;2;3m\x1bP$qm\x1b\\\x1b[0m"  # how is text written now?
    b"\x1b[>0q"  # which terminal is this?
    b"\x1b7\x1b[6n\xc3\xa9\x1b[6n\x1b8\x1b[K"  # where is the cursor before and behind é?
    b"\x1b[c"  # what can it do? All of them answer that
)
_LAST_ANSWER = re.compile(rb"\x1b\[\?[0-9;]*c")
_STYLE_ANSWER = re.compile(rb"\x1bP[01]\$r([^\x1b]*)\x1b\\")
_NAME_ANSWER = re.compile(rb"\x1bP>\|([^\x1b]*)\x1b\\")
_CURSOR_ANSWER = re.compile(rb"\x1b\[([0-9]{1,5});([0-9]{1,5})R")
_ANSWERS = (_LAST_ANSWER, _STYLE_ANSWER, _NAME_ANSWER, _CURSOR_ANSWER)
_TRUECOLOR_STYLE = re.compile(rb"48[:;]2[:;]+(?:\d*:)?1[:;]2[:;]3(?![0-9])")
_TRUECOLOR_NAMES = re.compile(
    rb"(?i)iterm2|wezterm|kitty|konsole|foot|contour|ghostty|mintty|vte|alacritty|rio"
    rb"|windows terminal"
)
"""Terminals that show 16 million colours, as they name themselves."""
_NOT_ASKED = re.compile(r"$|(?:dumb|unknown|linux|vt[0-9]+)\b")
"""Beginnings of TERM whose terminals might print a question."""
ANSWER_SECONDS, ANSWER_SECONDS_OVER_SSH = 0.5, 2.0
"""How long a terminal is waited for that does not answer."""
TMUX_SECONDS = 2.0


class TerminalAnswer(NamedTuple):
    """What a terminal said."""

    colors: Literal["truecolor", "256", ""] = ""
    """Empty: it did not say."""
    utf8: bool | None = None
    """None: it did not say."""
    typed: str = ""
    """What somebody typed while it was asked."""


NO_ANSWER = TerminalAnswer()


def ask_terminal(fd: int, environment: Mapping[str, str]) -> TerminalAnswer:
    """Ask the terminal `fd`, or the tmux that it is; nothing where it is known not to answer."""
    if environment.get("TMUX"):
        return _ask_tmux(environment)
    if _NOT_ASKED.match(environment.get("TERM", "").strip().lower()):
        return NO_ANSWER
    over_ssh = bool(environment.get("SSH_CONNECTION"))
    data = _read_answers(fd, ANSWER_SECONDS_OVER_SSH if over_ssh else ANSWER_SECONDS)
    return interpret_answers(data)


def interpret_answers(data: bytes) -> TerminalAnswer:
    """What was read from a terminal that was asked: its answers, and what was typed."""
    colors: Literal["truecolor", "256", ""] = ""
    style, name = _STYLE_ANSWER.search(data), _NAME_ANSWER.search(data)
    truecolor_match = style is not None and _TRUECOLOR_STYLE.search(style[1])
    if truecolor_match or (name is not None and _TRUECOLOR_NAMES.match(name[1].strip())):
        colors = "truecolor"
    elif style is not None and b"48:5:" in style[1]:  # the nearest of those it has
        colors = "256"
    places = [(int(place[1]), int(place[2])) for place in _CURSOR_ANSWER.finditer(data)]
    utf8 = None
    if len(places) == 2 and places[0][0] == places[1][0]:
        utf8 = places[1][1] - places[0][1] == 1
    for answer in _ANSWERS:
        data = answer.sub(b"", data)
    return TerminalAnswer(colors, utf8, data.decode("utf-8", "replace"))


def _read_answers(fd: int, seconds: float) -> bytes:
    """Ask, and read until the last answer has come; nothing that was typed is thrown away."""
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSANOW)
        os.write(fd, _QUERY)
        data, end = b"", time.monotonic() + seconds
        while not _LAST_ANSWER.search(data):
            seconds_left = end - time.monotonic()
            if seconds_left <= 0 or not select.select([fd], [], [], seconds_left)[0]:
                break
            piece = os.read(fd, 4096)
            if not piece:
                break
            data += piece
        return data
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def _ask_tmux(environment: Mapping[str, str]) -> TerminalAnswer:
    """What tmux knows of the terminal that somebody looks at it with."""
    tmux_format = "#{client_utf8} #{client_termname} #{client_termfeatures}"
    command = ("tmux", "display-message", "-p", tmux_format)
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TMUX_SECONDS, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):  # no tmux here, although somebody's is named
        return NO_ANSWER
    utf8, _, rest = result.stdout.strip().partition(" ")
    if result.returncode or utf8 not in ("0", "1"):
        return NO_ANSWER
    term, _, features = rest.partition(" ")
    named = features.split(",")
    colors: Literal["truecolor", "256", ""]
    colors = "truecolor" if "RGB" in named else "256" if "256" in named or "256" in term else ""
    return TerminalAnswer(colors, utf8 == "1")
