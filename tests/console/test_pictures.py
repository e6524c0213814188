"""What the main screens look like, line by line, on a wide terminal and on a small one.

`UPDATE_PICTURES=1 pytest tests/console/test_pictures.py` draws `pictures/` anew: look at the diff
before it is kept. Colours are not compared; every state is also a glyph.
"""

import difflib
import os
import time
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from textual.pilot import Pilot

from houston_console.app.console_app import HoustonConsole
from tests.console import crowded_home, draw_console
from tests.console.conftest import SECONDS, SMALL, WIDE, sit_down

KEPT = Path(__file__).parent / "pictures"
UPDATE = bool(os.environ.get("UPDATE_PICTURES"))
NOON = 1_790_000_000
"""Seconds since 1970: when everything happens."""
SAME = 20
"""Looks at a screen that does not change any more."""


class Shot(NamedTuple):
    """One picture."""

    size: tuple[int, int]
    keys: str = ""
    many: bool = False
    """Whether the home of eighteen rollouts is looked at, from its first screen."""


SHOTS = {
    "home-160x50": Shot(WIDE, many=True),
    "home-80x24": Shot(SMALL, many=True),
    "trajectory-160x50": Shot(WIDE, "up up up enter"),
    "trajectory-80x24": Shot(SMALL, "up up up enter"),
    "prompt-inspector-160x50": Shot(WIDE, "v"),
    "composer-80x24": Shot(SMALL, "5 G o space o n"),
}


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The clock stands, in UTC, and the home is where it is for everybody."""
    formatted, now = time.strftime, time.gmtime(NOON)
    monkeypatch.setattr(time, "time_ns", lambda: NOON * 10**9)
    monkeypatch.setattr(time, "time", lambda: float(NOON))
    monkeypatch.setattr(time, "strftime", lambda form, at=now: formatted(form, at))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOME", str(tmp_path))
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(app: HoustonConsole) -> str:
    """The screen as text."""
    strips = app.screen._compositor.render_strips()
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips)


async def drawn(pilot: Pilot[None], look: Callable[[], str], wanted: Container[str] = ()) -> str:
    """What is looked at, once it is one of those wanted, or does not change any more."""
    before, same, end = "", 0, time.monotonic() + SECONDS
    # A screen that is about to be drawn is empty; it is no picture.
    while ((now := look()) not in wanted or not now) and same < SAME and time.monotonic() < end:
        same = same + 1 if now == before else 0
        before = now
        await pilot.pause(0.1)
    return now


@pytest.mark.parametrize("name", SHOTS)
async def test_a_screen_looks_as_it_did(name: str, tmp_path: Path, still: None) -> None:
    shot, file = SHOTS[name], KEPT / f"{name}.txt"
    home = crowded_home.build(tmp_path) if shot.many else draw_console.build(tmp_path)
    wanted = file.read_text() if file.exists() and not UPDATE else ""
    rollout = "" if shot.many else "r-7f3a"
    sit = partial(sit_down, size=shot.size, at_home=shot.many, folder=tmp_path / "state")
    with home as builder:
        async with sit(builder.home, rollout) as seat:
            for key in shot.keys.split():
                await seat.press(key)
            picture = await drawn(seat.pilot, partial(shown, seat.app), [wanted])
    if UPDATE:
        KEPT.mkdir(exist_ok=True)
        file.write_text(picture)
    lines = difflib.unified_diff(wanted.splitlines(), picture.splitlines(), file.name, "now", n=1)
    assert UPDATE or picture == wanted, "\n".join(lines)
