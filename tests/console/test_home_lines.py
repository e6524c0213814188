"""What a line of the home screen says at every width, and the card below: no screen."""

from houston_console.app.drawing.lines import plain, width_of
from houston_console.app.home.lines import Shown, View, card, heads, hours, rollout_lines, summary
from houston_shared.need import Need, Reason, Standing
from houston_shared.store.queries.actions import Acted
from houston_shared.store.queries.claims import Holding
from houston_shared.store.queries.cost import Spent
from houston_shared.store.queries.looking import Look
from houston_shared.store.queries.scores import Score
from houston_shared.task import Budget
from tests.console.test_state import rollout

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
NOTE = "It keeps a cache that goes stale."


def look(name: str, **fields: int) -> Look:
    given = dict.fromkeys(Look.__struct_fields__, 0)
    return Look(**{**given, "rollout": "r", "name": name, "verified": 1, "here": 1, **fields})  # type: ignore[arg-type]


def shown(name: str = "speed-up-attention-04aa", **fields: object) -> Shown:
    row = rollout(
        name, task="speed-up-attention", steps=118, active_us=185 * MINUTE, best_score=70.1,
        last_score=42.0, policy="policy@1", **fields,
    )  # fmt: skip
    standing = Standing(
        row,
        lookers=[look("ada", step=117), look("me", step=3)],
        holding=Holding(name, "", None, True, NOW - MINUTE, 1, NOTE, "ada", NOW - 120 * MINUTE),
        scores=[Score(9, 1, 1, 70.1), Score(60, 2, 2, 42.0)],
        acted=Acted(118, NOW - 2 * MINUTE, True, "run_command command=bench"),
        new_steps=12,
    )
    reason = Reason("score_fell", "score fell: 42 after 70.1", 50)
    return Shown(3, Need(standing, 50.0, (reason,)), Budget(steps=400, active_seconds=36_000.0))


def view(width: int, lines: int = 2) -> View:
    return View("me", NOW, width, lines)


def test_every_width_says_the_same_and_fits() -> None:
    for width, lines in ((77, 2), (109, 2), (157, 2), (197, 2), (197, 1)):
        found = rollout_lines(shown(), view(width, lines))
        assert len(found) == lines
        assert [width_of(line) for line in found] == [width] * lines, width
        said = " ".join(map(plain, found))
        for part in ("3 ●", "04aa", "score fell: 42 after 70.1", "118/400", "70.1", "42", "▆▄",
                     "3h05/10h", "run_comm", "◉ada", "✉"):  # fmt: skip
            assert part in said, (width, part)
        assert "◉me" not in said
        assert width_of(heads(view(width, lines))) == width


def test_columns_stand_under_their_heads() -> None:
    for width, lines in ((77, 2), (157, 2), (197, 1)):
        head = plain(heads(view(width, lines)))
        row = plain(rollout_lines(shown(), view(width, lines))[0])
        for name, value in (("steps", "118/400"), ("best", "70.1"), ("last", "42")):
            end = row.rindex(value) + len(value)
            assert head.index(name) + len(name) == end, (width, name)
        assert head.index("rollout") == row.index("speed-up")


HOURS = {0: "0m", 59: "0m", 3_540: "59m", 5_940: "99m", 6_000: "1h40", 10_800: "3h", 36_000: "10h"}


def test_active_time_is_short() -> None:
    for seconds, wanted in HOURS.items():
        assert hours(seconds) == wanted


def test_an_ended_rollout_says_how_and_one_without_scores_shows_none() -> None:
    ended = shown(state="finished")
    calm = ended._replace(need=Need(Standing(ended.need.standing.rollout), 0.0, ()))
    said = " ".join(map(plain, rollout_lines(calm, view(157))))
    assert "finished" in said
    assert "–     –" in said


def test_the_card_says_all_that_is_known_from_afar() -> None:
    spent = [Spent("ada", True, 42 * MINUTE, 60 * MINUTE, 3, 2, 31), Spent("me", True, words=1)]
    for width in (70, 150):
        lines = card(shown(state="running", parent="r0", parent_step=7), spent, view(width))
        assert max(map(width_of, lines)) <= width
        said = " ".join(" ".join(map(plain, lines)).split())
        for part in (
            "speed-up-attention-04aa", "branch of r0 at step 7", "score fell: 42 after 70.1",
            "step 118", "2 min ago", "run_command command=bench", "12 steps since you were here",
            "ada at step 117", f"ada, 2 h ago: {NOTE}", "ada 42 min, 31 words; you 1 word",
        ):  # fmt: skip
            assert part in said, (width, part)


def test_the_edge_counts_who_is_needed_and_names_who_is_at_home() -> None:
    one = shown().need
    mine = one._replace(standing=one.standing._replace(
        holding=Holding("r", "me", 1, True, NOW, 1)), weight=0.0)  # fmt: skip
    assert plain(summary([one, mine], ("ben",), "me")) == (
        "1 of 2 need somebody   you look after 1   also at home: ben"
    )
    assert plain(summary([], (), "me")) == "nobody is needed"
    assert "others do not see you" in plain(summary([], (), "me", seen=False))
