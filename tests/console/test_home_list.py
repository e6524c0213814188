"""What a line of the home screen says at every width, and the card below: no screen."""

import pytest

from houston_console.app.console_state import RolloutSpending
from houston_console.screens.home_columns import (
    DROP_ORDER,
    HomeEntry,
    HomeViewContext,
    columns_that_fit,
    format_tokens,
)
from houston_console.screens.home_list import (
    UNSEEN_GLYPH,
    column_heads,
    fold_line,
    home_summary,
    rollout_lines,
    settled_line,
)
from houston_console.screens.rollout_card import rollout_card
from houston_console.screens.rollout_lists import (
    DIRECTION_MARKS,
    ListRow,
    ScoreDirection,
    score_direction,
)
from houston_console.widgets.styled_text import line_text, line_width
from houston_shared.store.attention_ranking import (
    NeedReason,
    RolloutNeed,
    RolloutOverview,
)
from houston_shared.store.last_actions import LastAction
from houston_shared.store.presence_queries import AttentionCost, ClaimStatus, PresenceRow
from houston_shared.store.refinement_queries import RefinementTree, TriedCritique
from houston_shared.store.rollout_queries import ScorePoint
from houston_shared.task import BudgetSettings
from tests.console.test_console_state import rollout

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
NOTE = "It keeps a cache that goes stale."


def look(name: str, **fields: int) -> PresenceRow:
    defaults = dict.fromkeys(PresenceRow.__struct_fields__, 0)
    return PresenceRow(
        **{**defaults, "rollout": "r", "name": name, "verified": 1, "here": 1, **fields}
    )  # type: ignore[arg-type]


def shown(name: str = "speed-up-attention-04aa", **fields: object) -> HomeEntry:
    row = rollout(
        name, task="speed-up-attention", steps=118, active_us=185 * MINUTE, best_score=70.1,
        last_score=42.0, policy="policy@1", **fields,
    )  # fmt: skip
    overview = RolloutOverview(
        row,
        viewers=[look("ada", step=117), look("me", step=3)],
        holding=ClaimStatus(name, "", None, True, NOW - MINUTE, 1, NOTE, "ada", NOW - 120 * MINUTE),
        scores=[ScorePoint(9, 1, 1, 70.1), ScorePoint(60, 2, 2, 42.0)],
        acted=LastAction(118, NOW - 2 * MINUTE, True, "run_command command=bench"),
        new_steps=12,
    )
    reason = NeedReason("score_fell", "score fell: 42 after 70.1", 50)
    return HomeEntry(
        3,
        RolloutNeed(overview, 50.0, (reason,)),
        BudgetSettings(steps=400, active_seconds=36_000.0),
    )


def view(width: int, lines: int = 2) -> HomeViewContext:
    return HomeViewContext("me", NOW, width, lines)


def test_every_width_says_the_same_and_fits() -> None:
    for width, lines in ((77, 2), (109, 2), (157, 2), (197, 2), (197, 1)):
        drawn = rollout_lines(shown(), view(width, lines))
        assert len(drawn) == lines
        assert [line_width(line) for line in drawn] == [width] * lines, width
        text = " ".join(map(line_text, drawn))
        for part in ("3 ●", "04aa", "score fell: 42 after 70.1", "118/400", "70.1", "42↓", "▆▄",
                     "6h55", "run_comm", "◉ada", "✉"):  # fmt: skip
            assert part in text, (width, part)
        assert "◉me" not in text
        assert line_width(column_heads(view(width, lines))) == width


def test_columns_stand_under_their_heads() -> None:
    for width, lines in ((77, 2), (157, 2), (197, 1)):
        head = line_text(column_heads(view(width, lines)))
        row = line_text(rollout_lines(shown(), view(width, lines))[0])
        places = (("steps", "118/400"), ("best", "70.1"), ("last", "42"), ("left", "6h55"))
        for name, value in places:
            end = row.rindex(value) + len(value)
            assert head.index(name) + len(name) == end, (width, name)
        assert head.index("rollout") == row.index("speed-up")


def test_columns_go_in_a_fixed_order_as_a_list_becomes_narrow() -> None:
    everything = columns_that_fit(200, True, True)
    assert set(DROP_ORDER) <= set(everything)
    gone: list[str] = []
    for room in range(200, -1, -1):
        left_out = [name for name in DROP_ORDER if name not in columns_that_fit(room, True, True)]
        gone += [name for name in left_out if name not in gone]
        assert left_out == gone, room  # none comes back where there is less room
    assert gone == list(DROP_ORDER)
    assert columns_that_fit(0, True, True) == ("best", "direction")
    assert {"cost", "tokens"} & set(columns_that_fit(200, False, False)) == set()


def test_cost_tokens_and_time_are_columns_where_there_is_room() -> None:
    entry = shown()._replace(spent=RolloutSpending(3_140_000, 12.5))
    wide = view(157)._replace(has_cost=True, has_tokens=True)
    row = line_text(rollout_lines(entry, wide)[0])
    for part in ("6h55", "3h05/10h", "12.50", "3.1M"):
        assert part in row
    narrow = view(66)._replace(has_cost=True, has_tokens=True)
    assert "12.50" not in line_text(rollout_lines(entry, narrow)[0])


TOKENS = {0: "0", 812: "812", 48_900: "48k", 3_140_000: "3.1M", 120_400_000: "120M", 2.4e9: "2.4G"}


def test_counts_of_tokens_are_short() -> None:
    for tokens, wanted in TOKENS.items():
        assert format_tokens(int(tokens)) == wanted


