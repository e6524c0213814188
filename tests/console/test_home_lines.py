"""What a line of the home screen says at every width, and the card below: no screen."""

from houston_console.screens.home_list import (
    HomeEntry,
    HomeViewContext,
    column_heads,
    format_hours,
    home_summary,
    rollout_card,
    rollout_lines,
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
from tests.console.test_state import rollout

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
    standing = RolloutOverview(
        row,
        lookers=[look("ada", step=117), look("me", step=3)],
        holding=ClaimStatus(name, "", None, True, NOW - MINUTE, 1, NOTE, "ada", NOW - 120 * MINUTE),
        scores=[ScorePoint(9, 1, 1, 70.1), ScorePoint(60, 2, 2, 42.0)],
        acted=LastAction(118, NOW - 2 * MINUTE, True, "run_command command=bench"),
        new_steps=12,
    )
    reason = NeedReason("score_fell", "score fell: 42 after 70.1", 50)
    return HomeEntry(
        3,
        RolloutNeed(standing, 50.0, (reason,)),
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
        for part in ("3 ●", "04aa", "score fell: 42 after 70.1", "118/400", "70.1", "42", "▆▄",
                     "3h05/10h", "run_comm", "◉ada", "✉"):  # fmt: skip
            assert part in text, (width, part)
        assert "◉me" not in text
        assert line_width(column_heads(view(width, lines))) == width


def test_columns_stand_under_their_heads() -> None:
    for width, lines in ((77, 2), (157, 2), (197, 1)):
        head = line_text(column_heads(view(width, lines)))
        row = line_text(rollout_lines(shown(), view(width, lines))[0])
        for name, value in (("steps", "118/400"), ("best", "70.1"), ("last", "42")):
            end = row.rindex(value) + len(value)
            assert head.index(name) + len(name) == end, (width, name)
        assert head.index("rollout") == row.index("speed-up")


HOURS = {0: "0m", 59: "0m", 3_540: "59m", 5_940: "99m", 6_000: "1h40", 10_800: "3h", 36_000: "10h"}


def test_active_time_is_short() -> None:
    for seconds, wanted in HOURS.items():
        assert format_hours(seconds) == wanted


def test_an_ended_rollout_says_how_and_one_without_scores_shows_none() -> None:
    ended = shown(state="finished")
    calm = ended._replace(need=RolloutNeed(RolloutOverview(ended.need.standing.rollout), 0.0, ()))
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
    mine = other._replace(standing=other.standing._replace(
        holding=ClaimStatus("r", "me", 1, True, NOW, 1)), weight=0.0)  # fmt: skip
    assert line_text(home_summary([other, mine], ("ben",), "me")) == (
        "1 of 2 need somebody   you look after 1   also at home: ben"
    )
    assert line_text(home_summary([], (), "me")) == "nobody is needed"
    assert "others do not see you" in line_text(home_summary([], (), "me", visible=False))
