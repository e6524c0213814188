"""In 256 and in 16 colours, and without any: what differs in meaning differs, and can be read.

The 256 are the same in all terminals; what the 16 look like is the terminal's, so that the least
contrast among five of them counts.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest
from rich.color import EIGHT_BIT_PALETTE, Color, ColorSystem, ColorType
from rich.style import Style
from textual.app import App
from textual.color import Color as TextualColor
from textual.strip import Strip
from textual.theme import Theme

from houston_console.widgets.color_themes import (
    detect_color_depth,
    quantize_style,
    themes_for_depth,
    xterm_color,
)
from houston_console.widgets.styled_text import Palette, Tone, palette_for_theme
from houston_shared.config_sections import ColorDepth, ThemeName
from tests.console.draw_console import build
from tests.support.tiers import sampled

TERMINALS = {
    "linux": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa"
    " 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
    " 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc"
    " 767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
    "macos": "000000 990000 00a600 999900 0000b2 b200b2 00a6b2 bfbfbf"
    " 666666 e60000 00d900 e6e600 0000ff e600e6 00e6e6 e6e6e6",
    "gnome": "171421 c01c28 26a269 a2734c 12488b a347ba 2aa1b3 d0cfcc"
    " 5e5c64 f66151 33d17a e9ad0c 2a7bde c061cb 33c7de ffffff",
}
"""The sixteen colours of well-known terminals."""
TEXT, BORDER, DIM_16, BRIGHT_RED = 4.5, 3.0, 3.95, 4.35
"""Least contrast of text and of borders (WCAG 2, AA). bright_black on white has 4.0 in xterm, and
bright_red on black 4.36 on a Mac: there is no nearer colour among 16."""
FAINT: set[Tone] = {"dim", "faint", "number", "code_comment"}
CODE: set[Tone] = {tone for tone in get_args(Tone) if tone.startswith("code_")}
ON_GROUNDS: set[Tone] = {"text", "added", "removed"} | CODE
TOLD_APART: tuple[Tone, ...] = ("text", "error", "warning", "success", "guidance_text", "dim")
OURS = ("houston-dark", "houston-light", "houston-colour-blind")
SECONDS = 60.0
ENVIRONMENTS: dict[str, tuple[dict[str, str], ColorDepth]] = {
    "ssh from most terminals": ({"TERM": "xterm-256color"}, "256"),
    "in tmux": ({"TERM": "screen-256color"}, "256"),
    "tmux as it comes": ({"TERM": "screen"}, "16"),
    "the console of Linux": ({"TERM": "linux"}, "16"),
    "an old xterm": ({"TERM": "xterm"}, "16"),
    "a terminal that says so": ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor"),
    "another word for it": ({"TERM": "xterm", "COLORTERM": "24bit"}, "truecolor"),
    "known by its name": ({"TERM": "alacritty"}, "truecolor"),
    "kitty": ({"TERM": "xterm-kitty"}, "truecolor"),
    "by its description": ({"TERM": "xterm-direct"}, "truecolor"),
    "no terminal is named": ({}, "none"),
    "dumb": ({"TERM": "dumb", "COLORTERM": "truecolor"}, "none"),
    "a real one": ({"TERM": "vt220"}, "none"),
    "who wants none": ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none"),
    "an empty wish is none": ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),
}


@pytest.mark.parametrize("environment, expected", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_how_many_colours_a_terminal_has(environment: dict[str, str], expected: ColorDepth) -> None:
    assert detect_color_depth(environment) == expected


def test_the_256_are_what_xterm_shows() -> None:
    for number in range(16, 256):
        shown = xterm_color(number)
        assert shown == EIGHT_BIT_PALETTE[number].hex
        mapped = quantize_style(Style(color=shown), "256").color
        assert mapped is not None and EIGHT_BIT_PALETTE[mapped.number or 0].hex == shown


def _theme(name: str, colours: ColorDepth) -> Theme:
    (theme,) = (theme for theme in themes_for_depth(colours) if theme.name == name)
    return theme


def _palette(theme: Theme) -> Palette:
    return palette_for_theme(theme, {**theme.to_color_system().generate(), **theme.variables})


def _sgr(style: Style, colours: ColorDepth) -> str:
    """What is written to the terminal for a style."""
    return Strip.render_ansi(quantize_style(style, colours), ColorSystem.TRUECOLOR)


def _contrast(text: Color | None, background: Color | None) -> float:
    """The least of all terminals."""
    assert text is not None and background is not None
    shown = [(_hex(text, which), _hex(background, which)) for which in TERMINALS]
    pairs = [[TextualColor.parse(code) for code in pair] for pair in shown]
    return min(_ratio(*pair) for pair in pairs)


def _hex(colour: Color, terminal: str) -> str:
    if colour.type == ColorType.STANDARD:
        return f"#{TERMINALS[terminal].split()[colour.number or 0]}"
    if colour.type == ColorType.EIGHT_BIT:
        return xterm_color(colour.number or 0)
    return colour.get_truecolor().hex


def _ratio(first: TextualColor, second: TextualColor) -> float:
    low, high = sorted(_luminance(colour) for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: TextualColor) -> float:
    """WCAG 2.2, relative luminance."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _parsed(theme: Theme, role: str) -> Color:
    text = {**theme.to_color_system().generate(), **theme.variables}[role]
    return TextualColor.parse(text).rich_color


