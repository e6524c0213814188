"""A process reward model's scores: a column, a curve, and the way to the lowest of them."""

from tests.console.conftest import SMALL, WIDE, Sit
from tests.console.home_builder import HomeBuilder

SCORES = (0.9, 0.125, 0.75, 0.25, 0.125, 1.0, 0.6)


def home(builder: HomeBuilder, scores: tuple[float, ...] = SCORES) -> None:
    with builder.bulk():
        builder.start("r", "alpha")
        for step in range(1, 9):
            builder.whole("r", step, f"thought {step} " + "goes on and on " * 20)
        for step, score in enumerate(scores, 1):
            builder.rewarded("r", step, score)


async def test_each_line_of_a_step_ends_with_its_score(builder: HomeBuilder, sit: Sit) -> None:
    home(builder)
    for size in (WIDE, (120, 35), SMALL):
        async with sit(builder.home, size=size) as seat:
            words = [(row, row.split()) for row in seat.lines()]
            lines = {int(word[1]): row for row, word in words if "".join(word[1:2]).isdigit()}
            for step, score in enumerate(SCORES, 1):
                assert lines[step].rstrip(" │▌▁▂▃▄▅▆▇█").endswith(f"  {score:.2f}"), (size, step)
            assert "0." not in lines[8], "what no model has scored has nothing there"
            await seat.press("up", "up", "enter")
            await seat.until(lambda: "process reward 1.00 by prm@1" in seat.text(), "unfolded")


async def test_a_key_goes_to_the_lowest_and_again_to_the_next(
    builder: HomeBuilder, sit: Sit
) -> None:
    home(builder)
    async with sit(builder.home) as seat:

        async def goes(key: str, step: int) -> None:
            await seat.press(key)
            await seat.until(lambda: seat.transcript.cursor == step, f"{key}: step {step}")

        for step in (2, 5, 4, 7, 3, 1, 6):  # of equal ones the earlier first
            await goes("less_than_sign", step)
        await seat.press("less_than_sign")
        await seat.until(lambda: "No step was scored higher" in seat.hint(), "the end")
        for step in (1, 3):
            await goes("greater_than_sign", step)
        await seat.press("down")
        await goes("less_than_sign", 2)
        await seat.press("greater_than_sign")
        await seat.until(lambda: "No step was scored lower" in seat.hint(), "the beginning")


async def test_where_nothing_was_scored_the_key_says_what_would(
    builder: HomeBuilder, sit: Sit
) -> None:
    home(builder, ())
    async with sit(builder.home) as seat:
        assert "reward" not in seat.text("#facts")
        await seat.press("less_than_sign")
        await seat.until(lambda: "No process reward model has scored" in seat.hint(), "said")
        assert "[review] process_reward" in seat.hint()
        assert seat.transcript.cursor == 8


async def test_a_score_that_comes_while_one_looks_is_shown(builder: HomeBuilder, sit: Sit) -> None:
    home(builder)
    async with sit(builder.home) as seat:
        builder.rewarded("r", 8, 0.33)
        await seat.until(lambda: any("0.33" in row for row in seat.lines()), "it appears")


async def test_the_facts_beside_have_mean_lowest_and_a_curve(
    builder: HomeBuilder, sit: Sit
) -> None:
    home(builder)
    async with sit(builder.home) as seat:
        await seat.until(lambda: "0.54 mean, 0.12 at 2" in seat.text("#facts"), "summary")
        curve = next(row for row in seat.lines("#facts") if "▇" in row or "█" in row)
        drawn = "".join(curve.split())
        assert "█▂▇▃▂█▅".startswith(drawn[0]) and drawn[0] == "█", drawn


async def test_weak_decisions_in_a_row_stand_in_the_attention_order(
    builder: HomeBuilder, sit: Sit
) -> None:
    home(builder, (0.9, 0.9, 0.9, 0.9, 0.9, 0.2, 0.1, 0.05))
    async with sit(builder.home) as seat:
        words = "weak decisions: 3 in a row, step 8 scored 0.05 by prm@1"
        await seat.until(
            lambda: words in " ".join(seat.text("#facts").replace("│", " ").split()), "the reason"
        )


async def test_two_rollouts_have_their_curves_below_their_scores(
    builder: HomeBuilder, sit: Sit
) -> None:
    home(builder)
    with builder.bulk():
        builder.start("q", "alpha")
        builder.whole("q", 1, "begin")
    async with sit(builder.home, at_home=True) as seat:
        await seat.press("V", "down", "V", "vertical_line")
        await seat.until(lambda: "Process reward" in seat.text("#beside"), "the plot")
        text = seat.text("#beside")
        assert "mean 0.54, lowest 0.12 at step 2" in text
        assert "none" in text
