"""Random keys, sizes and news: nothing ends the console, and no part of it fails.

Each seed presses its keys on a home of eighteen rollouts that goes on meanwhile, at sizes that
change, beside a daemon in one of three states (`tests.console.fuzzed_daemons`).
`HOUSTON_FUZZ_KEYS` and `HOUSTON_FUZZ_SEEDS` (a list, parted by commas) run more, or one seed again;
what was pressed last is in the message of a failure, and `bench/console_fuzz.py` presses as many as
one has time for. Leaving and attaching to tmux are left out: they end the screen, as they should.
"""

import asyncio
import os
import random
from collections import Counter, deque
from pathlib import Path
from typing import Literal, get_args

import pytest
from textual import events
from textual.keys import _character_to_key

from houston_console.app.console_app import HoustonConsole
from houston_console.app.key_bindings import KEYS
from houston_console.panes.terminals_pane import TerminalsPane
from houston_shared import terminal_log_files
from houston_shared.records import FileChange, TerminalSpan
from tests.console import crowded_home
from tests.console.conftest import Seat, sit_down
from tests.console.fuzzed_daemons import Away, FuzzedDaemon, OtherVersion, Restarting
from tests.console.home_builder import HomeBuilder
from tests.console.record_terminals import RECORDED

DaemonState = Literal["away", "restarting", "another version"]
DAEMON_STATES: tuple[DaemonState, ...] = get_args(DaemonState)
KEYS_A_SEED = int(os.environ.get("HOUSTON_FUZZ_KEYS", "400"))
SEEDS = [
    int(seed) for seed in os.environ.get("HOUSTON_FUZZ_SEEDS", "1,2,3,4,5,6,7,8,9,10").split(",")
]
SIZES = ((160, 50), (80, 24), (120, 35), (200, 60), (100, 30), (60, 16), (40, 12))
TYPED = [*"abcdefghijklmnopqrstuvwxyzGNTRZKMPCES0123456789", "space", "minus", "at", "full_stop"]
MOVED = ["up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "shift+tab"]
ENDED = ["enter", "enter", "escape", "escape", "escape", "backspace", "delete", "ctrl+a", "ctrl+e"]
BOUND = [key.strip() for known in KEYS for key in known.keys.split(",")]
CHARACTERS = {"space": " ", "minus": "-", "at": "@", "full_stop": ".", "enter": "\r", "tab": "\t"}
NEWS_EVERY, SIZE_EVERY = 12, 60
MOST_WAITING = 20
"""Keys that may wait for those before them."""


class GoingOn:
    """A home in which agents go on while somebody presses keys."""

    def __init__(self, builder: HomeBuilder, root: Path, chance: random.Random) -> None:
        self._builder, self._chance = builder, chance
        self._steps = {
            entry.id: entry.steps for entry in crowded_home.CROWD if entry.state == "running"
        }
        self._logs = sorted(RECORDED.glob("*.log"))
        self._root, self._count = root, 0
        self._begin()

    def happens(self) -> None:
        """One more thing that agents or the daemon do."""
        news = (
            self._step,
            self._step,
            self._fails,
            self._says,
            self._begin,
            self._ends,
            self._runs,
        )
        self._chance.choice(news)()

    def _some(self) -> str:
        return self._chance.choice(sorted(self._steps))

    def _begin(self) -> None:
        self._count += 1
        name = f"fuzzed-{self._count}"
        self._builder.start(name, "fuzzed", host_root=str(self._root))
        self._steps[name] = 0

    def _step(self) -> None:
        rollout = self._some()
        self._steps[rollout] += 1
        change = FileChange(
            path=f"src/{self._chance.randrange(9)}.py",
            kind="changed",
            added=2,
            removed=1,
            diff="@@ -1 +1,2 @@\n-a\n+b 中文\n+" + "c" * self._chance.randrange(400) + "\n",
        )
        self._builder.whole(
            rollout, self._steps[rollout], "Go on.\n" * self._chance.randrange(4), files=(change,),
            spans=self._printed(rollout),
        )  # fmt: skip

    def _printed(self, rollout: str) -> tuple[TerminalSpan, ...]:
        if not rollout.startswith("fuzzed"):
            return ()
        folder = terminal_log_files.terminals_folder(self._root, rollout) / "main"
        folder.mkdir(parents=True, exist_ok=True)
        log = terminal_log_files.segment_file(folder, 0)
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            file.write(self._chance.choice(self._logs).read_bytes())
        return (TerminalSpan(host="local", terminal="main", start=start, end=log.stat().st_size),)

    def _fails(self) -> None:
        rollout = self._some()
        self._steps[rollout] += 1
        reasons = {"error_streak": "5 steps in a row in which a call failed"}
        searched = {"kind": "search", "fields": {"query": "how <b>", "total_results": 7}}
        self._builder.whole(
            rollout,
            self._steps[rollout],
            "Again.",
            (("search_dir", {"query": "how <b>"}),),
            success=False,
            result=searched,
            attention=tuple(reasons),
            reasons=reasons,
        )

    def _says(self) -> None:
        self._count += 1
        self._builder.say(self._some(), f"word-{self._count}", "Look <again> [b]at[/b] it.", "ben")

    def _runs(self) -> None:
        """A job begins, or ends at once."""
        rollout, self._count = self._some(), self._count + 1
        code = self._chance.choice([None, 0, 1, 137])
        ended = {"ended_at": 9 * 10**15, "exit_code": code, "failed": bool(code), "log_end": 10**6}
        self._builder.job(
            rollout,
            max(1, self._steps[rollout]),
            self._chance.choice(["main", "../main", "train \u202e", ""]),
            self._chance.choice(["python train.py", "a\x1b[2Jb\n" * 40, ""]),
            id=f"job-{self._count}",
            started_at=8 * 10**15,
            last_line=self._chance.choice(["", "\x1b]0;x\x07" + "中" * 400]),
            **(self._chance.choice([{}, ended])),
        )

    def _ends(self) -> None:
        if len(self._steps) > 4:
            rollout = self._some()
            del self._steps[rollout]
            state = self._chance.choice(["finished", "failed", "cancelled", "paused"])
            self._builder.state(rollout, state, "ben", "enough")


def _next_keys(chance: random.Random) -> list[str]:
    """One key, or a few that belong together."""
    kind = chance.random()
    if kind < 0.5:
        return [chance.choice(BOUND)]
    if kind < 0.75:
        return [chance.choice(MOVED) for _ in range(chance.randrange(1, 4))]
    if kind < 0.9:
        return [chance.choice(ENDED)]
    return [chance.choice(TYPED) for _ in range(chance.randrange(1, 6))]


async def _alone(*_: object) -> None:
    """Instead of what leaves the screen."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("daemon", DAEMON_STATES)
@pytest.mark.parametrize(
    ("seed", "keys"),
    [(1, 250), *(pytest.param(seed, KEYS_A_SEED, marks=pytest.mark.slow) for seed in SEEDS)],
)
async def test_no_key_ends_the_console(
    seed: int, keys: int, daemon: DaemonState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fuzz(seed, keys, tmp_path, monkeypatch, daemon)


async def fuzz(
    seed: int,
    keys: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    daemon: DaemonState = "away",
) -> Counter[str]:
    """Press the keys of a seed on a home in `folder`; how many were pressed on which screen."""
    monkeypatch.setattr(HoustonConsole, "action_quit", _alone)
    monkeypatch.setattr(TerminalsPane, "action_attach", _alone)
    monkeypatch.delenv("TMUX", raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(folder / name))
    chance = random.Random(seed)
    builder = crowded_home.build(folder)
    beside = _daemon_in(daemon, builder, folder, chance)
    last: deque[str] = deque(maxlen=60)
    visited: Counter[str] = Counter()
    seated = sit_down(builder.home, at_home=seed % 2 == 0, folder=folder / "state")
    try:
        async with seated as seat:
            await _press(seat, keys, chance, beside, last, visited)
            await seat.pilot.pause()
    except BaseException as problem:
        problem.add_note(f"seed {seed}, last keys: {' '.join(last)}")
        raise
    finally:
        await beside.close()
        builder.close()
    return visited


def _daemon_in(
    state: DaemonState, builder: HomeBuilder, folder: Path, chance: random.Random
) -> FuzzedDaemon:
    if state == "restarting":
        builder.close()  # a home has one writer
        return Restarting(builder.home.path)
    news = GoingOn(builder, folder / "host", chance).happens
    return Away(news) if state == "away" else OtherVersion(builder, news, chance)


def _send(app: HoustonConsole, keys: list[str]) -> None:
    """Keys as a terminal's driver tells them."""
    assert app._driver is not None
    for key in keys:
        character = CHARACTERS.get(key, key if len(key) == 1 else None)
        event = events.Key(_character_to_key(key) if len(key) == 1 else key, character)
        event.set_sender(app)
        app._driver.send_message(event)


async def _press(
    seat: Seat,
    wanted: int,
    chance: random.Random,
    beside: FuzzedDaemon,
    last: deque[str],
    visited: Counter[str],
) -> None:
    pressed = 0
    while pressed < wanted:
        keys = _next_keys(chance)
        last.extend(keys)
        visited[type(seat.app.screen).__name__] += len(keys)
        _send(seat.app, keys)
        if chance.random() < 0.3 or len(seat.app.keys) > MOST_WAITING:
            await seat.app.keys.settle()  # the others come faster than they are answered
            await seat.pilot.pause()
        else:
            await asyncio.sleep(0)
        before, pressed = pressed, pressed + len(keys)
        if pressed // NEWS_EVERY > before // NEWS_EVERY:
            await beside.happens()
        if pressed // SIZE_EVERY > before // SIZE_EVERY:
            await beside.turn()
            size = chance.choice(SIZES)
            last.append(f"[{size[0]}x{size[1]}]")
            await seat.pilot.resize_terminal(*size)
        assert seat.app.is_running, "it ended"
        assert not seat.app.errors.faults, seat.app.errors.path.read_text()