def _grounds(theme: Theme, palette: Palette, tone: Tone) -> dict[str, Style]:
    """By name, what a tone may lie on."""
    styles = {key: Style(bgcolor=_parsed(theme, key)) for key in ("surface", "background", "panel")}
    styles |= {"cursor": palette.cursor, "cursor_away": palette.cursor_away}
    if tone in ON_GROUNDS:
        styles |= {"added": palette.added} if tone != "removed" else {}
        styles |= {"removed": palette.removed} if tone != "added" else {}
    return styles


@pytest.mark.parametrize("colours", ["truecolor", "256", "16"])
@pytest.mark.parametrize("name", OURS)
def test_every_tone_can_be_read_wherever_it_lies(name: str, colours: ColorDepth) -> None:
    theme = _theme(name, colours)
    palette, low = _palette(theme), {}
    base = Style(bgcolor=_parsed(theme, "surface"))
    for tone in get_args(Tone):
        for where, background in _grounds(theme, palette, tone).items():
            # A ground with a colour of its own takes the place of the tone's.
            style = base + palette.tones[tone] + background
            least = TEXT
            if colours == "16":
                least = DIM_16 if tone in FAINT and not theme.dark else BRIGHT_RED
            ratio = _contrast(style.color, style.bgcolor)
            if ratio < least:
                low[tone, where] = round(ratio, 2)
    assert not low


@pytest.mark.parametrize("colours", ["truecolor", "256", "16"])
@pytest.mark.parametrize("name", OURS)
def test_frames_and_marks_are_seen_on_their_ground(name: str, colours: ColorDepth) -> None:
    theme = _theme(name, colours)
    palette = _palette(theme)
    # Among 16 million colours frames are quieter than text: only the one with the focus stands out.
    for role in ("primary",) if colours == "truecolor" else ("border", "primary"):
        for background in ("surface", "background"):
            assert _contrast(_parsed(theme, role), _parsed(theme, background)) >= BORDER, (
                role,
                background,
            )
    assert _contrast(palette.hit.color, palette.hit.bgcolor) >= TEXT
    for what in ("input-cursor", "input-selection", "screen-selection"):
        text, background = (
            _parsed(theme, f"{what}-{side}") for side in ("foreground", "background")
        )
        assert _contrast(text, background) >= TEXT, what
        assert quantize_style(Style(bgcolor=background), colours).bgcolor != _parsed(
            theme, "surface"
        ), what


@pytest.mark.parametrize("colours", ["truecolor", "256", "16"])
@pytest.mark.parametrize("name", get_args(ThemeName))
def test_what_differs_in_meaning_is_written_differently(name: str, colours: ColorDepth) -> None:
    themes = [theme for theme in themes_for_depth(colours) if theme.name == name]
    theme = themes[0] if themes else App().available_themes[name]  # the terminal's own colours
    palette = _palette(theme)
    plain = Style(bgcolor=_parsed(theme, "surface"))
    pairs = [(palette.added, palette.removed), (palette.tones["added"], palette.tones["removed"])]
    pairs += combinations((plain, palette.cursor, palette.cursor_away), 2)
    pairs += [(plain, palette.added), (plain, palette.removed), (palette.hit, palette.cursor)]
    border, focused = (Style(color=_parsed(theme, role)) for role in ("border", "primary"))
    pairs += [(border, Style(color=plain.bgcolor))]
    pairs += combinations([palette.tones[tone] for tone in TOLD_APART[:4]], 2)
    if name.startswith("houston"):
        pairs += [(border, focused)]
        pairs += combinations([palette.tones[tone] for tone in TOLD_APART], 2)
    alike = [(str(a), str(b)) for a, b in pairs if _sgr(a, colours) == _sgr(b, colours)]
    assert not alike


