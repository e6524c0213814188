"""`houston console` in a terminal, measured from outside, while steps arrive and while none do.

Every time ends when the frame round the steps says where the cursor is, which Houston draws last.
"""

import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.annotating.stored import (
    COMMON,
    FEW,
    LONG,
    PEER,
    RARE,
    SHORT,
    other_names,
    rare,
    thought,
)
from bench.annotating.terminal import ENTER, Terminal

ROOT = Path(__file__).parents[2]
RATE = 10.0
"""Steps that arrive in a second."""
ESCAPE = "\x1b"
SLOWLY = 0.2
"""Seconds before and after words are typed, none of which are counted."""
KEYS = 25
JUMPS = 9
OPENINGS = 3
APPENDS = 15
HOME_TITLE = "Who needs me?"
"""What the frame of home says."""


class Arriving:
    """The process that holds the home and stores steps."""

    def __init__(self, home: Path, rollout: str) -> None:
        """rollout: the one whose steps arrive."""
        self._home, self._rollout = home, rollout
        script = str(ROOT / "bench/annotating/arriving.py")
        self._process = subprocess.Popen(
            [sys.executable, script, str(home), rollout, str(self.newest)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._hear("ready")

    def __enter__(self) -> "Arriving":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)

    @property
    def newest(self) -> int:
        """The newest step there is."""
        reading = sqlite3.connect(f"file:{self._home}/houston.db?mode=ro", uri=True)
        asked = "SELECT max(step) FROM steps WHERE rollout = ?"
        (newest,) = reading.execute(asked, (self._rollout,)).fetchone()
        reading.close()
        return int(newest)

    def go(self, seconds: float) -> None:
        """Begin to store steps; `done` waits for the end."""
        self._say(f"steps {seconds} {RATE}")

    def one(self) -> None:
        """Store one step, durably."""
        self._say("one")
        self.done()

    def done(self) -> None:
        """Wait for the end of what was begun."""
        self._hear("done")

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, wanted: str) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline().strip() == wanted


def console(home: Path, *words: str) -> Terminal:
    """The console on a home."""
    command = [sys.executable, "-m", "houston_shared.command", "console", *words]
    state = {"XDG_STATE_HOME": str(home.parent / "state"), "HOUSTON_HOME": str(home)}
    return Terminal(command, home.parent, state)


def spread(times: list[float]) -> dict[str, float]:
    """Median and worst of some milliseconds."""
    return {
        "median_ms": round(statistics.median(times), 1),
        "worst_ms": round(max(times), 1),
        "count": len(times),
    }


# --- at a rollout --------------------------------------------------------------------------------


def at(step: int) -> str:
    """How the frame says where the cursor is."""
    return f"step {step} of "


def go_to(terminal: Terminal, step: int) -> float:
    """Milliseconds of a jump to a step, from the last key to the frame that says so."""
    terminal.type(":")
    terminal.written(SLOWLY)
    terminal.type(str(step))
    terminal.written(SLOWLY)
    return terminal.press(ENTER, at(step))


def moved(terminal: Terminal, key: str, steps: list[int]) -> dict[str, float]:
    """Milliseconds of one key, again and again, that brings the cursor to each of `steps`."""
    return spread([terminal.press(key, at(step)) for step in steps])


def used(terminal: Terminal, steps: int) -> dict[str, Any]:
    """Jumps to places that were not read, and keys around the middle."""
    middle = steps // 2
    jumps = [go_to(terminal, middle)]
    jumps += [go_to(terminal, 1 + n * 7919 * 31 % (steps - 10)) for n in range(1, JUMPS)]
    go_to(terminal, middle)
    before = terminal.cpu_ms()
    down = list(range(middle + 1, middle + 1 + KEYS))
    ways = {"down": moved(terminal, "j", down), "up": moved(terminal, "k", down[-2::-1])}
    cost = (terminal.cpu_ms() - before) / (2 * KEYS - 1)
    return {"jump": spread(jumps), "key": {**ways, "processor_ms_a_key": round(cost, 1)}}


def searched(terminal: Terminal, word: str, most: int) -> dict[str, float]:
    """Milliseconds from the last key of a search to its first hits, and to its whole count.

    most: in how many steps the word is.
    """
    terminal.type("/")
    terminal.written(SLOWLY)
    terminal.type(word)
    terminal.written(SLOWLY)
    began = time.perf_counter()
    terminal.type(ENTER)
    first = terminal.until(*(f"/{word}  {n}" for n in range(1, 10)), since=began)
    counts = (f"/{most + more} " for more in range(3))
    whole = terminal.until(*counts, f"/{most}  ", since=began, again=True)
    terminal.type(ESCAPE)
    terminal.quiet(1.0)
    return {"first_hits_ms": round(first, 1), "whole_count_ms": round(whole, 1), "hits": most}


def opened(terminal: Terminal, steps: int) -> dict[str, float]:
    """Milliseconds from the key at home to the steps of the long rollout on the screen."""
    times = []
    for _ in range(OPENINGS):
        for name, newest in ((SHORT, FEW), (LONG, steps)):
            terminal.type("/")
            terminal.quiet(0.3)
            terminal.type(name + ENTER)
            terminal.quiet(0.7)
            took = terminal.press(ENTER, at(newest))
            terminal.quiet()
            terminal.type("0")
            terminal.quiet(0.7)
            terminal.type(ESCAPE)
            terminal.quiet(0.7)
        times.append(took)
    return spread(times)


def followed(terminal: Terminal, arriving: Arriving, seconds: float) -> dict[str, float]:
    """What a following console writes and works while steps arrive."""
    before, newest = terminal.cpu_ms(), arriving.newest
    arriving.go(seconds)
    count = terminal.written(seconds)
    arriving.done()
    cost = terminal.cpu_ms() - before
    return {
        "bytes_a_second": round(count / seconds),
        "processor_ms_a_step": round(cost / (arriving.newest - newest), 1),
    }


