"""A greeting of the configuration: at the head of every screen, three lines at most, harmless."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from houston_console.app.console_app import HoustonConsole
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ConsoleSettings
from tests.console import draw_console

LONG = "Ask Ida before you pause what trains: " + "its node is shared with others. " * 3 + "Thanks."
SAID = ("1  Begin here.", "2  A bell \x1b[31m\x07 is none.", "3  Ask Ida.", "4  Too much.")


async def greeting_rows(pilot: Pilot[None], least: int) -> list[str]:
    """What the bar shows once it has so many rows, or after five seconds; none while hidden."""
    for _ in range(100):
        await pilot.pause(0.05)
        bar = pilot.app.screen.query_one("#greeting")
        rows = [bar.render_line(y).text.strip() for y in range(bar.size.height * bar.display)]
        if not least or len(rows) >= least:
            break
    return rows


@pytest.mark.parametrize(
    ("said", "size", "shown"),
    [
        pytest.param(SAID, (120, 35), 3, id="three lines of four"),
        pytest.param(SAID[:1], (80, 24), 1, id="one line on a small terminal"),
        pytest.param(SAID, (80, 18), 0, id="no room"),
        pytest.param((), (120, 35), 0, id="nothing to say"),
    ],
)
async def test_a_greeting_stands_at_the_head(
    said: tuple[str, ...], size: tuple[int, int], shown: int, tmp_path: Path
) -> None:
    with draw_console.build(tmp_path) as builder:
        settings = ConsoleSettings(greeting=said)
        loaded = LoadedConfiguration(Configuration(console=settings), builder.home, "here")
        app = HoustonConsole(loaded, "", tmp_path / "state")
        async with app.run_test(size=size) as pilot:
            rows = await greeting_rows(pilot, shown)
            assert len(rows) == shown
            if shown:
                assert rows[0] == said[0]
            if shown > 1:
                assert not [row for row in rows if "\x1b" in row or "\x07" in row]


@pytest.mark.parametrize(
    ("size", "is_whole"),
    [pytest.param((80, 24), False, id="a low one"), pytest.param((80, 40), True, id="a high one")],
)
async def test_what_is_too_long_goes_on_below_or_is_seen_to_be_cut(
    size: tuple[int, int], is_whole: bool, tmp_path: Path
) -> None:
    with draw_console.build(tmp_path) as builder:
        settings = ConsoleSettings(greeting=(LONG, "2  The next."))
        loaded = LoadedConfiguration(Configuration(console=settings), builder.home, "here")
        app = HoustonConsole(loaded, "", tmp_path / "state")
        async with app.run_test(size=size) as pilot:
            rows = await greeting_rows(pilot, 2)
            assert rows[-1] == "2  The next."
            assert (" ".join(rows[:-1]) == LONG) is is_whole
            assert rows[0].endswith("…") is not is_whole
