"""The areas around the trajectory: prompt inspector, files, searches, terminals, help, picture."""

import os
from pathlib import Path
from typing import Any

import pytest
from textual import events

from houston_console.app.key_bindings import KEYS
from houston_console.panes.terminals_pane import TerminalView
from houston_console.screens.prompt_inspector import PromptInspector
from houston_console.widgets.key_help import HelpDialog, KeyMenu
from houston_console.widgets.line_view import FixedLines, LineView
from houston_console.widgets.styled_text import line_text, line_width
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.command import main
from houston_shared.records import TerminalSpan
from houston_shared.store.event_bodies import BodiesErased
from tests.console.conftest import SMALL, WIDE, Sit
from tests.console.home_builder import HomeBuilder


async def test_the_inspector_shows_messages_text_and_ids(builder: HomeBuilder, sit: Sit) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "first thought", texts=("first output",))
        builder.say("r", "g", "mind the gap")
        builder.whole("r", 2, "second thought", texts=("second output",))
        builder.begin("r", 3, "third thought")
    async with sit(builder.home) as seat:
        await seat.press("v")
        await seat.until(lambda: isinstance(seat.app.screen, PromptInspector))
        await seat.until(lambda: "second output" in seat.text("#inspector-text"), "messages")
        shown = seat.text("#inspector-text")
        assert "third thought" not in shown  # what step 3 was given, not what it said
        for part in ("system", "first thought", "<real_user>mind the gap</real_user>"):
            assert part in shown
        facts = seat.text("#inspector-facts")
        assert "prefix kept" in facts
        assert "extends step 2" in facts
        assert "cached 890" in facts
        await seat.press("right")
        await seat.until(lambda: "[assistant]" in seat.text("#inspector-text"), "rendered")
        await seat.press("3")
        await seat.until(lambda: " 37" in seat.text("#inspector-text"), "token ids")
        assert seat.app.screen.view.token_ids[-8:] == list(range(30, 38))
        await seat.press("escape")
        assert not isinstance(seat.app.screen, PromptInspector)


async def test_nothing_of_the_inspector_is_clipped_without_a_sign(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "x" * 300, texts=("word " * 80 + "END",))
        builder.begin("r", 2)
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("v")
        await seat.until(
            lambda: "+ new" in seat.text("#inspector-text"), "messages, from what is new"
        )
        await seat.press("G")
        await seat.until(lambda: "END" in seat.text("#inspector-text"), "to their end")
        facts = seat.text("#inspector-facts")
        for part in ("step 2", "extends step 1", "of its ids", "prompt 960 tokens", "messages"):
            assert part in facts
        for name in ("#inspector-facts", "#inspector-text"):
            view = seat.app.screen.query_one(name, LineView)
            for number in range(view.line_count()):
                assert line_width(view.line_at(number)) <= view.line_cells, name


async def test_the_inspector_says_that_an_engine_gives_no_ids(
    builder: HomeBuilder, sit: Sit
) -> None:
    without: dict[str, Any] = {"new_prompt_ids": None, "token_ids": None, "prompt_tokens": None}
    with builder.bulk():
        builder.start("r")
        builder.begin("r", 1, "says", **without, cached_tokens=None)
    async with sit(builder.home) as seat:
        await seat.press("v")
        await seat.until(lambda: "step 1" in seat.text("#inspector-facts"), "facts")
        facts = seat.text("#inspector-facts")
        assert "this engine gives no token ids" in facts
        assert "–" not in facts
        await seat.press("3")
        await seat.until(lambda: "no token ids" in seat.text("#inspector-text"), "said there too")


def _terminal(builder: HomeBuilder, tmp_path: Path) -> Path:
    with builder.bulk():
        builder.start("r", host_root=str(tmp_path / "host"))
        spans = tuple(
            TerminalSpan(host="local", terminal=name, start=0, end=5) for name in ("main", "train")
        )
        builder.whole("r", 1, "runs", spans=spans)
    folder = tmp_path / "host" / "rollouts" / "r" / "terminals"
    for name in ("main", "train"):
        (folder / name).mkdir(parents=True)
        (folder / name / "log.0000000000000000").write_bytes(f"hello from {name}\r\n".encode())
    return folder


