"""What a critic drafted: shown above the composer, said, edited, turned down; what it gained."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from houston_console.app.console_app import HoustonConsole
from houston_console.panes import guidance_pane
from houston_console.panes.critic_drafts import ask_critic
from houston_console.panes.guidance_composer import Composer
from houston_console.panes.guidance_pane import GuidancePane, GuidanceQueue
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.home import Home
from houston_shared.wire import Guide, StoreDraft
from tests.console.conftest import LiveStation, Seat, Sit
from tests.support.recorder_client import Worker

TEXT = "You should read the whole log before you train again."


def drafted(live: LiveStation, worker: Worker, text: str = TEXT, id: str = "d-1") -> None:
    live.person().ask(
        StoreDraft(id=id, rollout=worker.rollout, step=1, critic="word-critic@3", text=text,
                   reason="It trained twice on the same error.")
    )  # fmt: skip


async def watching(seat: Seat) -> None:
    await seat.until(lambda: seat.app.state.link == "live", "live")


def states(live: LiveStation) -> list[Any]:
    return live.query("SELECT state, by <> '', guidance <> '' FROM critic_drafts ORDER BY seq")


async def test_a_draft_is_shown_and_said_with_one_key(live: LiveStation, sit: Sit) -> None:
    worker = live.working()
    worker.step(1)
    drafted(live, worker)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.until(lambda: TEXT[:20] in seat.text("#drafted"), "the draft")
        shown = seat.text("#drafted")
        assert "word-critic@3, step 1" in shown and "= say  * edit  _ no" in shown
        assert "why: It trained twice" in shown
        assert live.query("SELECT count(*) FROM guidance") == [(0,)], "nothing is said by itself"
        await seat.press("equals_sign")
        await seat.until(lambda: "queued" in seat.text(GuidanceQueue), "queued")
        assert "word-critic@3" in seat.text(GuidanceQueue), "both names stand there"
        assert not seat.app.screen.query_one("#drafted").display
        assert states(live) == [("accepted", 1, 1)]
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == [TEXT]


async def test_a_draft_is_edited_before_it_is_said(live: LiveStation, sit: Sit) -> None:
    worker = live.working()
    worker.step(1)
    drafted(live, worker)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.until(lambda: seat.app.screen.query_one("#drafted").display, "the draft")
        await seat.press("asterisk")
        await seat.until(lambda: seat.app.query_one(Composer).text == TEXT, "in the composer")
        assert not seat.app.screen.query_one("#drafted").display, "it is in one place"
        await seat.write(" All of it.")
        await seat.press("enter")
        await seat.until(lambda: states(live) == [("edited", 1, 1)], "edited")
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == [f"{TEXT} All of it."]


async def test_a_draft_does_not_take_the_place_of_what_is_being_typed(
    live: LiveStation, sit: Sit
) -> None:
    worker = live.working()
    worker.step(1)
    drafted(live, worker)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.until(lambda: seat.app.screen.query_one("#drafted").display, "the draft")
        await seat.press("i")
        await seat.write("my own words")
        await seat.press("escape", "asterisk")
        assert seat.app.query_one(Composer).text == "my own words"
        await seat.press("underscore")
        await seat.until(lambda: states(live) == [("rejected", 1, 0)], "turned down")
        await seat.until(lambda: not seat.app.screen.query_one("#drafted").display, "gone")


async def test_who_is_second_is_told_who_was_first(live: LiveStation, sit: Sit) -> None:
    worker = live.working()
    worker.step(1)
    drafted(live, worker)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.until(lambda: seat.app.screen.query_one("#drafted").display, "the draft")
        pane = seat.app.screen.query_one(GuidancePane)
        seen = pane.critic_draft
        live.person().ask(
            Guide(id="g", rollout=worker.rollout, text=TEXT, draft="d-1", claimed="ben")
        )
        assert seen is not None
        pane._say_draft(seen)  # as the key does before the console has heard of ben
        await seat.until(lambda: "refused" in seat.text(GuidanceQueue), "refused")
        assert live.query("SELECT count(*) FROM guidance") == [(1,)]


async def test_the_gain_of_what_was_said_is_shown(live: LiveStation, sit: Sit) -> None:
    """From 50 to 100: ln(0.6 / 0.1) = 1.79."""
    worker = live.working()
    worker.step(1)
    scored(worker, 2, 50.0)
    drafted(live, worker)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.until(lambda: seat.app.screen.query_one("#drafted").display, "the draft")
        await seat.press("equals_sign")
        await seat.until(lambda: live.query("SELECT 1 FROM guidance"), "queued")
        worker.step(3)
        scored(worker, 4, 100.0)
        await seat.until(lambda: "step 3" in seat.text(GuidanceQueue), "heard")
        await seat.press("6")
        await seat.until(lambda: "gain +1.79" in seat.text("#heard"), "its gain")
        assert "50 → 100" in seat.text("#heard")
        assert "drafted by word-critic@3" in seat.text("#heard")


def scored(worker: Worker, step: int, score: float) -> None:
    """A step whose evaluation gave a score."""
    worker.sample(step)
    worker.intent(step)
    worker.result(step, kind="eval", fields={"overall_score": score, "state": "scored"})
    worker.observation(step)


ANSWERS = {
    "it drafted something": ("", guidance_pane.DRAFTED_TEXT),
    "it would change nothing": ("The critic would change nothing.", "would change nothing"),
    "it cannot be reached": ("Engine 'critic' does not answer.", "does not answer"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_critic_is_asked_with_one_key(
    live: LiveStation, sit: Sit, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself is tried in test_critique_command."""
    problem, told = ANSWERS[name]
    asked: list[str] = []

    async def answer(home: object, rollout: str, configuration: str) -> str:
        asked.append(rollout)
        await asyncio.sleep(0.01)
        return problem

    monkeypatch.setattr(guidance_pane, "ask_critic", answer)
    worker = live.working()
    worker.step(1)
    async with sit(live.home, worker.rollout) as seat:
        await watching(seat)
        await seat.press("equals_sign")
        assert "P: ask for one" in seat.bar("#hints")
        await seat.press("P")
        await seat.until(lambda: told in seat.bar("#hints"), told)
    assert asked == [worker.rollout]


SOURCES = {"a file of --config": ("/etc/lab.toml", "/etc/lab.toml"), "none": ("defaults", "")}


@pytest.mark.parametrize("name", SOURCES)
async def test_the_critic_is_asked_with_the_configuration_of_the_console(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[review]` names the critic: the command looked for a file of its own."""
    source, told = SOURCES[name]
    home = Home(tmp_path / "home")
    link = HoustonConsole(LoadedConfiguration(Configuration(), home, source), "", tmp_path).link
    command = tmp_path / "houston"
    critiques = '{"critiques": [{"text": "", "problem": "file <%s>"}]}'
    command.write_text(f"#!/bin/sh\nprintf '{critiques}' \"$HOUSTON_CONFIG\"\n")
    command.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(command))
    monkeypatch.delenv("HOUSTON_CONFIG", raising=False)
    said = await ask_critic(link.home, "r", link.configuration)
    assert said == f"The critic gave no draft: file <{told}>."
