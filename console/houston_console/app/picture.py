"""A picture of the console on a home, drawn without a screen: for the README and for looking at."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from houston_console.app.app import HoustonConsole
from houston_console.app.transcript.transcript import Transcript
from houston_shared.config import Depth, Loaded

SETTLE_SECONDS = 5.0
"""How long at most until the first read is on the screen."""


_REMOTE_FONTS = re.compile(r"@font-face\s*{[^}]*}\s*")
_FONTS = "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace"


async def draw(
    loaded: Loaded,
    rollout: str,
    path: Path,
    size: tuple[int, int],
    keys: Sequence[str] = (),
    name: str = "",
    depth: Depth = "truecolor",
) -> None:
    """Write what the console shows as SVG into `path`.

    size: columns and lines. keys: pressed before the picture is taken, named as Textual does.
    name: who looks, where several share a login. depth: the colours that it may have.
    Raises HoustonError when the home cannot be read.
    """
    app = HoustonConsole(loaded, rollout, name=name, depth=depth)
    async with app.run_test(size=size) as pilot:
        await app.catch_up()
        async with asyncio.timeout(SETTLE_SECONDS):
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await pilot.press(*keys)
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await pilot.pause()
        path.write_text(
            without_remote_fonts(app.export_screenshot(title="houston console")), encoding="utf-8"
        )


def without_remote_fonts(svg: str) -> str:
    """The picture without the addresses of fonts elsewhere: looking at it asks nobody."""
    without = _REMOTE_FONTS.sub("", svg)
    return re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {_FONTS};", without)
