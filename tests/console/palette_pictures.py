"""Draws docs/pictures/palettes/: eight screens in three palettes (`make pictures`).

A made-up home, three terminals in it, and the console itself, whose keys are pressed. A picture is
as small as it can be: rich's own is half clip paths.
"""

import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.terminal_theme import TerminalTheme
from textual.filter import ANSIToTruecolor, LineFilter
from textual.pilot import Pilot

from houston_console.app import console_app
from houston_console.app.console_app import HoustonConsole, without_remote_fonts
from houston_shared import terminal_log_files
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ColorDepth
from tests.console import crowded_home, draw_console

PALETTES = Path(__file__).parents[2] / "docs" / "pictures" / "palettes"
DEPTHS: tuple[ColorDepth, ...] = ("truecolor", "256", "16")
SIZE = (100, 30)
SCREENS = {
    "home": "",
    "trajectory": "",
    "step": "up up up enter",
    "files": "4",
    "terminals": "3 right",
    "prompt": "v",
    "guidance": "5 L o o k space f i r s t",
    "help": "question_mark",
}
"""Keys that lead to each screen of a rollout; home is where the console opens."""
ROLLOUT = "r-7f3a"


_XTERM = [
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0),
    (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0),
    (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
]  # fmt: skip


class PicturedConsole(HoustonConsole):
    """A console whose sixteen colours are those of xterm: in a picture they must be some."""

    CSS_PATH = str(Path(console_app.__file__).with_name("console.tcss"))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """As the console's, then for the picture."""
        xterm = TerminalTheme(_XTERM[0], _XTERM[7], _XTERM[:8], _XTERM[8:])
        return [*super().get_line_filters(), ANSIToTruecolor(xterm)]


def add_terminals(host: Path) -> None:
    """Two terminals more: one that failed a while ago, one that runs."""
    now, terminals = time.time(), terminal_log_files.terminals_folder(host, ROLLOUT)
    train = b"".join(b"\repoch %d  loss %.3f" % (n, 2 / (n + 1)) for n in range(9))
    failed = train + b"\r\n\x1b[31mRuntimeError: out of memory\x1b[0m\r\n"
    served = b"\x1b[32mGET\x1b[0m /scores 200\r\n" * 40
    logs = {
        "train": ("python3 train.py", 4 * 3600, failed, f"1;{now - 3 * 3600 - 60:.6f}"),
        "serve": ("python3 -m http.server", 725, served, ""),
    }
    for name, (words, ago, output, end) in logs.items():
        (terminals / name).mkdir()
        prompt = f"\x1b]7771;p;{now - ago:.6f}\x07/workspace $ {words}\r\n".encode()
        mark = f"\x1b]7771;e;n;{end}\x07".encode() if end else b""
        terminal_log_files.segment_file(terminals / name, 0).write_bytes(prompt + output + mark)


async def draw(folder: Path, depth: ColorDepth, screen: str) -> str:
    """One screen as SVG."""
    at_home = screen == "home"
    with crowded_home.build(folder) if at_home else draw_console.build(folder) as builder:
        if not at_home:
            add_terminals(folder / "host")
        loaded = LoadedConfiguration(Configuration(), builder.home, "defaults")
        app = PicturedConsole(loaded, "" if at_home else ROLLOUT, folder / "state", depth=depth)
        async with app.run_test(size=SIZE) as pilot:
            await app.refresh_from_store()
            await _rest(pilot)
            for key in SCREENS[screen].split():
                await pilot.press(key)
                await pilot.pause(0.05)
            await _rest(pilot)
            return compact_svg(app.export_screenshot(title=f"{screen}, {depth}"))


async def _rest(pilot: Pilot[None], seconds: float = 1.5) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await pilot.pause(0.1)


def compact_svg(svg: str) -> str:
    """The same picture in fewer bytes: short names, no clip path for each line, no blank text."""
    svg = re.sub(r"terminal-\d+", "t", without_remote_fonts(svg))
    svg = re.sub(r'<clipPath id="t-line-\d+">.*?</clipPath>\s*', "", svg, flags=re.DOTALL)
    svg = re.sub(r' clip-path="url\(#t-line-\d+\)"', "", svg)
    svg = re.sub(r"<text [^>]*>(?:&#160;)*\n?</text>", "", svg)
    return re.sub(r"\n\s*", "\n", svg)


def main() -> None:
    """Draw all of them."""
    PALETTES.mkdir(parents=True, exist_ok=True)
    for depth in DEPTHS:
        for screen in SCREENS:
            with tempfile.TemporaryDirectory(prefix="houston-") as folder:
                svg = asyncio.run(draw(Path(folder), depth, screen))
            (PALETTES / f"{screen}-{depth}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
