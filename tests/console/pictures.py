"""Draws the pictures of docs/: `python -m tests.console.pictures` (`make pictures`).

A made-up home with eighteen rollouts, but a real recorder, a worker of the rollout that is looked
at, and the console itself, whose keys are pressed: what is said in a picture was sent and heard.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from houston_console.app.console_app import HoustonConsole, without_remote_fonts
from houston_daemon.suites.suite_results import write_run
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ConsoleSettings
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.kept_suite_runs import suites_folder
from tests.console import draw_console, test_policies_screen
from tests.support.recorder_client import Station, Worker
from tests.unit.shared.test_kept_suite_runs import run as suite_run

DOCS = Path(__file__).parents[2] / "docs"
SIZE = (140, 42)
ROLLOUT = "r-7f3a"
DRAFT_SIZE = (120, 35)
MORE_WORDS = " Then evaluate once."
WORDS = "The check cannot finish before the corpus is clean: stop it and look at line 12 first."


class Sitting(NamedTuple):
    """A console on a home whose recorder runs, and the worker of the rollout that is looked at."""

    app: HoustonConsole
    pilot: Pilot[None]
    station: Station
    worker: Worker


@asynccontextmanager
async def sit_down(folder: Path, rollout: str, size: tuple[int, int]) -> AsyncIterator[Sitting]:
    """Make the home in `folder` and open the console on it; rollout: empty for home."""
    with draw_console.build(folder) as builder:
        home = builder.home
    station, lock = Station(home.path).start(), HomeLock(home)
    assert lock.take(HomeOwner(pid=0, since="")) is None
    worker = station.worker(ROLLOUT)
    loaded = LoadedConfiguration(
        Configuration(console=ConsoleSettings(name="ada")), home, "defaults"
    )
    app = HoustonConsole(loaded, rollout, folder / "state")
    async with app.run_test(size=size) as pilot:
        await rest(pilot)
        yield Sitting(app, pilot, station, worker)
    station.stop()
    lock.release()


async def shoot(folder: Path) -> None:
    """The way of docs/annotators.md to guidance that was heard, a picture at each stop."""
    async with sit_down(folder, "", SIZE) as (app, pilot, _station, worker):
        app.home_screen.refresh_list(ROLLOUT)
        await rest(pilot)
        _keep(app, "home")
        await _press(pilot, "slash", *"7f3a", "enter", "enter")
        _keep(app, "rollout")
        await _press(pilot, "up", "up", "up", "enter")
        _keep(app, "step")
        await _press(pilot, "v")
        _keep(app, "prompt-inspector")
        await _press(pilot, "escape", "5", *_typed(WORDS))
        _keep(app, "composer")
        await _press(pilot, "enter")
        _keep(app, "queued")
        await asyncio.to_thread(_close_step, worker)
        await _press(pilot, "escape", "f")
        _keep(app, "heard")


async def shoot_draft(folder: Path) -> None:
    """What a critic drafted: seen, edited, sent, heard, and what it gained."""
    async with sit_down(folder, ROLLOUT, DRAFT_SIZE) as (app, pilot, station, worker):
        await _press(pilot, "f")
        await asyncio.to_thread(_draft, station)
        await rest(pilot)
        _keep(app, "draft")
        await _press(pilot, "asterisk", *_typed(MORE_WORDS))
        _keep(app, "draft-edited")
        await _press(pilot, "enter")
        await asyncio.to_thread(_close_step, worker)
        await asyncio.to_thread(_evaluate, worker, 62, 74.0)
        await _press(pilot, "escape", "f", "6", "up")
        _keep(app, "draft-gained")


async def shoot_policies(folder: Path) -> None:
    """What is known of a policy before it is activated, beside the list of all."""
    async with sit_down(folder, ROLLOUT, SIZE) as (app, pilot, station, _worker):
        await asyncio.to_thread(_train, station)
        await _press(pilot, "T", "j")
        _keep(app, "policies")


ORDERS = (
    ("Read README.md before you go on.", False),
    ("Do not use train.py.", False),
    ("Use `--seed 7`.", True),
    ("Be more careful with the corpus.", False),
)
"""What is said to rollouts of the policies, and whether it is seen to be ignored."""


def _train(station: Station) -> None:
    """Two policies, a training that goes on and one that failed, and how the policies did."""
    test_policies_screen.trained(station)
    run = station.home.path / "training" / "sft-1"
    writer = ProgressWriter(run)
    writer.begin_steps(step=0, steps=48, tokens=0, total=48_000)
    for step in range(1, 31):
        loss = 0.7 + 1.9 * 0.9**step + 0.08 * (step % 3)
        writer.step_done(step=step, tokens=1_000 * step, epoch=1, loss=loss, lr=1e-4,
                         grad_norm=1, memory=1)  # fmt: skip
    suite = suites_folder(station.home) / "word-worlds"
    before = [str(int(world % 3 == 0)) for world in range(24)]
    after = [str(int(world % 3 != 1)) for world in range(24)]
    write_run(suite / "a.json", suite_run("", *before))
    write_run(suite / "b.json", suite_run("policy@2", *after))
    person = station.person()
    for text, is_ignored in ORDERS:
        (rollout,) = person.start(engine="embedded")
        worker = station.worker(rollout)
        person.guide(rollout, text)
        for step in range(1, 6):
            signals = ("guidance_ignored",) if is_ignored and step == 4 else ()
            worker.step(step, attention=signals, reasons=dict.fromkeys(signals, "not named"))


def _close_step(worker: Worker) -> None:
    for reply in (
        worker.intent(61),
        worker.result(61, text="Slept 600 s."),
        worker.observation(61, tail="[step 61 · active 40 min · 2 evaluations left]"),
    ):
        assert isinstance(reply, wire.Ack), reply


def _evaluate(worker: Worker, step: int, score: float) -> None:
    fields = {"overall_score": score, "state": "scored"}
    for reply in (
        worker.sample(step),
        worker.intent(step),
        worker.result(step, kind="eval", text=f"Score: {score:g}.", fields=fields),
        worker.observation(step, tail=f"[step {step} · active 42 min · 1 evaluation left]"),
    ):
        assert isinstance(reply, wire.Ack), reply


def _draft(station: Station) -> None:
    """What a critic would have the agent told."""
    draft = wire.StoreDraft(
        id="d-1",
        rollout=ROLLOUT,
        step=60,
        critic="word-critic@3",
        text="You check a corpus that is not clean: stop the check, then look at line 12.",
        reason="Two evaluations are left, and the last score came from a corpus with broken lines.",
    )
    person = station.person()
    assert isinstance(person.ask(draft), wire.RequestStored)
    person.close()


def _typed(text: str) -> Iterator[str]:
    """The keys of a text."""
    return ("space" if letter == " " else letter for letter in text)


async def _press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause(0.02)
    await rest(pilot)


async def rest(pilot: Pilot[None], seconds: float = 2.0) -> None:
    """Until what was asked for is drawn."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await pilot.pause(0.1)


def _keep(app: HoustonConsole, name: str) -> None:
    file = DOCS / "pictures" / f"{name}.svg"
    file.parent.mkdir(exist_ok=True)
    svg = without_remote_fonts(app.export_screenshot(title="houston console"))
    file.write_text(svg, encoding="utf-8")


def main() -> None:
    for way in (shoot, shoot_draft, shoot_policies):
        with tempfile.TemporaryDirectory(prefix="houston-") as folder:
            asyncio.run(way(Path(folder)))


if __name__ == "__main__":
    main()