async def test_a_terminal_is_shown_as_it_grows(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    folder = _terminal(builder, tmp_path)
    async with sit(builder.home) as seat:
        await seat.until(lambda: "hello from main" in seat.text(TerminalView), "its log")
        with (folder / "main" / "log.0000000000000000").open("ab") as log:
            log.write(b"50 %\r100 %\r\n" + b"more\r\n" * 100)
        await seat.until(lambda: seat.lines(TerminalView)[-1] == "more", "its end")
        with (folder / "main" / "log.0000000000000000").open("ab") as log:
            log.write(b"x" * 500 + b"\r\n")
        await seat.until(lambda: seat.lines(TerminalView)[-1].endswith("x…"), "cut, with a sign")
        start = (folder / "main" / "log.0000000000000000").stat().st_size
        (folder / "main" / f"log.{start:016d}").write_bytes(b"next segment\r\n")
        await seat.until(lambda: "next segment" in seat.text(TerminalView), "the next segment")
        await seat.press("3", "right")
        await seat.until(lambda: "hello from train" in seat.text(TerminalView), "the other one")
        assert "‹train›" in seat.frame("#terminals")


async def test_a_terminal_that_cannot_be_read_says_why(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    folder = _terminal(builder, tmp_path)
    for path in (folder / "main" / "log.0000000000000000", folder / "train"):
        path.unlink() if path.is_file() else os.rename(path, tmp_path / "gone")
    async with sit(builder.home) as seat:
        await seat.until(lambda: "cannot be read" in seat.text(TerminalView), "why")


async def test_where_the_texts_of_an_archived_rollout_are_is_said(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "gone")
        builder.state("r", "finished", "worker", "finish")
        erasure = BodiesErased(
            by="person:ada", seqs=(), remainders=(), archive="archives/r.houston.zst"
        )
        builder.event(EventKey("r"), "erased", erasure)
    async with sit(builder.home) as seat:
        await seat.until(lambda: "archives/r.houston.zst" in seat.bar("#hints"), "where")


async def test_help_lists_every_key_of_the_table(builder: HomeBuilder, sit: Sit) -> None:

    builder.start("r")
    async with sit(builder.home) as seat:
        await seat.press("question_mark")
        assert isinstance(seat.app.screen, HelpDialog)
        lines = seat.app.screen.query_one(FixedLines)
        text = "\n".join(line_text(lines.line_at(number)) for number in range(lines.line_count()))
        assert [key.description for key in KEYS if key.description not in text] == []
        assert text.startswith(" Trajectory"), "where one is comes first"
        await seat.press("escape")
        assert not isinstance(seat.app.screen, HelpDialog)


TYPED = {
    "a word": ("bookmark", "list bookmarks and notes", "pause this rollout"),
    "two words": ("next error", "e           next error", "next hit"),
    "a key": ("K", "keep this step", "next error"),
    "an area": ("terminals", "attach to the tmux session", "next error"),
    "nothing": ("zzz", "no key does that: zzz", "next error"),
}


async def test_help_is_filtered_by_what_is_typed(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    async with sit(builder.home) as seat:
        for what, (typed, found, not_found) in TYPED.items():
            await seat.press("question_mark")
            await seat.write(typed)
            text = "\n".join(map(line_text, seat.app.screen.query_one(FixedLines).lines))
            assert found in text and not_found not in text, what
            await seat.press("escape")
            assert isinstance(seat.app.screen, HelpDialog), f"the filter goes first: {what}"
            await seat.press("escape")
            assert not isinstance(seat.app.screen, HelpDialog), what


async def test_space_shows_what_keys_do_here_and_the_next_key_does_it(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    for step in (1, 2):
        builder.whole("r", step, f"thought {step}")
    async with sit(builder.home) as seat:
        await seat.press("space")
        assert isinstance(seat.app.screen, KeyMenu)
        text = "\n".join(map(line_text, seat.app.screen.query_one(FixedLines).lines))
        assert " m bookmark this step" in text and "open a rollout" not in text
        await seat.press("m")
        assert not isinstance(seat.app.screen, KeyMenu)
        await seat.until(lambda: "bookmark" in seat.offered() or "daemon" in seat.hint(), "m")
        for closing in ("space", "escape"):
            await seat.press("space", closing)
            assert not isinstance(seat.app.screen, KeyMenu)
        await seat.press("space", "question_mark")
        assert isinstance(seat.app.screen, HelpDialog)


@pytest.mark.parametrize(("height", "rows"), [(24, 1), (40, 2)])
async def test_hints_take_two_rows_where_there_is_height(
    builder: HomeBuilder, sit: Sit, height: int, rows: int
) -> None:
    builder.start("r")
    async with sit(builder.home, size=(80, height)) as seat:
        hints = seat.app.top_screen.hints
        assert hints.size.height == rows
        assert str(hints.render_line(rows - 1).text).rstrip().endswith("q quit")


async def test_nothing_moves_for_an_area_with_fewer_keys(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    for step in (1, 2):
        builder.whole("r", step, f"thought {step}")
    async with sit(builder.home) as seat:
        stands = seat.transcript.region
        assert seat.app.top_screen.hints.size.height == 2
        for keys in (["colon"], ["1", "enter"], ["1"], ["5"], ["escape"]):
            await seat.press(*keys)
            assert seat.transcript.region == stands, f"after {keys}"
        await seat.pilot.resize_terminal(160, 29)
        await seat.until(lambda: seat.app.top_screen.hints.size.height == 1, "a low terminal")


async def test_the_row_that_hints_keep_says_what_the_keys_do_in_full(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.whole("r", 1, "thought")
    async with sit(builder.home, size=(120, 35)) as seat:
        hints = seat.app.top_screen.hints
        assert hints.size.height == 2 and "enter unfold" in seat.hint()
        stands = seat.transcript.region
        await seat.press("slash")
        rows = [str(hints.render_line(y).text) for y in range(2)]
        assert "ctrl+o this rollout, this task, or all rollouts" in rows[0], rows
        assert rows[1].strip(), "no row is blank"
        assert seat.transcript.region.width == stands.width
        await seat.press("escape")
        assert "enter unfold" in seat.hint()


def test_the_picture_shows_the_home(builder: HomeBuilder, tmp_path: Path) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "unmistakable")
    picture = tmp_path / "console.svg"
    home = ["--home", str(builder.home.path)]
    assert main([*home, "console", "r", "--picture", str(picture), "--size", "120x40"]) == 0
    svg = picture.read_text()
    assert "unmistakable" in svg
    assert svg.startswith("<svg")


def test_a_wrong_size_or_rollout_is_one_sentence(builder: HomeBuilder, capsys) -> None:  # type: ignore[no-untyped-def]
    builder.start("r-abc")
    home = ["--home", str(builder.home.path)]
    assert main([*home, "console", "--picture", "x.svg", "--size", "9x"]) == 2
    assert main([*home, "console", "nobody"]) == 66
    assert main([*home, "console"]) == 2
    errors = capsys.readouterr().err
    assert "is not a screen size" in errors
    assert "There is no rollout 'nobody'" in errors
    assert "needs a terminal" in errors


FAMILIES = {
    "V": "choose", "Z": "take back", "c": "look after", "i": "say something", "p": "pause",
    "r": "resume", "z": "unfold or fold, over the whole screen", "v": "prompt inspector",
    "minus": "take back", "vertical_line": "side by side",
    "left_curly_bracket": "the one before, in this list",
    "right_curly_bracket": "the next, in this list", "n": "next hit", "N": "hit before",
    "slash": "look for words", "ctrl+k": "end it", "ctrl+z": "take back",
    "g": "to the beginning", "G": "to the end", "j": "down", "k": "up", "h": "left", "l": "right",
}  # fmt: skip
"""What a key means wherever it can be pressed, where areas say it in their own words."""


def test_a_letter_means_the_same_everywhere() -> None:
    """Digits are the first, second … of what a screen numbers; enter, tab and arrows are known."""
    meanings: dict[str, set[str]] = {}
    for key in KEYS:
        if key.area not in ("question", "words", "search", "composer"):
            for name in key.keys.split(","):
                meanings.setdefault(name, set()).add(key.description)
    known = {"enter", "escape", "tab", "shift+tab", "backspace", "home", "end", "up", "down"}
    known |= {"left", "right", *"0123456789"}
    told_apart = {name for name, said in meanings.items() if len(said) > 1} - known
    assert told_apart - FAMILIES.keys() == set(), "two meanings"
    assert FAMILIES.keys() <= meanings.keys()


async def test_back_from_the_lowest_screen_does_nothing(builder: HomeBuilder, sit: Sit) -> None:
    """A menu's `back` may come after escape has left the screen that it was opened on."""
    builder.start("r")
    async with sit(builder.home, rollout="r") as seat:
        await seat.app.watch_screen.action_back()
        await seat.press("j")
        assert seat.app.screen is seat.app.watch_screen


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["small", "wide"])
async def test_a_focus_that_went_on_leaves_no_mark(
    size: tuple[int, int], builder: HomeBuilder, sit: Sit
) -> None:
    """On a busy machine the event of a focus is handled when the next key has moved it already."""
    builder.start("r")
    builder.whole("r", 1)
    async with sit(builder.home, "r", size) as seat:
        watching = seat.app.watch_screen
        watching.post_message(events.DescendantFocus(watching.selector.rollouts))
        await seat.pilot.pause()
        assert watching.area == "trajectory"
        assert watching.focused is seat.transcript
        assert seat.transcript.region.width > 40, "the steps are on the screen"
