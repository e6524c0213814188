"""How fast the console is on a rollout of 50,000 steps and a million lines.

The app runs headless in this process (160 x 50) on a home written by the recorder's own journal.
Figures: from the first read to a drawn screen, a jump to an unread place, a key, a page, an unfold,
a new step, the memory that all of it added. The aims are in the JSON beside the figures.

    python bench/console.py [--steps 50000] [--lines 20]
"""

import argparse
import asyncio
import json
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from houston_console.app.app import HoustonConsole
from houston_shared.config import Configuration, Loaded
from tests.console.homes import HomeBuilder

AIMS_MS = {"open": 300, "jump": 50, "key": 10}
TRIES = 40


def write(folder: Path, steps: int, lines: int) -> HomeBuilder:
    """A home with one rollout."""
    builder = HomeBuilder(folder / "home")
    text = "\n".join(f"line {number} of what the command printed here" for number in range(lines))
    with builder.bulk():
        builder.start("long")
        for number in range(1, steps + 1):
            thought = f"I think about step {number} and what should come next."
            builder.whole("long", number, thought, texts=(text,))
    return builder


def memory_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def timed(tries: int, act: Callable[[int], Awaitable[Any]]) -> dict[str, float]:
    """Milliseconds of `act`, median and worst."""
    found = []
    for number in range(tries):
        start = time.perf_counter()
        await act(number)
        found.append((time.perf_counter() - start) * 1000)
    return {"median_ms": round(statistics.median(found), 2), "worst_ms": round(max(found), 2)}


async def measure(builder: HomeBuilder, folder: Path, steps: int) -> dict[str, Any]:
    """Drive one console."""
    app = HoustonConsole(Loaded(Configuration(), builder.home, "bench"), "long", folder / "state")
    app.pump.run = asyncio.Event().wait  # type: ignore[method-assign,assignment]  # we catch up
    figures: dict[str, Any] = {}
    async with app.run_test(size=(160, 50)) as pilot:
        transcript = app.watching.trajectory.transcript
        await pilot.pause()
        before = memory_mb()

        def draw() -> None:
            for y in range(transcript.size.height):
                transcript.render_line(y)

        async def opened(_: int) -> None:
            await app.catch_up()
            await transcript.settle()
            draw()

        async def jumped(number: int) -> None:
            await transcript.go_to(1 + (number * 7919 * 31) % steps)
            draw()

        async def key(number: int) -> None:
            transcript.action_down()
            await transcript.settle()
            draw()

        async def page(number: int) -> None:
            transcript.action_page(-1)
            await transcript.settle()
            draw()

        async def unfolded(number: int) -> None:
            transcript.action_fold()
            await transcript.settle()
            draw()

        async def grown(number: int) -> None:
            builder.whole("long", steps + number + 1, "one more", texts=("ok",))
            await app.catch_up()
            draw()

        figures["open"] = await timed(1, opened)
        figures["jump"] = await timed(TRIES, jumped)
        figures["key"] = await timed(TRIES, key)
        figures["page"] = await timed(TRIES, page)
        figures["unfold or fold"] = await timed(TRIES, unfolded)
        transcript.action_follow()
        await transcript.settle()
        figures["new step, writing it included"] = await timed(TRIES, grown)
        figures["memory_mb"] = round(memory_mb() - before, 1)
    return figures


def main() -> None:
    """Measure, print, and write bench/results/console.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--lines", type=int, default=20)
    parsed = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="houston-bench-") as name,
        write(Path(name), parsed.steps, parsed.lines) as builder,
    ):
        figures = asyncio.run(measure(builder, Path(name), parsed.steps))
    result = {
        "what": "console, headless, 160x50",
        "steps": parsed.steps,
        "lines": parsed.steps * parsed.lines,
        "aims_ms": AIMS_MS,
        "figures": figures,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    (Path(__file__).parent / "results" / "console.json").write_text(text)


if __name__ == "__main__":
    main()
