"""Where a context is cut: k = ⌊t/2⌋ of its entries, more only when that is not enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.agent.context_compression import choose_k, least_k
from houston_daemon.prompts.token_limits import compute_token_limits
from houston_shared.task import BudgetSettings


@pytest.mark.parametrize(
    ("t", "forked", "k"),
    [
        *[(0, False, 1), (1, False, 1), (2, False, 1), (3, False, 1), (4, False, 2), (9, False, 4)],
        *[(2, True, 2), (3, True, 2), (4, True, 2), (5, True, 2), (6, True, 3), (21, True, 10)],
    ],
)
def test_the_least_k_is_half_and_compresses_something(t: int, forked: bool, k: int) -> None:
    assert least_k(t, forked) == k


@pytest.mark.parametrize(
    ("name", "sizes", "observations", "forked", "limit", "k"),
    [
        ("half is enough", [100] * 8, [40] * 8, False, 600, 4),
        ("half of an odd number is rounded down", [100] * 9, [40] * 9, False, 700, 4),
        ("the pair of the fork before counts as one", [300] + [100] * 7, [40] * 8, True, 600, 4),
        ("too long still: more steps", [100] * 8, [40] * 8, False, 450, 5),
        ("a large newest step stays if it fits", [10, 10, 10, 500], [5, 5, 5, 90], False, 700, 2),
        ("nothing fits: all of it", [100] * 8, [90] * 8, False, 100, 8),
        ("a single step", [900], [100], False, 300, 1),
        ("a summary alone is not summed up again", [900], [100], True, 300, 0),
        ("a summary and one step", [500, 500], [90, 90], True, 300, 2),
        ("nothing yet", [], [], False, 300, 0),
    ],
)
def test_k(
    name: str, sizes: list[int], observations: list[int], forked: bool, limit: int, k: int
) -> None:
    found = choose_k(sizes, observations, forked=forked, fixed=100, limit=limit)
    assert found == k, name


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=2, max_size=40),
    st.booleans(),
    st.integers(0, 4000),
)
def test_k_is_the_least_that_fits(steps: list[tuple[int, int]], forked: bool, limit: int) -> None:
    sizes = [answer + seen for answer, seen in steps]
    observations = [seen for _, seen in steps]
    k = choose_k(sizes, observations, forked=forked, fixed=50, limit=limit)

    def size(cut: int) -> int:
        return 50 + observations[cut - 1] + sum(sizes[cut:])

    assert least_k(len(steps), forked) <= k <= len(steps)
    assert size(k) <= limit or k == len(steps)
    assert all(size(less) > limit for less in range(least_k(len(steps), forked), k))


@given(st.lists(st.tuples(st.integers(1, 1024), st.integers(1, 2048)), min_size=1, max_size=80))
def test_a_window_of_8192_tokens_always_has_room_for_an_answer(
    steps: list[tuple[int, int]],
) -> None:
    fitting, head = compute_token_limits(BudgetSettings(), 8192), 1036
    limit = fitting.fork_threshold(head)
    sizes: list[int] = []
    observations: list[int] = []
    forks = 0
    for answer, seen in steps:
        if head + sum(sizes) > limit:
            k = choose_k(
                sizes,
                observations,
                forked=forks > 0,
                fixed=head + fitting.summary // 2,
                limit=limit,
            )
            sizes = [fitting.summary + observations[k - 1], *sizes[k:]]
            observations = observations[k - 1 :]
            forks += 1
            assert head + sum(sizes) <= limit + fitting.summary // 2, "a fork makes room at once"
        assert fitting.answer_room(head + sum(sizes), fitting.answer) == fitting.answer
        sizes.append(answer + seen)
        observations.append(seen)
