"""Reading a trajectory: choosing, unfolding, following, jumping."""

from textual import events

from houston_console.screens.rollout_selector import RolloutList
from houston_console.transcript.transcript_view import Transcript
from tests.console.conftest import SMALL, WIDE, Sit
from tests.console.home_builder import HomeBuilder


def _steps(builder: HomeBuilder, rollout: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        builder.whole(rollout, number, f"thought {number}", texts=(f"output {number}",))


def _home(builder: HomeBuilder, steps: int = 80) -> None:
    with builder.bulk():
        builder.start("r-one", "alpha")
        builder.start("r-two", "beta")
        _steps(builder, "r-one", 1, steps)
        _steps(builder, "r-two", 1, 3)


async def test_the_newest_running_rollout_opens_at_its_end(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home) as seat:
        assert seat.app.state.selected == "r-two"
        assert "thought 3" in seat.lines()[3]
        assert "following" in seat.frame("#trajectory")


async def test_a_rollout_is_chosen_in_the_list(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r-two") as seat:
        rows = seat.lines(RolloutList)
        names = ("beta", "r-two", "alpha", "r-one")  # the newest first, where nobody is needed
        assert [name in row for name, row in zip(names, rows, strict=False)] == [True] * 4
        await seat.press("1", "j", "enter")
        await seat.until(lambda: seat.app.state.selected == "r-one")
        await seat.press()
        assert "thought 80" in seat.text()
        assert "alpha · r-one" in seat.frame("#trajectory")
        assert isinstance(seat.app.focused, Transcript)


REASON = "The engine at http://gpu-3:8000 answered 503 for ten minutes; " + "retried " * 40 + "END"
STANDINGS = {
    "failed": (("failed", "worker", REASON), "✗ failed: The engine"),
    "paused": (("paused", "person:bob", REASON), "‖ paused by person:bob: The engine"),
    "finished": (("finished", "worker", "recorded sample"), "✓ finished: recorded sample"),
}


async def test_why_nothing_goes_on_is_readable_in_full_at_the_end(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        for what, (state, _) in STANDINGS.items():
            builder.start(f"r-{what}", what)
            _steps(builder, f"r-{what}", 1, 60)
            builder.state(f"r-{what}", *state)
    for size in (WIDE, SMALL):
        async with sit(builder.home, "r-failed", size) as seat:
            for what, (state, words) in STANDINGS.items():
                await seat.app.watch_screen.open_rollout(f"r-{what}")
                await seat.press("2")
                text = " ".join(seat.text().split())
                assert words in text, what
                assert " ".join(state[2].split()) in text, what
                assert seat.transcript.following, what
                await seat.press("pageup", "pagedown", "j", "j")
                assert state[2].split()[-1] in seat.lines()[-1], what
                await seat.press("1")
                card = seat.text("#facts")
                assert words[:20] in " ".join(card.split()), what
                assert f"r-{what}" in card, what


async def test_a_selector_row_is_what_tells_it_from_the_others_of_its_task(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("count-words-7iz6", "count-words")
        builder.scored("count-words-7iz6", 1, "tries", 100)
        builder.start("other-name", "count-words")
    async with sit(builder.home, "count-words-7iz6") as seat:
        rows = seat.lines(RolloutList)
        named = [row.split()[:2] for row in rows[1:3]]
        assert named == [["●", "other-name"], ["●", "7iz6"]]
        assert rows[2].split()[-2:] == ["100", "1"]
        assert "count-words-7iz6" in seat.text("#facts")
        assert "100 best, 100 last" in seat.text("#facts")
        assert seat.lines()[1].endswith("100")


async def test_without_a_daemon_what_ran_is_said_with_its_time(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.begin("r", 1, "", (("sleep", {"seconds": 9}),))
    builder.activity("r", "sleep")
    async with sit(builder.home) as seat:
        await seat.until(lambda: "daemon down" in seat.bar("#status"), "down")
        hint = "running when the daemon was last here"
        await seat.until(lambda: hint in " ".join(seat.text("#facts").split()), "the card")
        assert "now" not in seat.text("#facts").split()
        await seat.until(lambda: hint in seat.frame("#trajectory"), "the frame")
        assert "sleep" not in seat.frame("#trajectory")


async def test_a_folded_step_says_what_happened_on_one_line(builder: HomeBuilder, sit: Sit) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "all well")
        builder.whole("r", 2, "a typo", texts=("no such file",), success=False)
        builder.say("r", "g", "look again")
        builder.whole("r", 3, "hears it")
        builder.scored("r", 4, "tries it", 61.5)
        builder.fork_before("r", 5, 2, "summary")
        builder.begin("r", 5, "goes on", (("sleep", {"seconds": 9}),))
    async with sit(builder.home) as seat:
        rows = seat.lines()
        assert rows[0].split()[:2] == ["▸", "task"]
        assert rows[1].split()[:3] == ["▸", "1", "run_command"]
        assert rows[2].split()[:3] == ["▸", "2", "✗"]
        assert rows[3].split()[:3] == ["▸", "3", "✎"]
        assert rows[4].split()[:3] == ["▸", "4", "★"]
        assert rows[4].endswith("61.5")
        assert rows[5].split()[:4] == ["◌", "5", "↳", "sleep"]


async def test_unfolding_shows_everything_and_folding_hides_it(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.say("r", "g", "Mind the\nsecond line.", author="alice")
    call = ("edit_file", {"path": "a.py", "text": "one\ntwo"})
    builder.whole("r", 1, "I edit.", (call,), ("2 lines written",))
    async with sit(builder.home) as seat:
        await seat.press("enter")
        shown = seat.text()
        for part in ("I edit.", "→ edit_file", "path a.py", "two", "2 lines written", "✎ alice"):
            assert part in shown
        assert "┃ second line." in shown
        await seat.press("enter")
        assert "2 lines written" not in seat.text()


async def test_all_are_unfolded_and_folded_with_one_key(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r-one") as seat:
        await seat.press("z")
        assert seat.text().count("← command") > 2
        await seat.press("g")
        assert "system prompt" in seat.text()
        await seat.press("z")
        assert "← command" not in seat.text()
        assert seat.transcript.line_count() == 81


async def test_following_ends_on_the_way_up_and_begins_at_the_end(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder)
    async with sit(builder.home, "r-one") as seat:
        _steps(builder, "r-one", 81, 82)
        await seat.until(lambda: "thought 82" in seat.text(), "follows")
        await seat.press("pageup")
        before = seat.lines()
        _steps(builder, "r-one", 83, 85)
        await seat.until(lambda: "+3 steps" in seat.frame("#trajectory"), "the pill")
        assert seat.lines() == before  # what is being read stays where it is
        await seat.press("f")
        assert "thought 85" in seat.text()
        await seat.until(lambda: "following" in seat.frame("#trajectory"), "follows again")


async def test_what_is_unfolded_before_anything_was_read_is_unfolded_then(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder)
    async with sit(builder.home, "r-two") as seat:
        source = seat.app.watch_screen._switch_rollout("r-one")
        seat.transcript.action_fold_all()  # a key pressed over a slow line
        await seat.app.watch_screen._read_rollout(source)
        await seat.until(lambda: "output 80" in seat.text(), "unfolded")
        await seat.press("z")
        assert "output 80" not in seat.text()


async def test_the_wheel_lets_go_of_the_end(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r-one") as seat:
        seat.transcript.scroll_relative(y=-5, animate=False)
        await seat.press()
        assert not seat.transcript.following


async def test_a_step_that_closes_is_read_again(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    (call,) = builder.begin("r", 1, "thinking")
    async with sit(builder.home) as seat:
        await seat.press("enter")
        assert "no result yet" in seat.text()
        assert seat.lines()[1].startswith("◌")
        builder.answer("r", 1, call, "it is done")
        builder.close_step("r", 1)
        await seat.until(lambda: "it is done" in seat.text(), "the result")
        assert seat.lines()[1].startswith("▾")


async def test_an_unfolded_step_is_read_line_by_line_then_the_next(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.whole("r", 1, "long", texts=("\n".join(f"row {i}" for i in range(200)),))
    builder.whole("r", 2, "after")
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("k", "enter")
        assert "row 199" not in seat.text()
        for _ in range(30):
            await seat.press("pagedown")
        await seat.press("k", *["j"] * 3)
        assert seat.transcript.cursor == 2
        await seat.press("k", "k", "k")
        assert seat.transcript.cursor == 1
        assert seat.lines()[0].lstrip().startswith("▾     1")  # its own line stays on top


JUMPS = {
    "to a number": ([":", "4", "2", "enter"], 42),
    "past the end": ([":", "9", "9", "9", "enter"], 80),
    "back by some": ([":", "minus", "1", "0", "enter"], 70),
    "to the next error": (["g", "e"], 17),
    "to the next but one": (["g", "e", "e"], 60),
    "to the error before": (["E"], 60),
    "to the next guidance": (["g", "u"], 30),
    "to the guidance before": (["U"], 30),
    "to the start": (["g"], 0),
}


async def test_jumps_go_where_they_say(builder: HomeBuilder, sit: Sit) -> None:
    with builder.bulk():
        builder.start("r")
        for number in range(1, 81):
            if number == 30:
                builder.say("r", "g", "hello")
            builder.whole("r", number, f"thought {number}", success=number not in (17, 60))
    async with sit(builder.home) as seat:
        for what, (keys, step) in JUMPS.items():
            await seat.press("f", *("colon" if key == ":" else key for key in keys))
            assert seat.transcript.cursor == step, what
            assert step == 0 or f"thought {step}" in seat.text(), what
        await seat.press("colon", "x", "enter")
        assert "is not a place" in seat.bar("#hints")


async def test_keys_in_one_breath_with_a_place_go_on_from_there(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder, 30)
    async with sit(builder.home, "r-one", SMALL) as seat:
        for key in ("colon", "1", "2", "enter", "j", "j"):
            seat.app.post_message(events.Key(key, {"colon": ":"}.get(key, key)))
        await seat.until(lambda: seat.transcript.cursor == 14, "two below the place")


async def test_a_line_to_type_in_moves_nothing(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder, 30)
    async with sit(builder.home, "r-one", SMALL) as seat:
        area, before = seat.app.watch_screen.trajectory, seat.transcript.region
        await seat.press("colon", "1", "2")
        assert seat.transcript.region == before
        assert area.prompt.region.y == area.region.bottom - 1
        assert "esc" in seat.bar("#hints")
        await seat.press("enter", "j")
        assert seat.transcript.cursor == 13


async def test_no_error_ahead_is_said(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder, 3)
    async with sit(builder.home, "r-one") as seat:
        await seat.press("e")
        assert "No error after step 3" in seat.bar("#hints")


async def test_a_small_screen_shows_one_area_at_a_time(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r-one", SMALL) as seat:
        ids = ("rollouts", "trajectory", "terminals", "files", "guidance")

        def visible() -> list[str]:
            return [name for name in ids if seat.app.query_one(f"#{name}").size.width > 0]

        assert visible() == ["trajectory"]
        await seat.press("1")
        assert visible() == ["rollouts"]
        await seat.press("3")
        assert visible() == ["terminals"]
        await seat.press("4")
        assert visible() == ["files"]
        await seat.press("5")
        assert visible() == ["trajectory", "guidance"]
        await seat.pilot.resize_terminal(160, 50)
        await seat.press()
        assert visible() == list(ids)
