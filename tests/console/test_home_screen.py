"""Home: who needs me? What stands first, how it is found, and that it stays under the cursor."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from houston_console.app.console_state import NeedsBoard, NeedsReader
from houston_console.screens.home_list import HomeList
from houston_console.screens.home_screen import HomeScreen
from houston_console.screens.rollout_lists import ORDER_HOLD_SECONDS
from houston_console.transcript.transcript_view import Transcript
from houston_shared.command import main
from houston_shared.home import Home
from houston_shared.records import AWAY_ACTIVITY
from tests.console import crowded_home
from tests.console.conftest import SMALL, WIDE, Seat, Sit
from tests.console.home_builder import HomeBuilder


def ids(seat: Seat) -> list[str]:
    return [row.id for row in seat.app.home_screen.list.rows if row.id]


def line_of(seat: Seat, rollout: str) -> int:
    """The line of the screen on which a rollout stands."""
    listed = seat.app.home_screen.list
    at = listed.line_of(rollout)
    assert at is not None
    return at - round(listed.scroll_y)


async def _board(seat: Seat, names: Sequence[str], what: str) -> None:
    await seat.until(lambda: [name for name in ids(seat) if name in names] == list(names), what)


def _three(builder: HomeBuilder) -> None:
    with builder.bulk():
        for name in ("t-one", "t-two", "u-three"):
            builder.start(name, name[0])
            builder.whole(name, 1, "works")


def _needy(builder: HomeBuilder, rollout: str, step: int) -> None:
    reasons = {"error_streak": "4 steps in a row"}
    builder.whole(rollout, step, "fails", attention=tuple(reasons), reasons=reasons)


async def test_who_names_no_rollout_begins_at_home_and_comes_back_to_it(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three(builder)
    _needy(builder, "t-one", 2)
    for size in (WIDE, SMALL):
        async with sit(builder.home, size=size, at_home=True) as seat:
            assert ids(seat) == ["t-one", "u-three", "t-two"]
            assert "error streak: 4 steps in a row" in seat.text(HomeList)
            assert "1 of 3 need somebody" in seat.frame("#home")
            assert seat.app.watch_screen.source is None  # nobody has looked at anything yet
            await seat.press("j", "enter")
            assert seat.app.screen is seat.app.watch_screen
            assert seat.app.state.selected == "u-three"
            await seat.press("g", "0")
            assert seat.app.screen is seat.app.home_screen
            assert seat.app.home_screen.list.chosen == "u-three"
            await seat.press("escape")  # back to the rollout as it was left
            assert (seat.app.screen, seat.transcript.cursor) == (seat.app.watch_screen, 0)
            await seat.press("backspace", "1", "enter")
            assert seat.app.state.selected == "t-one"


def test_the_picture_of_many_rollouts_is_home(builder: HomeBuilder, tmp_path: Path) -> None:
    _three(builder)
    picture = tmp_path / "home.svg"
    words = ["--home", str(builder.home.path), "console", "--picture", str(picture)]
    assert main([*words, "--size", "80x24"]) == 0
    svg = picture.read_text()
    assert "Who&#160;needs&#160;me?" in svg
    assert "u-three" in svg


async def test_what_changes_while_home_is_being_opened_finds_a_console(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three(builder)
    async with sit(builder.home, "t-one") as seat:
        opening = asyncio.create_task(seat.app.action_home())
        await asyncio.sleep(0)  # it stands on the stack, and nothing of it is composed
        assert seat.app.home_screen in seat.app.screen_stack
        assert not seat.app.home_screen.is_mounted
        seat.app._show_board(seat.app.state.board)
        await opening
        assert sorted(ids(seat)) == ["t-one", "t-two", "u-three"]


async def test_keys_behind_the_choice_are_for_the_rollout(builder: HomeBuilder, sit: Sit) -> None:
    _three(builder)
    async with sit(builder.home, at_home=True) as seat:
        first = ids(seat)[0]
        await seat.press("enter", "i", *"hear")
        assert seat.app.watch_screen.guidance.composer.text == "hear"
        assert f"Say to {first}" in seat.frame("#guidance")


async def test_what_an_engine_refuses_is_said_at_home_and_in_the_rollout(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three(builder)
    why = "Engine e refused the request with 402: Insufficient Balance."
    builder.state("t-one", "paused", "engine", why)
    builder.activity("t-one", f"{AWAY_ACTIVITY}: 402")
    async with sit(builder.home, at_home=True) as seat:
        assert ids(seat)[0] == "t-one"
        assert "engine refuses: Engine e refused the request with 402" in seat.text(HomeList)
        await seat.press("g", "enter")
        assert f"paused by engine: {why}" in " ".join(seat.text(Transcript).split())


async def test_a_single_rollout_is_opened_by_itself(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    async with sit(builder.home, "") as seat:
        assert seat.app.screen is seat.app.watch_screen
        assert seat.app.state.selected == "r"


async def test_what_is_not_known_yet_is_loading(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _three(builder)
    go_on, read = asyncio.Event(), NeedsReader.read

    async def later(needs: NeedsReader) -> NeedsBoard:
        await go_on.wait()
        return await read(needs)

    monkeypatch.setattr(NeedsReader, "read", later)
    async with sit(builder.home, "t-one") as seat:
        await seat.press("0")
        assert seat.text(HomeList).strip() == "loading …"
        assert "nobody is needed" not in seat.frame("#home")
        go_on.set()
        await seat.until(lambda: len(ids(seat)) == 3, "read")


async def test_only_what_was_read_is_empty(builder: HomeBuilder, sit: Sit, tmp_path: Path) -> None:
    async with sit(builder.home) as seat:
        empty = "no rollouts yet"
        await seat.until(lambda: seat.text("#rollout-list").strip() == empty, "the first read")
        await seat.press("0")
        await seat.until(lambda: seat.text(HomeList).strip() == empty, "home too")
    async with sit(Home(tmp_path / "none")) as seat:
        shows = "not read: There is no database"
        await seat.until(lambda: shows in seat.text("#rollout-list"), "why nothing is listed")


async def test_no_place_changes_between_two_keys(builder: HomeBuilder, sit: Sit) -> None:
    _three(builder)
    async with sit(builder.home, at_home=True) as seat:
        now, order = 0.0, seat.app.home_screen.list.order
        order.attention.clock = lambda: now
        await _board(seat, ["u-three", "t-two", "t-one"], "the newest first")
        await seat.press("j")
        _needy(builder, "t-one", 2)
        builder.start("t-four", "t")
        await seat.until(lambda: order.is_held, "another order waits")
        assert ids(seat) == ["u-three", "t-two", "t-one", "t-four"]
        assert "1 new, order held: ^ sorts" in seat.frame("#home")
        await seat.press("j")
        assert seat.app.home_screen.list.chosen == "t-one"
        await seat.press("k", "circumflex_accent")
        assert ids(seat) == ["t-one", "t-four", "u-three", "t-two"]
        assert seat.app.home_screen.list.chosen == "t-two"
        _needy(builder, "t-two", 2)
        _needy(builder, "u-three", 2)
        await seat.until(lambda: order.is_held, "and again")
        now += ORDER_HOLD_SECONDS
        await seat.until(lambda: not order.is_held, "by need again, where nobody presses a key")
        assert seat.app.home_screen.list.chosen == "t-two"
        assert "order held" not in seat.frame("#home")


async def test_the_selector_keeps_every_place_too(builder: HomeBuilder, sit: Sit) -> None:
    _three(builder)
    async with sit(builder.home, "u-three") as seat:
        listed = seat.app.watch_screen.selector.rollouts
        now = 0.0
        listed.order.attention.clock = lambda: now
        await seat.press("1")
        order = ["", "u-three", "", "t-two", "t-one"]
        assert [row.id for row in listed.items] == order
        _needy(builder, "t-one", 2)
        await seat.until(lambda: listed.order.is_held, "another order waits")
        assert [row.id for row in listed.items] == order
        assert "order held: ^ sorts" in seat.frame("#rollouts")
        await seat.press("j", "circumflex_accent")
        assert [row.id for row in listed.items] == ["", "t-one", "t-two", "", "u-three"]
        assert listed.under_cursor is not None
        assert listed.under_cursor.id == "t-two"
        await seat.press("j")
        _needy(builder, "t-two", 2)
        await seat.until(lambda: listed.order.is_held, "and again")
        await seat.press("2")
        await seat.until(lambda: not listed.order.is_held, "nobody is there any more")


async def test_what_is_read_keeps_its_place_while_the_order_changes(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three(builder)
    async with sit(builder.home, at_home=True) as seat:
        await _board(seat, ["u-three", "t-two", "t-one"], "the newest first")
        await seat.press("j")
        reading = seat.app.home_screen.list.order.attention
        reading.clock = lambda: (
            time.monotonic() + ORDER_HOLD_SECONDS
        )  # nobody moves, somebody reads
        before = line_of(seat, "t-two")
        _needy(builder, "t-one", 2)
        await _board(seat, ["t-one", "t-two", "u-three"], "the needy one is first")
        assert seat.app.home_screen.list.chosen == "t-two"
        assert line_of(seat, "t-two") == before
        with builder.bulk():
            builder.start("t-four", "t")
            builder.state("t-four", "failed", "worker", "no engine")
        await _board(seat, ["t-four", "t-two", "t-one", "u-three"], "one more above")
        assert line_of(seat, "t-two") == before
        assert seat.app.home_screen.list.chosen == "t-two"


async def test_rollouts_are_found_by_words_by_task_and_by_number(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        for number in range(1, 31):
            name = f"{'ab'[number % 2]}-{number:02}"
            builder.start(name, "ab"[number % 2])
            builder.whole(name, 1, "works", (("run_command", {"command": f"python 训练{number}"}),))
        builder.state("a-04", "failed", "worker", "out of memory")
    async with sit(builder.home, size=SMALL, at_home=True) as seat:
        listed = seat.app.home_screen.list
        assert ids(seat)[:2] == ["a-04", "a-30"]
        await seat.press("2", "9")
        assert listed.chosen == ids(seat)[28]
        assert line_of(seat, listed.chosen) < listed.size.height - 1  # both of its lines are seen
        await seat.press("slash", *"out", "space", *"mem")
        assert ids(seat) == ["a-04"]
        await seat.press("backspace", "escape")
        assert len(ids(seat)) == 30
        await seat.press("slash", *"nobody", "enter")
        assert "no rollout holds these words" in seat.text(HomeList)
        await seat.press("escape", "slash", *"b-0", "enter")
        assert ids(seat) == ["b-09", "b-07", "b-05", "b-03", "b-01"]
        assert "enter open" in seat.hint()
        assert "/b-0" in str(seat.app.home_screen.query_one("#home").border_subtitle)
        await seat.press("slash")
        assert "enter open" not in seat.hint(), "letters are no keys now"
        await seat.press("1", "enter")
        assert ids(seat) == ["b-01"], "typed on at the end"
        await seat.press("escape", "t", "g")
        assert [row.task for row in listed.rows if not row.id] == ["a", "b"]
        assert listed.rows[1].id == "a-04"
        assert "15 rollouts, 1 needs somebody" in seat.lines(HomeList)[0]
        await seat.press("j", "G")
        assert listed.chosen == "b-01"
        assert "01" in seat.lines(HomeList)[-2]


async def test_a_thousand_rollouts_are_listed_and_gone_through(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        for number in range(1, 1001):
            builder.start(f"t-{number:04}", "t")
    async with sit(builder.home, at_home=True) as seat:
        listed = seat.app.home_screen.list
        assert len(listed.rows) == 1000
        await seat.press("G")
        assert listed.chosen == "t-0001"
        await seat.press("k", "pageup", "slash", *"0077")
        assert ids(seat) == ["t-0077"]
        await seat.press("enter", "enter")
        assert seat.app.state.selected == "t-0077"


async def test_a_click_goes_there_and_another_opens(builder: HomeBuilder, sit: Sit) -> None:
    _three(builder)
    async with sit(builder.home, at_home=True) as seat:
        for chosen in ("t-two", "t-two"):
            await seat.pilot.click(HomeList, offset=(20, 3))  # the second of its lines
            await seat.press()
            assert seat.app.home_screen.list.chosen == chosen
        await seat.until(lambda: seat.app.state.selected == "t-two", "opened")


async def test_the_card_says_what_attention_a_rollout_has_cost(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three(builder)
    crowded_home.mark_seen(builder, "t-one", builder.seq, 60 * crowded_home.MINUTE)
    builder.say("t-one", "g", "one two three", author="ben")
    for size, card in (((90, 40), "#home-card"), (WIDE, "#preview-text")):
        async with sit(builder.home, size=size, at_home=True) as seat:
            await seat.press("G")
            cost = "attention: you 42 min; ben 3 words"
            await seat.until(lambda seat=seat, card=card, cost=cost: cost in seat.text(card), card)
    async with sit(builder.home, at_home=True) as seat:
        await seat.press("G", "enter")
        await seat.until(lambda: "ben 3 words" in seat.text("#facts"), "beside the rollout too")


async def test_what_changes_behind_home_draws_nothing(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SSH every needless frame is paid for; once it is seen again, it stands as it is."""
    _three(builder)
    async with sit(builder.home, at_home=True) as seat:
        assert isinstance(seat.app.screen, HomeScreen)
        await seat.app.screen.preview.settle()
        await seat.pilot.pause(0.3)
        drawn: list[object] = []
        display = seat.app._display
        monkeypatch.setattr(
            seat.app,
            "_display",
            lambda screen, frame: (drawn.append(frame), display(screen, frame)),
        )
        drawn.clear()
        seat.app.watch_screen.query_one("#rollout-list").refresh()
        await seat.pilot.pause(0.3)
        assert not drawn
        seat.app.screen.refresh()
        await seat.until(lambda: bool(drawn), "what is before it is drawn")
