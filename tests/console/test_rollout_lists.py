"""In which order rollouts are listed, what a filter keeps, and what a line of scores says."""

from collections.abc import Sequence

from houston_console.screens.rollout_lists import (
    CURSOR_HOLD_SECONDS,
    ORDER_HOLD_SECONDS,
    ListOrder,
    ListRow,
    arrange_rows,
    filter_needs,
    render_sparkline,
)
from houston_console.widgets.styled_text import fit_name
from houston_shared.store.attention_ranking import (
    NeedReason,
    RolloutNeed,
    RolloutOverview,
)
from houston_shared.store.last_actions import LastAction
from tests.console.test_console_state import rollout


def need(name: str, weight: float = 0.0, **fields: object) -> RolloutNeed:
    """`x.a` is the rollout `x.a` of the task `x`."""
    overview = RolloutOverview(rollout(name, task=name.partition(".")[0], **fields))
    reasons = (NeedReason("error_streak", "error streak: 4 steps", 60),) if weight else ()
    return RolloutNeed(overview, weight, reasons)


def rows(*names: str) -> list[ListRow]:
    """As they were listed: `x` is a task, `x.a` a rollout."""
    return [ListRow(n.partition(".")[0], need(n) if "." in n else None) for n in names]


def shown(rows: Sequence[ListRow]) -> list[str]:
    return [row.id or row.task for row in rows]


ORDERS = {
    "by need, where nobody reads": (
        ["y.b", "x.a", "x.c"], False, ["x.a", "y.b", "x.c"], "", ["y.b", "x.a", "x.c"]),
    "the cursor's keeps its place as another comes to need more": (
        ["y.b", "x.c", "x.a"], False, ["x.a", "y.b", "x.c"], "x.a", ["x.a", "y.b", "x.c"]),
    "its place, as it comes to need most itself": (
        ["x.c", "x.a", "y.b"], False, ["x.a", "y.b", "x.c"], "x.c", ["x.a", "y.b", "x.c"]),
    "its place from the top, as others were filtered away": (
        ["y.b", "x.c"], False, ["x.a", "y.b", "x.c"], "x.c", ["y.b", "x.c"]),
    "without it, all by need": (["y.b", "x.a"], False, ["x.c", "x.a"], "x.c", ["y.b", "x.a"]),
    "a new one comes in where it belongs": (
        ["x.n", "x.a", "y.b"], False, ["x.a", "y.b"], "y.b", ["x.n", "y.b", "x.a"]),
    "under tasks, the neediest task first": (
        ["y.b", "x.a", "y.d"], True, [], "", ["y", "y.b", "y.d", "x", "x.a"]),
    "tasks stay where they are around who reads": (
        ["y.b", "x.c", "x.a", "z.e"], True, ["x", "x.a", "x.c", "y", "y.b"], "x.a",
        ["x", "x.a", "x.c", "y", "y.b", "z", "z.e"]),
    "a task whose last rollout went goes": (
        ["y.b"], True, ["x", "x.a", "y", "y.b"], "y.b", ["y", "y.b"]),
    "from one list to tasks, with a cursor": (
        ["x.a", "y.b"], True, ["x.a", "y.b"], "y.b", ["x", "x.a", "y", "y.b"]),
}  # fmt: skip


def test_the_order_is_that_of_need_and_steady_under_who_reads() -> None:
    for what, (names, by_task, before, keep, wanted) in ORDERS.items():
        needs = [need(name, 10.0 - at) for at, name in enumerate(names)]
        assert shown(arrange_rows(needs, by_task, rows(*before), keep)) == wanted, what


MOVES, RESTS, GONE = ORDER_HOLD_SECONDS - 1, ORDER_HOLD_SECONDS + 1, CURSOR_HOLD_SECONDS + 1
HELD = {
    "who moves through it keeps every place": (
        MOVES, ["z.e", "y.b", "x.c", "x.a"], ["x.a", "y.b", "x.c", "z.e"],
        "1 new, order held: ^ sorts"),
    "new ones come last, by need": (
        MOVES, ["z.e", "z.f", "x.a", "y.b", "x.c"], ["x.a", "y.b", "x.c", "z.e", "z.f"],
        "2 new, order held: ^ sorts"),
    "one that is gone leaves the others in order": (
        MOVES, ["x.c", "y.b"], ["y.b", "x.c"], "order held: ^ sorts"),
    "nothing is said where it is by need": (
        MOVES, ["x.a", "y.b", "x.c"], ["x.a", "y.b", "x.c"], ""),
    "at rest only the cursor's place is kept": (
        RESTS, ["z.e", "x.c", "y.b", "x.a"], ["z.e", "y.b", "x.c", "x.a"], ""),
    "by need, where nobody reads": (
        GONE, ["z.e", "x.c", "y.b", "x.a"], ["z.e", "x.c", "y.b", "x.a"], ""),
}  # fmt: skip


def test_no_place_changes_between_two_keys() -> None:
    for what, (seconds, names, wanted, words) in HELD.items():
        now = 0.0
        order = ListOrder()
        order.attention.clock = lambda: now  # noqa: B023  # read before it is bound again
        order.arrange([need(name) for name in ("x.a", "y.b", "x.c")], False, "")
        order.attention.note_activity()
        now += seconds
        assert shown(order.arrange([need(name) for name in names], False, "y.b")) == wanted, what
        assert order.hold_text("^") == words, what
        now += RESTS
        assert order.is_due == bool(words), what
        order.attention.note_activity()
        assert shown(order.arrange([need(name) for name in names], False, "", hold=False)) == names


def test_no_task_changes_its_place_between_two_keys() -> None:
    order = ListOrder()
    order.attention.clock = lambda: 0.0
    order.arrange([need(name) for name in ("x.a", "y.b", "x.c")], True, "")
    order.attention.note_activity()
    needs = [need(name) for name in ("z.e", "y.d", "y.b", "x.c", "x.a")]
    assert shown(order.arrange(needs, True, "")) == [
        "x", "x.a", "x.c", "y", "y.b", "y.d", "z", "z.e",
    ]  # fmt: skip


def test_a_filter_keeps_what_holds_every_word() -> None:
    acted = LastAction(step=3, at=0, open=False, text="run_command command=训练 --seed 1")
    first, other = need("words.a1", 60.0), need("words.b2", state="paused")
    other = other._replace(overview=other.overview._replace(acted=acted))
    for words, wanted in {
        "": ["words.a1", "words.b2"], "WORDS": ["words.a1", "words.b2"], "words a1": ["words.a1"],
        "streak": ["words.a1"], "paused": ["words.b2"], "训练": ["words.b2"], "paused a1": [],
    }.items():  # fmt: skip
        ids = [match.overview.rollout.id for match in filter_needs([first, other], words)]
        assert ids == wanted, words


def test_scores_are_drawn_on_one_scale() -> None:
    for values, most, wanted in (
        ([], 8, ""), ([0.0], 8, "▁"), ([100.0], 8, "█"), ([0, 12.5, 50, 99.9], 8, "▁▂▅█"),
        ([1, 100, 100], 2, "██"), ([50, 200], 8, "▃█"), ([-5.0], 8, "▁"), ([5.0], 0, ""),
    ):  # fmt: skip
        assert render_sparkline(values, most) == wanted, values


def test_a_long_name_keeps_the_end_that_tells_it_from_others() -> None:
    assert fit_name("short", 8) == "short   "
    assert fit_name("speed-up-attention-33f1", 20) == "speed-up-att…on-33f1"
    assert fit_name("清洗数据清洗数据-af55", 16) == "清洗数据…据-af55"
