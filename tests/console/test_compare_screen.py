"""Two rollouts of a task side by side: where the plot puts a score, and the screen from home."""

from houston_console.screens.compare_screen import ScoreSeries, plot_scores
from houston_console.widgets.line_view import FixedLines
from houston_console.widgets.styled_text import line_text, line_width
from tests.console.conftest import SMALL, WIDE, Seat, Sit
from tests.console.home_builder import HomeBuilder


def drawn(*series: ScoreSeries, hours: float = 2.0, height: int = 5) -> list[str]:
    lines = plot_scores(series, hours, 25, height)
    assert max(map(line_width, lines)) <= 25
    return [line_text(line) for line in lines]


def test_a_score_stands_at_its_time_and_holds_until_the_next() -> None:
    lines = drawn(ScoreSeries([(0.0, 0.0), (1.0, 100.0)], "●", "─", "tool"))
    assert lines[0] == " 100│          ●─────────"
    assert lines[4] == "   0│●─────────          "
    assert lines[5] == "    └────────────────────"
    assert lines[6].split() == ["0", "2", "h", "active"]
    wide = line_text(plot_scores([], 2.0, 65, 5)[6])
    assert wide.split() == ["0", "60", "min", "2", "h", "active"]
    assert wide.index("60 min") == 5 + 30 - 3


def test_two_are_told_apart_without_colours_and_one_cell_of_both_as_well() -> None:
    first = ScoreSeries([(0.0, 50.0), (1.5, 90.0)], "●", "─", "tool", (0.5,))
    other = ScoreSeries([(0.0, 50.0), (1.0, 10.0)], "◆", "┄", "guidance_text")
    lines = drawn(first, other)
    assert lines[2].startswith("  50│◈──────────────")
    assert "●" in lines[0]
    assert "◆┄┄┄┄" in lines[4]
    assert lines[-1].index("✎") == 5 + 5
    assert sum("✎" in line for line in lines) == 1


def test_one_without_a_score_leaves_the_other_as_it_is() -> None:
    first = ScoreSeries([(0.0, 50.0)], "●", "─", "tool")
    assert drawn(ScoreSeries([], "◆", "┄", "guidance_text"), first) == drawn(first)


def test_scores_above_the_scale_stretch_it() -> None:
    lines = drawn(ScoreSeries([(0.0, 400.0), (1.0, 100.0)], "●", "─", "tool"))
    assert lines[0].startswith(" 400│●")
    assert "●" in lines[3]


async def test_two_of_a_task_are_marked_at_home_and_shown_side_by_side(
    builder: HomeBuilder, sit: Sit
) -> None:
    scored = {"a-1": (10.0, 60.0), "a-2": (30.0,), "b-1": ()}
    with builder.bulk():
        for name, scores in scored.items():
            builder.start(name, name[0])
            builder.whole(name, 1, "begin")
            for at, score in enumerate(scores):
                builder.scored(name, 2 + at, "try", score)
        builder.say("a-1", "g", "Mind the commas. " * 9, author="ben")
        builder.whole("a-1", 4, "reads")
        builder.scored("a-1", 5, "try", 80.0)
    for last, size in ((30, WIDE), (55, SMALL)):
        async with sit(builder.home, size=size, at_home=True) as seat:
            names = [row.id for row in seat.app.home_screen.list.rows]
            numbers = {name: str(names.index(name) + 1) for name in names}
            await seat.press(numbers["b-1"], "V", "vertical_line")
            assert "two rollouts of one task" in seat.hint()
            await seat.press(numbers["a-2"], "V", numbers["a-1"], "vertical_line")
            await seat.until(lambda: "a-1" in seat.text(FixedLines), "read")
            for part in ("● a-2", "◆ a-1", "80 best, 80 last", f"{last} last", "1 heard", "0 heard",
                         "ben 27 words", "score 60 → 80", "Mind the commas."):  # fmt: skip
                assert part in _all(seat), part
            builder.scored("a-2", last, "again", last + 25.0)
            await seat.until(lambda last=last: f"{last + 25} last" in _all(seat), "up to date")
            await seat.press("escape")
            assert seat.app.screen is seat.app.home_screen


def _all(seat: Seat) -> str:
    view = seat.app.screen.query_one(FixedLines)
    return "\n".join(line_text(view.line_at(at)) for at in range(view.line_count()))
