"""Saying it well and not typing it twice: history, completion, snippets, order, what followed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from houston_console.app import daemon_link
from houston_console.app.terminal_driver import TypedKeyParser
from houston_console.panes import guidance_pane
from houston_console.panes.guidance_composer import (
    Composer,
    complete_word,
    is_mostly_commands,
)
from houston_console.panes.guidance_outbox import GuidanceEntry, move_in_order
from houston_console.panes.guidance_pane import GuidanceQueue
from houston_console.widgets.dialogs import InputHistory
from houston_shared.records import FileChange
from houston_shared.wire import Guide
from tests.console.conftest import SMALL, LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder
from tests.support.recorder_client import Worker


def test_history_walks_back_and_forth_and_keeps_what_was_being_typed() -> None:
    walk = InputHistory(["one", "two", "one", "three"])
    shown = [
        walk.walk(-1, "dra"),
        walk.walk(-1, "three"),
        walk.walk(-1, "one"),
        walk.walk(-1, "two"),
    ]
    assert shown == ["three", "one", "two", None]
    assert [walk.walk(1), walk.walk(1), walk.walk(1), walk.walk(1)] == ["one", "three", "dra", None]
    walk.walk(-1, "new")
    walk.leave()
    assert not walk.walking
    assert walk.walk(1) is None


FILES = ["src/train.py", "src/model/layers.py", "README.md", "step 12", "data/训练.json"]
COMPLETED = {
    "the beginning": ("look at READ", ("README.md",)),
    "a part of a path": ("see lay", ("src/model/layers.py",)),
    "any case": ("see readme", ("README.md",)),
    "several": ("src", ("src/train.py", "src/model/layers.py")),
    "within a word": ("see rain", ("src/train.py",)),
    "a step": ("after 1", ("step 12",)),
    "another script": ("看 训", ("data/训练.json",)),
    "nothing": ("see xyz", ()),
}


@pytest.mark.parametrize("name", COMPLETED)
def test_a_word_is_finished(name: str) -> None:
    before, words = COMPLETED[name]
    completion = complete_word(before, FILES)
    assert (completion.words if completion else ()) == words


def test_the_next_word_comes_round() -> None:
    completion = complete_word("src", FILES)
    assert completion is not None
    assert completion.next().word == "src/model/layers.py"
    assert completion.next().next().word == "src/train.py"
    assert "‹src/train.py›" in completion.text()


def test_snippets_are_a_file_that_an_editor_can_change(tmp_path: Path) -> None:
    path = tmp_path / "new" / "snippets.txt"
    assert guidance_pane.read_snippets(path) == []
    assert guidance_pane.add_snippet(path, "Stop tuning;\nlook at the data.\n")
    assert guidance_pane.add_snippet(path, "Back it up first.")
    assert not guidance_pane.add_snippet(path, " Back it up first. ")
    assert guidance_pane.read_snippets(path) == [
        "Stop tuning;\nlook at the data.",
        "Back it up first.",
    ]
    path.write_text(path.read_text() + "---\n\n---\nWritten by hand\n")
    assert guidance_pane.read_snippets(path)[-1] == "Written by hand"


MANNERS = {
    "a strategy": ("Look at the errors by class before you train again.", False),
    "naming a command": ("Your git history tells which run was best.", False),
    "a command": ("pip install vllm && python run.py", True),
    "a prompt": ("$ ls -l", True),
    "one of three lines": ("Try a smaller model.\nIt is enough here.\ncd src", False),
    "nothing": ("  \n", False),
}


@pytest.mark.parametrize("name", MANNERS)
def test_what_reads_like_a_command_is_told_from_a_strategy(name: str) -> None:
    text, wanted = MANNERS[name]
    assert is_mostly_commands(text) == wanted


def _entry(id: str, state: Any = "queued") -> GuidanceEntry:
    return GuidanceEntry(id, state, "next", "ada", "text")


ORDERS = {
    "later": ("a", 1, ("b", "a", "c")),
    "earlier": ("c", -1, ("a", "c", "b")),
    "at the end": ("c", 1, ("a", "b", "c")),
    "at the start": ("a", -1, ("a", "b", "c")),
    "delivered": ("d", 1, ("a", "b", "c")),
}


@pytest.mark.parametrize("name", ORDERS)
def test_what_waits_can_change_places(name: str) -> None:
    id, by, wanted = ORDERS[name]
    entries = [*map(_entry, "abc"), _entry("d", "delivered")]
    assert move_in_order(entries, id, by) == (("a", "b", "c"), wanted)


def _work(live: LiveStation) -> Worker:
    worker = live.working()
    worker.step(1)
    return worker


async def _live(seat: Seat) -> None:
    await seat.until(lambda: seat.app.state.link == "live", "live")


@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["a daemon at once", "a slow line"])
async def test_the_queue_is_put_in_order_and_heard_so(
    seconds: float, live: LiveStation, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    reorder = daemon_link.reorder_guidance

    async def reorder_later(*about: Any) -> str:
        await asyncio.sleep(seconds)
        return await reorder(*about)

    monkeypatch.setattr(daemon_link, "reorder_guidance", reorder_later)
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _live(seat)
        await seat.press("i")
        for words in ("first", "second", "third"):
            await seat.write(words)
            await seat.press("enter")
            await seat.until(lambda w=words: w in seat.text(GuidanceQueue), words)
        await seat.press("escape", "6", "j", "j", "left_curly_bracket", "left_curly_bracket")
        await seat.until(lambda: "third" in seat.lines(GuidanceQueue)[0], "third is first")
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == ["third", "first", "second"]


async def test_the_words_of_others_are_taken_back_only_when_that_is_meant(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    message = Guide(id="g-1", rollout=worker.rollout, text="look at the data", claimed="ben")
    live.person().ask(message)
    async with sit(live.home, worker.rollout) as seat:
        await _live(seat)
        await seat.until(lambda: "queued" in seat.text(GuidanceQueue), "queued")
        await seat.press("6", "minus", "n")
        assert live.query("SELECT state FROM guidance") == [("queued",)]
        await seat.press("minus", "y")
        await seat.until(lambda: "withdrawn" in seat.text(GuidanceQueue), "withdrawn")


async def test_what_the_agent_did_after_it_heard_is_shown(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _live(seat)
        await seat.press("i")
        await seat.write("look at the data")
        await seat.press("enter")
        await seat.until(lambda: "queued" in seat.text(GuidanceQueue), "queued")
        worker.step(2)
        worker.step(3)
        await seat.until(lambda: "step 2" in seat.text(GuidanceQueue), "heard")
        await seat.press("escape", "6")
        await seat.until(lambda: "then     3 " in seat.text("#heard"), "what followed")
        assert "heard at step 2" in seat.text("#heard")


async def test_what_was_said_before_is_said_again(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout, SMALL) as seat:
        await _live(seat)
        composer = seat.app.query_one(Composer)
        await seat.press("i")
        await seat.write("look at the data")
        await seat.press("enter")
        await seat.until(lambda: live.query("SELECT id FROM guidance"), "queued")
        await seat.press("up")
        assert composer.text == "look at the data"
        await seat.press("down")
        assert composer.text == ""


async def test_a_file_is_named_without_typing_it(builder: HomeBuilder, sit: Sit) -> None:
    change = FileChange(path="src/train_tokenizer.py", kind="added", added=1, removed=0, diff="")
    builder.start("r")
    builder.whole("r", 1, "writes", files=(change,))
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("i")
        await seat.write("see tok")
        await seat.press("ctrl+n")
        assert seat.app.query_one(Composer).text == "see src/train_tokenizer.py"
        await seat.write(" and ste")
        await seat.press("ctrl+n")
        assert seat.app.query_one(Composer).text == "see src/train_tokenizer.py and step 1"


async def test_a_snippet_is_kept_and_said_again(
    builder: HomeBuilder, sit: Sit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guidance_pane, "snippets_path", lambda: tmp_path / "snippets.txt")
    builder.start("r")
    async with sit(builder.home, size=SMALL) as seat:
        composer = seat.app.query_one(Composer)
        await seat.press("i")
        await seat.write("back it up")
        await seat.press("ctrl+t", "enter")
        await seat.until(lambda: "Kept in" in seat.bar("#hints"), "kept")
        composer.clear()
        await seat.press("ctrl+t")
        await seat.write("up")
        await seat.press("enter")
        await seat.until(lambda: composer.text == "back it up", "said again")


async def test_escape_and_letters_that_came_as_one_leave_and_are_keys(
    live: LiveStation, sit: Sit
) -> None:
    """tmux waits half a second behind an escape: what was typed until then comes with it."""
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _live(seat)
        await seat.press("e", "i")
        assert "No error" not in seat.bar("#hints"), "what was told is read with the next key"
        await seat.write("draft")
        for key in TypedKeyParser().feed("\x1bgz\r"):
            seat.app.post_message(key)
        await seat.until(lambda: seat.app.focused is seat.transcript, "back at the steps")
        await seat.until(lambda: seat.transcript.cursor == 0, "the letter was a key there")
        assert seat.app.query_one(Composer).text == "draft"
        await seat.press("i")
        await seat.write("ed")
        assert seat.app.query_one(Composer).text == "drafted"
