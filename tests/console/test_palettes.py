"""What a diff and terminals look like in each palette, colours and all.

`UPDATE_PICTURES=1 pytest tests/console/test_palettes.py` writes `palettes/` anew: look at each by
`cat` in a terminal of so many colours before it is kept.
"""

import difflib
import re
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.strip import Strip

from houston_console.app.console_app import HoustonConsole
from houston_console.widgets.line_view import LineView
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ColorDepth, ConsoleSettings, ThemeName
from tests.console import draw_console
from tests.console.palette_pictures import ROLLOUT, add_terminals
from tests.console.test_color_depth import OURS
from tests.console.test_pictures import UPDATE, drawn, still

__all__ = ["still"]
KEPT = Path(__file__).parent / "palettes"
DEPTHS: tuple[ColorDepth, ...] = ("truecolor", "256", "16")
PALETTES: list[tuple[str, ColorDepth]] = [*product(OURS, DEPTHS), (OURS[0], "none")]
SHOWN = {"#diffs": ("4", "enter"), "#terminal-text": ("3", "left")}
"""Lists, and the keys that fill them: the changes of a step, and the terminal that failed."""
LINES = 12
"""Lines of each, from its end."""
SIZE = (160, 50)
_SGR = re.compile(r"\x1b\[[0-9;]*m")


def _ansi(app: HoustonConsole, name: str) -> str:
    """The last lines of one widget as they are written to a terminal, whatever its height."""
    widget = app.screen.query_one(name, LineView)
    lines, count = [], widget.line_count()
    for number in range(max(0, count - LINES), count):
        parts = widget.line_at(number)
        strip = widget.palette.strip(parts, widget.line_cells, widget.rich_style)
        for line_filter in app.get_line_filters():
            strip = strip.apply_filter(line_filter, Color(0, 0, 0))
        pieces = [
            f"\x1b[{codes}m{segment.text}\x1b[0m" if codes else segment.text
            for segment in strip
            for codes in [Strip.render_ansi(segment.style, ColorSystem.TRUECOLOR)]
            if segment.style
        ]
        lines.append("".join(pieces).rstrip())
    return "\n".join(lines)


@pytest.mark.parametrize("theme, depth", PALETTES)
async def test_a_palette_looks_as_it_did(
    theme: str, depth: ColorDepth, tmp_path: Path, still: None
) -> None:
    file = KEPT / f"{theme}-{depth}.ansi"
    wanted = () if UPDATE else file.read_text().removesuffix("\n").split("\n\n")
    with draw_console.build(tmp_path) as builder:
        builder.home.configuration.write_text(f'[console]\ntheme = "{theme}"\n')
        add_terminals(tmp_path / "host")
        settings = ConsoleSettings(theme=cast(ThemeName, theme))
        loaded = LoadedConfiguration(Configuration(console=settings), builder.home, "here")
        app = HoustonConsole(loaded, ROLLOUT, tmp_path / "state", depth=depth)
        async with app.run_test(size=SIZE) as pilot:
            await app.refresh_from_store()
            pictures = []
            for name, keys in SHOWN.items():
                await pilot.press(*keys)
                pictures.append(await drawn(pilot, partial(_ansi, app, name), wanted))
            picture = "\n\n".join(pictures) + "\n"
    assert "counts.pop" in picture
    assert "out of memory" in picture
    if UPDATE:
        KEPT.mkdir(exist_ok=True)
        file.write_text(picture)
    kept = file.read_text()
    changed = difflib.unified_diff(kept.splitlines(), picture.splitlines(), file.name, "now", n=1)
    assert picture == kept, "\n".join(changed)


@pytest.mark.parametrize("theme, depth", PALETTES)
def test_what_was_added_and_removed_is_told_apart_also_without_a_colour(
    theme: str, depth: ColorDepth
) -> None:
    lines = (KEPT / f"{theme}-{depth}.ansi").read_text().splitlines()
    added = next(line for line in lines if "counts.pop" in line)
    removed = next(line for line in lines if "open(" in _SGR.sub("", line) and "−" in line)
    assert re.search(r"\d +\+", _SGR.sub("", added))
    assert re.search(r"\d +−", _SGR.sub("", removed))
    styles = [
        _SGR.findall(line.partition(mark)[0])[-1:] for line, mark in ((added, "+"), (removed, "−"))
    ]
    assert styles[0] != styles[1]


def test_without_colours_none_is_written() -> None:
    codes = _SGR.findall((KEPT / f"{OURS[0]}-none.ansi").read_text())
    assert not [code for code in codes if re.search(r"[\[;](?:[349][0-7]|[34]8|10[0-7])[;m]", code)]