def appended(terminal: Terminal, arriving: Arriving) -> dict[str, float]:
    """Milliseconds from a step that is durable to the frame that says so."""
    times = []
    for _ in range(APPENDS):
        arriving.one()
        times.append(terminal.until(at(arriving.newest)))
        terminal.quiet()
    return spread(times)


def idle(terminal: Terminal, seconds: float) -> float:
    """Bytes a second while nothing happens, between two minutes of the clock at the top."""
    terminal.quiet(2.0)
    if (left := 60 - time.time() % 60) < seconds + 1:
        terminal.written(left + 1)
    return round(terminal.written(seconds) / seconds, 1)


# --- the whole -----------------------------------------------------------------------------------


def measure(home: Path, steps: int, small: int, seconds: float) -> dict[str, Any]:
    """All figures. steps, small: of the long rollout and of the peers'. seconds: bytes are counted
    so long, each time."""
    figures: dict[str, Any] = {}
    with Arriving(home, LONG) as arriving:
        figures["from home"] = _from_home(home, steps, seconds)
        figures["at home"] = _at_home(home, arriving, small, seconds)
        figures[f"{steps} steps"] = _long(home, arriving, seconds)
        figures["low bandwidth"] = _narrow(home, arriving, seconds)
    for rollout, count in ((PEER, small), (SHORT, FEW)):
        with Arriving(home, rollout) as arriving:
            figures[f"{count} steps"] = _short(home, rollout, arriving, seconds)
    return figures


def _from_home(home: Path, steps: int, seconds: float) -> dict[str, Any]:
    with console(home) as terminal:
        shown = terminal.until(SHORT, since=terminal.began)
        still = idle(terminal, seconds)
        before = terminal.memory_mb()
        return {
            "start_to_first_paint_ms": round(shown, 1),
            "idle_bytes_a_second": still,
            "open": opened(terminal, steps),
            "memory_mb": before,
            "memory_added_mb": round(terminal.memory_mb() - before, 1),
        }


def newest_thought(step: int) -> str:
    """What the preview at home says of a rollout whose newest step this is."""
    return thought(step)[:22]


def _at_home(home: Path, arriving: Arriving, small: int, seconds: float) -> dict[str, Any]:
    """Home with the preview beside the list; the long rollout stands first, the peers' second."""
    with console(home) as terminal:
        terminal.until(SHORT, since=terminal.began)
        newest = arriving.newest
        terminal.quiet(1.0)
        still = idle(terminal, seconds)
        before = terminal.cpu_ms()
        terminal.written(seconds)
        cost = terminal.cpu_ms() - before
        names = [PEER, SHORT, *other_names()[::-1]]
        down = [terminal.press("j", name) for name in names]
        up = [terminal.press("k", name) for name in (*names[-2::-1], LONG)]
        terminal.quiet(1.0)
        previews = []
        for _ in range(OPENINGS):
            for key, step in (("j", small), ("k", newest)):
                previews.append(terminal.press(key, newest_thought(step)))
                terminal.quiet(1.0)
        openings = []
        for _ in range(OPENINGS):
            terminal.press(ENTER, at(newest))
            terminal.quiet(1.0)
            openings.append(terminal.press("0", HOME_TITLE))
            terminal.quiet(1.0)
        return {
            "idle_bytes_a_second": still,
            "idle_processor_ms_a_second": round(cost / seconds, 1),
            "open": spread(openings),
            "key": {"down": spread(down), "up": spread(up)},
            "preview": spread(previews),
            "following": followed(terminal, arriving, seconds),
            "memory_mb": terminal.memory_mb(),
        }


def _long(home: Path, arriving: Arriving, seconds: float) -> dict[str, Any]:
    with console(home, LONG) as terminal:
        steps = arriving.newest
        shown = terminal.until(at(steps), since=terminal.began)
        found: dict[str, Any] = {"start_to_first_paint_ms": round(shown, 1)}
        found["idle_bytes_a_second"] = idle(terminal, seconds)
        found["search"] = {
            "a rare word": searched(terminal, RARE, rare(steps)),
            "a part of it": searched(terminal, RARE[1:-1], rare(steps)),
            "a word of every step": searched(terminal, COMMON, steps),
        }
        terminal.type("f")
        terminal.quiet(1.0)
        found["append"] = appended(terminal, arriving)
        found["following"] = followed(terminal, arriving, seconds)
        arriving.go(seconds)
        found["while steps arrive"] = {
            **used(terminal, steps),
            "search": searched(terminal, RARE, rare(arriving.newest)),
        }
        arriving.done()
        found["still"] = used(terminal, steps)
        return {**found, "memory_mb": terminal.memory_mb()}


def _narrow(home: Path, arriving: Arriving, seconds: float) -> dict[str, Any]:
    with console(home, LONG, "--low-bandwidth") as terminal:
        terminal.until(at(arriving.newest), since=terminal.began)
        still = idle(terminal, seconds)
        return {"idle_bytes_a_second": still, "following": followed(terminal, arriving, seconds)}


def _short(home: Path, rollout: str, arriving: Arriving, seconds: float) -> dict[str, Any]:
    with console(home, rollout) as terminal:
        steps = arriving.newest
        shown = terminal.until(at(steps), since=terminal.began)
        terminal.quiet(1.0)
        return {
            "start_to_first_paint_ms": round(shown, 1),
            "append": appended(terminal, arriving),
            "following": followed(terminal, arriving, seconds),
            "still": used(terminal, steps),
            "memory_mb": terminal.memory_mb(),
        }
