"""A picture of the console on a home, drawn without a screen: for the README and for looking at."""

import asyncio
from pathlib import Path

from houston_console.app.app import HoustonConsole
from houston_console.app.widgets.transcript import Transcript
from houston_shared.config import Loaded

SETTLE_SECONDS = 5.0
"""How long at most until the first read is on the screen."""


async def draw(loaded: Loaded, rollout: str, path: Path, width: int, height: int) -> None:
    """Write what the console shows, `width` x `height` characters, as SVG into `path`.

    Raises HoustonError when the home cannot be read.
    """
    app = HoustonConsole(loaded, rollout)
    async with app.run_test(size=(width, height)) as pilot:
        await app.catch_up()
        async with asyncio.timeout(SETTLE_SECONDS):
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await pilot.pause()
        path.write_text(app.export_screenshot(title="houston console"), encoding="utf-8")