@pytest.mark.parametrize(
    ("scores", "direction"),
    [
        pytest.param([], "none", id="not evaluated"),
        pytest.param([40.0], "single", id="one score goes nowhere"),
        pytest.param([40.0, 60.0], "at best", id="better than ever"),
        pytest.param([60.0, 40.0, 60.0], "at best", id="as good as ever"),
        pytest.param([60.0, 20.0, 40.0], "rising", id="up, and below the best"),
        pytest.param([60.0, 40.0], "falling", id="down"),
        pytest.param([60.0, 40.0, 40.0], "level", id="neither, and below the best"),
    ],
)
def test_the_newest_score_has_a_direction(scores: list[float], direction: ScoreDirection) -> None:
    assert score_direction(scores) == direction


def test_a_best_score_that_is_no_more_among_the_newest_counts() -> None:
    assert score_direction([40.0, 50.0], best=50.0) == "at best"
    assert score_direction([40.0, 50.0], best=70.0) == "rising"


def test_every_direction_that_matters_looks_unlike_the_others() -> None:
    moving = [DIRECTION_MARKS[name] for name in ("at best", "rising", "falling", "level")]
    assert len({glyph for glyph, _ in moving}) == len({tone for _, tone in moving}) == 4


def ended(name: str, best: float | None, seen: int) -> RolloutNeed:
    row = rollout(f"t-{name}", task="t", state="finished", best_score=best, last_seq=9)
    return RolloutNeed(RolloutOverview(row, seen_seq=seen), 0.0, ())


def test_a_fold_tells_how_many_the_best_and_how_many_unseen() -> None:
    needs = (ended("a", 61.5, 9), ended("b", 88.0, 3), ended("c", None, 0))
    for is_open, glyph in ((False, "▸"), (True, "▾")):
        for width in (53, 77, 157):
            text = fold_line(ListRow("t", ended=needs, is_open=is_open), view(width))
            assert line_width(text) == width
            words = line_text(text).split()
            assert words == [glyph, "t", "3", "ended", UNSEEN_GLYPH, "2", "unseen", "88"]
    assert "unseen" not in line_text(fold_line(ListRow("t", ended=(needs[0],)), view(77)))


def test_a_settled_rollout_takes_one_line_and_says_whether_anybody_saw_it() -> None:
    for seen, mark in ((9, " "), (3, UNSEEN_GLYPH)):
        entry = HomeEntry(7, ended("a", 61.5, seen), BudgetSettings())
        for width, lines in ((53, 2), (157, 2), (197, 1)):
            text = line_text(settled_line(entry, view(width, lines)))
            assert text.startswith(f"{mark}  7 ✓ t-a")
            assert "–" in text  # no time is left, and none is needed
        assert "finished" in text


def test_an_ended_rollout_says_how_and_one_without_scores_shows_none() -> None:
    ended = shown(state="finished")
    calm = ended._replace(need=RolloutNeed(RolloutOverview(ended.need.overview.rollout), 0.0, ()))
    text = " ".join(map(line_text, rollout_lines(calm, view(157))))
    assert "finished" in text
    assert "–     –" in text


def test_the_card_says_all_that_is_known_from_afar() -> None:
    spent = [
        AttentionCost("ada", True, 42 * MINUTE, 60 * MINUTE, 3, 2, 31),
        AttentionCost("me", True, words=1),
    ]
    for width in (70, 150):
        lines = rollout_card(shown(state="running", parent="r0", parent_step=7), spent, view(width))
        assert max(map(line_width, lines)) <= width
        text = " ".join(" ".join(map(line_text, lines)).split())
        for part in (
            "speed-up-attention-04aa", "branch of r0 at step 7", "score fell: 42 after 70.1",
            "step 118", "2 min ago", "run_command command=bench", "12 steps since you were here",
            "ada at step 117", f"ada, 2 h ago: {NOTE}", "ada 42 min, 31 words; you 1 word",
        ):  # fmt: skip
            assert part in text, (width, part)


def test_the_card_shows_an_attempt_and_what_tried_again_as_one_tree() -> None:
    told = [
        TriedCritique(f"r{n}", "word-critic@2", f"coin {box}", state, score, gain)
        for n, (box, state, score, gain) in enumerate(
            [("red", "finished", 100.0, 1.79), ("blue", "finished", 0.0, -0.61),
             ("pink", "running", None, None)] + [("gray", "finished", 50.0, 0.0)] * 5
        )
    ]  # fmt: skip
    tree = RefinementTree("r-attempt", 50.0, tuple(told))
    for width in (70, 150):
        lines = rollout_card(shown(state="running"), [], view(width), tree)
        assert max(map(line_width, lines)) <= width
        text = [line_text(each).rstrip() for each in lines]
        assert " ↻ r-attempt, score 50, tried again 8 times" in text
        (one,) = (each for each in text if "r0" in each)
        assert one.split() == ["├", "r0", "100", "+1.79", "word-critic@2:", "coin", "red"]
        assert any("r2" in each and "running" in each for each in text)
        assert "   └ 2 more" in text


def test_the_edge_counts_who_is_needed_and_names_who_is_at_home() -> None:
    other = shown().need
    mine = other._replace(overview=other.overview._replace(
        holding=ClaimStatus("r", "me", 1, True, NOW, 1)), weight=0.0)  # fmt: skip
    assert line_text(home_summary([other, mine], ("ben",), "me")) == (
        "1 of 2 need somebody   you look after 1   also at home: ben"
    )
    assert line_text(home_summary([], (), "me")) == "nobody is needed"
    assert "others do not see you" in line_text(home_summary([], (), "me", visible=False))