class Terminal:
    """A real terminal with the console in it; keeps every byte that was written."""

    def __init__(self, home: Path, state: Path, *words: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        outer = ("COLORTERM", "NO_COLOR", "COLUMNS", "LINES")  # of the terminal around the tests
        inherited = {name: value for name, value in os.environ.items() if name not in outer}
        own = {"HOUSTON_HOME": str(home), "XDG_STATE_HOME": str(state)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "houston_shared.command", "console", "r-7f3a", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, **own, **variables},
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def until(self, text: bytes) -> None:
        end = time.monotonic() + SECONDS
        while text not in self.output:
            assert time.monotonic() < end, f"no {text!r} in {self.output[-2000:]!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self.output += os.read(self._master, 1 << 16)

    def colours(self) -> set[str]:
        """Every colour that was set: `38;5;114`, `92`, `48;2;1;2;3`."""
        shown: set[str] = set()
        drawn = self.output.partition(b"\x1b[?1049h")[2]  # behind what the terminal was asked
        for codes in re.findall(rb"\x1b\[([0-9;]*)m", drawn):
            shown |= set(re.findall(r"[34]8;(?:5;\d+|2;\d+;\d+;\d+)", codes.decode()))
            rest = re.sub(r"[34]8;(?:5;\d+|2;\d+;\d+;\d+)", "", codes.decode())
            shown |= {code for code in rest.split(";") if re.fullmatch("[349][0-7]|10[0-7]", code)}
        return shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _written(tmp_path: Path, *words: str, **variables: str) -> set[str]:
    """The colours that the console writes, once a diff shows."""
    with build(tmp_path) as builder:
        terminal = Terminal(builder.home.path, tmp_path / "state", *words, **variables)
        try:
            terminal.until(b"counts.pop")
            return terminal.colours()
        finally:
            terminal.close()


TEN_X = {f"{tens}{ones}" for tens in (3, 4, 9, 10) for ones in range(8)}
REAL: dict[str, tuple[tuple[str, ...], dict[str, str], set[str], str]] = {
    "256, dark": ((), {"TERM": "xterm-256color"}, {"48;5;22", "48;5;52", "38;5;243"}, r"[34]8;5;"),
    "256, light": (
        (),
        {"TERM": "xterm-256color", "HOUSTON__CONSOLE__THEME": "houston-light"},
        {"48;5;194", "48;5;224", "38;5;244"},
        r"[34]8;5;",
    ),
    "16, dark": ((), {"TERM": "xterm"}, {"92", "91", "97", "40", "44"}, r"\d+$"),
    "16, light": (
        (),
        {"TERM": "xterm", "HOUSTON__CONSOLE__THEME": "houston-light"},
        {"42", "41", "30", "107", "44"},
        r"\d+$",
    ),
    "told to be 256": (("--colors", "256"), {"TERM": "xterm"}, {"48;5;22"}, r"[34]8;5;"),
    "configured to be 16": (
        (),
        {"TERM": "xterm-256color", "HOUSTON__CONSOLE__COLORS": "16"},
        {"92", "91"},
        r"\d+$",
    ),
    "all of them": (
        (),
        {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
        {"38;2;211;216;222"},
        r"[34]8;2;",
    ),
    "none": ((), {"TERM": "xterm-256color", "NO_COLOR": "1"}, set(), "never"),
}


@pytest.mark.parametrize("name", sampled(REAL, 3))
def test_a_real_terminal_gets_the_colours_of_the_palette(name: str, tmp_path: Path) -> None:
    words, variables, expected, allowed = REAL[name]
    written = _written(tmp_path, *words, **variables)
    assert expected <= written
    assert not {code for code in written if not re.match(allowed, code)}
