"""A home, a recorder where a test speaks to one, and an annotator at a console on it."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from houston_console.app.console_app import HoustonConsole
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.line_view import LineView
from houston_console.widgets.styled_text import (
    CURSOR_EDGE_CHARACTERS,
    CURSOR_GLYPH,
    UNFOCUSED_CURSOR_GLYPH,
)
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.records import ENDED_STATES
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from tests.console.home_builder import HomeBuilder
from tests.support.recorder_client import Station

SECONDS = 60.0
_NO_CURSOR = re.compile(f"[{CURSOR_GLYPH}{UNFOCUSED_CURSOR_GLYPH}]")
WIDE, SMALL = (160, 50), (80, 24)


_parsed: dict[Any, list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules


def _parse_rules_once(sheet: Stylesheet, css: str, *origin: Any, **named: Any) -> list[RuleSet]:
    """Rules of one text with the same variables: what Textual keeps for one app, kept for all."""
    key = (frozenset(sheet._variables.items()), css, origin, frozenset(named.items()))
    if key not in _parsed:
        _parsed[key] = _parse_rules(sheet, css, *origin, **named)
    return _parsed[key]


@pytest.fixture(autouse=True, scope="session")
def _css_is_parsed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", _parse_rules_once)
        yield


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[HomeBuilder]:
    """A home that a test writes, without a daemon."""
    with HomeBuilder(tmp_path / "home") as builder:
        yield builder


class LiveStation(Station):
    """A recorder that holds its home, as a daemon does."""

    def start(self) -> "LiveStation":
        super().start()
        self._take()
        return self

    def _take(self) -> None:
        self._lock = HomeLock(self.home)
        assert self._lock.take(HomeOwner(pid=0, since="")) is None

    def stop(self) -> None:
        super().stop()
        self._lock.release()

    def again(self) -> None:
        """Start after `stop`."""
        self.recorder = type(self.recorder)(self.home, self.config, self._tell)
        self.recorder.start()
        self._take()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveStation]:
    station = LiveStation(tmp_path / "home").start()
    yield station
    station.stop()


class Seat:
    """An annotator at a console."""

    def __init__(self, app: HoustonConsole, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.expected_faults: list[str] = []
        """Of parts that a test lets fail: a console goes on, and a test would not notice."""

    @property
    def transcript(self) -> Transcript:
        return self.app.watch_screen.trajectory.transcript

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.app.keys.settle()
        await self.pilot.pause()
        await self.transcript.settle()
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        """Type text."""
        names = {" ": "space", ".": "full_stop", "/": "slash", "*": "asterisk", "'": "apostrophe"}
        await self.press(*(names.get(character, character) for character in text))

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        """Wait until something is so."""
        waited = 0.0
        while not condition():
            assert waited < SECONDS, f"not within {SECONDS} s: {what}\n{self.hint()}"
            await self.pilot.pause(0.05)
            waited += 0.05

    def lines(self, kind: type[LineView] | str = Transcript) -> list[str]:
        """What a list shows, without the glyph before the line with the cursor."""
        view = self.app.screen.query_one(kind, LineView)
        shown = [view.render_line(y).text.rstrip() for y in range(view.size.height)]
        return [
            _NO_CURSOR.sub(" ", text[:CURSOR_EDGE_CHARACTERS]) + text[CURSOR_EDGE_CHARACTERS:]
            for text in shown
        ]

    def text(self, kind: type[LineView] | str = Transcript) -> str:
        return "\n".join(self.lines(kind))

    def bar(self, name: str) -> str:
        """What a bar says."""
        return str(self.app.screen_stack[0].query_one(name).render_line(0).text)

    def hint(self) -> str:
        """What the line of keys of the screen before one's eyes says."""
        return str(self.app.top_screen.hints.render_line(0).text)

    def offered(self) -> str:
        """What the row says that can be taken back; empty while it is not there."""
        row = self.app.top_screen.undo
        shown = range(row.size.height if row.display else 0)
        return "\n".join(str(row.render_line(y).text).rstrip() for y in shown)

    def frame(self, name: str) -> str:
        """Title and lower edge of a frame."""
        widget = self.app.screen.query_one(name)
        return f"{widget.border_title} | {widget.border_subtitle}"


def _newest(home: Home) -> str:
    """The rollout to sit down at; empty where there is none."""
    if not home.database.exists():
        return ""
    with Reader(home) as reader:
        rollouts = reader.run(rollout_queries.list_rollouts())
    rollouts.sort(key=lambda row: (row.state in ENDED_STATES, -row.created_at))
    return rollouts[0].id if rollouts else ""


Sit = Callable[..., AbstractAsyncContextManager[Seat]]


@asynccontextmanager
async def sit_down(
    home: Home,
    rollout: str = "",
    size: tuple[int, int] = WIDE,
    at_home: bool = False,
    name: str = "",
    *,
    folder: Path,
) -> AsyncIterator[Seat]:
    """Sit down at a console; folder: where drafts are kept."""
    named = rollout or ("" if at_home else _newest(home))
    loaded = LoadedConfiguration(Configuration(), home, "defaults")
    app = HoustonConsole(loaded, named, folder, name=name)
    async with app.run_test(size=size) as pilot:
        seat = Seat(app, pilot)
        watching = app.watch_screen
        if at_home:
            await seat.until(lambda: app.home_screen.list.rows, "home")
        else:
            await seat.until(lambda: watching.source or not app.state.rollouts, "opened")
        if home.database.exists():
            await app.refresh_from_store()
        await pilot.pause()
        await seat.transcript.settle()
        await pilot.pause()
        yield seat
    assert app.errors.faults == seat.expected_faults


@pytest.fixture
def sit(tmp_path: Path) -> Sit:
    """Sit down at a console: `async with sit(home) as seat`.

    Without a rollout at the newest that runs; at_home: where somebody begins who names none.
    name: as `--as` gives it.
    """
    return partial(sit_down, folder=tmp_path / "state")
